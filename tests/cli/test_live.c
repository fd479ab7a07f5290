/* --live: the dashboard on a terminal of the test's own. What stands there is what the run's JSON
 * says; the terminal is given back as it was, however the command ends; and where there is no
 * dashboard not one escape byte is sent. */
#include "tests/cli/data.h"
#include "tests/cli/live.h"

#define RUN "--data-dir d --model mlp --mlp-hidden 16 --batch-size 20"

static int has_byte_above(const char *text, int most) {
    for (; *text; text++)
        if ((unsigned char)*text > most) return 1;
    return 0;
}

Test(cli_live, the_screen_says_what_the_json_says, .timeout = 120, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    static const struct {
        int columns;
        const char *terminal, *locale, *no_colour, *mode, *title;
    } ways[] = {
        {80, "xterm-256color", "C.UTF-8", "", "dp --devices 2", "DP x 2: mlp on fashion-mnist"},
        {60, "xterm", "C", "", "ddp --devices 3", "DDP x 3: mlp on fashion-mnist"},
        {200, "xterm-256color", "C.UTF-8", "1", "ddp --devices 2", "DDP x 2: mlp on"},
        {80, "vt100", "C", "", "single", "single x 1: mlp on fashion-mnist, batch 20"}};
    put_data(60, 20);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct session s;
        char words[256];
        int utf8 = !strcmp(ways[i].locale, "C.UTF-8");
        setenv("TERM", ways[i].terminal, 1);
        setenv("LC_ALL", ways[i].locale, 1);
        setenv("NO_COLOR", ways[i].no_colour, 1);
        snprintf(words, sizeof words, "train --live --mode %s " RUN " --epochs 2 --json j",
                 ways[i].mode);
        begin(&s, ways[i].columns, words);
        cli_wait(&s.c);
        term_listen(&s.t, &s.c);
        cr_assert(s.c.status == 0 && !strstr(s.c.err, "duet: "), "%s: %s", words, s.c.err);
        cr_expect_eq(s.t.used, s.c.seen);
        is_given_back(&s, words);
        cr_expect(matches(s.c.out, "wall ") && plain_lines(s.c.out), "results: %s", s.c.out);
        cr_expect(matches(s.c.progress, "^(single|DP|DDP) +epoch 2/2  step 6 "), "%s",
                  s.c.progress);
        /* a vt100 has no second screen: what is printed behind the dashboard scrolls it up */
        if (strcmp(ways[i].terminal, "vt100") != 0)
            says_what_json_says(&s, "j", ways[i].title, "cpu");
        char *below = term_text(&s.t, &s.t.screen[0]);
        cr_expect(strstr(below, "o test acc "), "the last picture stays: %s", below);
        free(below);
        cr_expect_eq(has_byte_above(s.c.shown, 0x7e), utf8, "%s in locale %s", words,
                     ways[i].locale);
        cr_expect_eq(s.t.coloured, !*ways[i].no_colour && i != 3, "colours: %s", words);
        close(s.side);
        cli_free(&s.c);
    }
}

/* compare: the runs before stand above the one that goes on; the table follows when the terminal is
 * given back. profile likewise. */
Test(cli_live, several_runs, .timeout = 120, .init = cli_folder_make, .fini = cli_folder_remove) {
    static const char *const commands[] = {"compare --live " RUN " --epochs 2",
                                           "profile --live " RUN " --steps 5"};
    static const char *const above[][2] = {{"single: step 6  loss ", "DP: step 6  loss "},
                                           {"DP: step 5  loss ", "DP, loss in forward: step 5"}};
    put_data(60, 20);
    setenv("TERM", "xterm", 1);
    for (int i = 0; i < 2; i++) {
        struct session s;
        begin(&s, 100, commands[i]);
        end(&s, 0, commands[i]);
        char *screen = term_text(&s.t, &s.t.left);
        has(screen, above[i][0]);
        has(screen, above[i][1]);
        has(screen, "DDP x 2: mlp on fashion-mnist");
        free(screen);
        cr_expect(plain_lines(s.c.out) && matches(s.c.out, i ? "^DDP: 2 devices" : "^DDP = single"),
                  "%s", s.c.out);
        cli_free(&s.c);
    }
}

#define LONG "train --live --mode ddp --devices 2 " RUN " --epochs 100000"

/* Ctrl-C, SIGTERM, a hangup, a killed rank, a run that fails in its middle: the terminal is as
 * before, the files are written, and the error is one line below the dashboard. */
Test(cli_live, every_end_gives_the_terminal_back, .timeout = 240, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    static const struct {
        int signal, rank, status, files;
        const char *words, *said;
    } ends[] = {
        {SIGINT, -1, 130, 3, LONG " --save w --json j --log-loss l", "signal 2"},
        {SIGTERM, -1, 143, 3, LONG " --save w --json j --log-loss l", "signal 15"},
        {SIGHUP, -1, 129, 0, LONG " --save w", "signal 1"},
        {SIGKILL, 1, 137, 0, LONG " --save w", "rank 1 .*signal 9"},
        {0, -1, 1, 0,
         "train --live --mode dp --model simple --dataset random --classes 20000 --device-memory "
         "48M --devices 4",
         "out of memory"},
        {SIGINT, -1, 130, 1, "compare --live " RUN " --epochs 100000 --json j", "signal 2"}};
    put_data(60, 20);
    setenv("TERM", "xterm", 1);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct session s;
        int files = cli_files();
        begin(&s, 80, ends[i].words);
        if (ends[i].signal) cr_assert(screen_shows(&s, "images/s"), "%s", ends[i].words);
        if (ends[i].rank >= 0)
            kill(cli_find_rank(&s.c, ends[i].rank), ends[i].signal);
        else if (ends[i].signal)
            kill(ends[i].signal == SIGINT ? -s.c.pid : s.c.pid, ends[i].signal);
        end(&s, ends[i].status, ends[i].words);
        cr_expect(matches(s.c.err, "^duet: ") && matches(s.c.err, ends[i].said), "%s: '%s'",
                  ends[i].words, s.c.err);
        cr_expect_eq(cli_files(), files + ends[i].files, "%s", ends[i].words);
        cr_assert_eq(system("rm -f w j l"), 0);
        cli_free(&s.c);
    }
}

/* 1 if the line of progress fills the window: it ends in the last column. */
static int fills_the_window(const struct session *s) {
    char *screen = term_text(&s->t, &s->t.screen[1]), *left = strstr(screen, " left\n");
    const char *start = left;
    while (start && start > screen && start[-1] != '\n')
        start--;
    int fills = left && left + 5 - start == s->t.columns && strchr(start, '[');
    free(screen);
    return fills;
}

/* The window grows, shrinks below what fits, and grows again. */
Test(cli_live, the_window_changes, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    static const int sizes[][2] = {{30, 120}, {8, 30}, {1, 1}, {40, 61}};
    struct session s;
    put_data(60, 20);
    setenv("TERM", "xterm", 1);
    begin(&s, 80, LONG);
    cr_assert(screen_shows(&s, "images/s"));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct winsize size = {.ws_row = (unsigned short)sizes[i][0],
                               .ws_col = (unsigned short)sizes[i][1]};
        size_t used = s.t.used;
        int fills = 0;
        cr_assert_eq(ioctl(s.c.terminal, TIOCSWINSZ, &size), 0);
        term_init(&s.t, sizes[i][0], sizes[i][1]); /* all of it must be drawn anew */
        s.t.used = used;
        s.t.alternate = s.t.hidden_cursor = s.t.times_taken = 1;
        int64_t deadline = deadline_after(sizes[i][1] < 60 ? 0.3 : CLI_SECONDS);
        for (; !fills && now_ns() < deadline; cli_pause()) {
            cli_listen(&s.c);
            term_listen(&s.t, &s.c);
            fills = fills_the_window(&s);
        }
        cr_expect(fills || sizes[i][1] < 60, "%d x %d", sizes[i][0], sizes[i][1]);
    }
    kill(s.c.pid, SIGINT);
    end(&s, 130, "a changed window");
    cli_free(&s.c);
}

/* Ctrl-Z: the terminal is given back before the command stops, and `fg` takes it again. */
Test(cli_live, stopped_and_continued, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    struct session s;
    put_data(60, 20);
    setenv("TERM", "xterm", 1);
    begin(&s, 80, LONG);
    for (int time = 1; time <= 2; time++) {
        siginfo_t about = {0};
        cr_assert(screen_shows(&s, "images/s"));
        cr_expect(s.t.alternate && s.t.hidden_cursor && s.t.times_taken == time);
        kill(-s.c.pid, SIGTSTP);
        for (int64_t deadline = deadline_after(CLI_SECONDS); now_ns() < deadline; cli_pause())
            if (!waitid(P_PID, (id_t)s.c.pid, &about, WSTOPPED | WNOHANG | WNOWAIT) && about.si_pid)
                break;
        cr_assert_eq(about.si_code, CLD_STOPPED, "it does not stop");
        cr_expect_eq(about.si_status, SIGTSTP);
        cli_listen(&s.c);
        term_listen(&s.t, &s.c);
        is_given_back(&s, "stopped");
        kill(-s.c.pid, SIGCONT);
    }
    cr_assert(screen_shows(&s, "images/s"));
    cr_expect_eq(s.t.times_taken, 3);
    kill(s.c.pid, SIGINT);
    end(&s, 130, "continued");
    cli_free(&s.c);
}

/* Lines as ever, and no escape byte: a narrow window, a terminal that can do nothing, none. */
Test(cli_live, plain_lines_elsewhere, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    static const struct {
        int columns; /* 0: no terminal */
        const char *terminal;
    } ways[] = {{20, "xterm"}, {59, "xterm"}, {80, "dumb"}, {80, ""}, {80, "no-such-terminal"},
                {0, "xterm"}};
    skip_without_ncurses();
    put_data(60, 20);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct cli c;
        setenv("TERM", ways[i].terminal, 1);
        if (ways[i].columns)
            cli_start_on_narrow_terminal(&c, ways[i].columns,
                                         "train --live --mode ddp " RUN " --epochs 2 --json j");
        else
            cli_start(&c, "train --live --mode ddp " RUN " --epochs 2 --json j");
        cli_wait(&c);
        cr_assert_eq(c.status, 0, "%s", c.err);
        cr_expect(!*c.err && !strchr(c.out, '\033') && !strchr(c.progress, '\033') &&
                      (!c.shown || !strchr(c.shown, '\033')),
                  "%s, %d columns: %s", ways[i].terminal, ways[i].columns, c.err);
        cr_expect(matches(c.progress, "^DDP    epoch 2/2  step 6 "), "%s", c.progress);
        cli_free(&c);
    }
}

/* The bits of a run do not depend on being looked at. */
Test(cli_live, same_bits, .timeout = 60, .init = cli_folder_make, .fini = cli_folder_remove) {
    struct session s;
    put_data(60, 20);
    setenv("TERM", "xterm", 1);
    cli_well("train --mode ddp " RUN " --epochs 3 --save w0 --log-loss l0 --quiet");
    begin(&s, 80, "train --live --mode ddp " RUN " --epochs 3 --save w --log-loss l");
    end(&s, 0, "train --live");
    cr_expect(cli_same_file("w", "w0") && cli_same_file("l", "l0"));
    cli_free(&s.c);
    cli_fails(2, "--live: no effect beside --quiet", "train --live --quiet");
    cli_fails(2, "--live: no effect in duet scale", "scale --live");
    cli_fails(2, "--live: no effect in duet estimate", "estimate --live");
}
