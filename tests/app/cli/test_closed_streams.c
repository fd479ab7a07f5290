/* Commands that are started with some of descriptors 0, 1 and 2 closed (`duet train >&-`). A file
 * or memory file that the command opens must not get one of these numbers: what is printed would
 * be written into it. So a command, with some of the three closed, must leave the same files as
 * with all three open: train opens files of every kind and starts ranks. It ends well, unless
 * what it printed is lost. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"

enum { STREAMS = 3, SUBSETS = 1 << STREAMS }; /* bit s of a subset: descriptor s is closed */

/* In the child: descriptor 1 is the file `out`, 2 the file `err`, but those in `closed` are
 * closed. */
static void become(const char *line, int closed) {
    char words[512], *argv[64] = {"duet"};
    int argc = 1,
        fds[STREAMS] = {open("/dev/null", O_RDONLY), open("out", O_RDWR | O_CREAT | O_TRUNC, 0666),
                        open("err", O_RDWR | O_CREAT | O_TRUNC, 0666)};
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(words, sizeof words, "%s", line);
    for (char *save, *word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    for (int s = 0; s < STREAMS; s++)
        if (dup2(fds[s], s) < 0) _exit(125);
    for (int fd = STREAMS; fd < 64; fd++)
        close(fd);
    for (int s = 0; s < STREAMS; s++)
        if (closed >> s & 1) close(s);
    execv(cli_program, argv);
    _exit(126);
}

/* Runs the command; returns its exit status. What it printed is in the files out and err. */
static int run_closed(const char *line, int closed) {
    int status = 0, ended = 0;
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) become(line, closed);
    for (int64_t deadline = deadline_after(CLI_SECONDS); !ended && now_ns() < deadline; cli_pause())
        ended = waitpid(pid, &status, WNOHANG) == pid;
    if (!ended) kill(-pid, SIGKILL);
    cr_assert(ended, "%s: did not end, closed %d", line, closed);
    cr_assert(cli_nobody_left(CLI_LEFT_SECONDS), "%s: a process is left, closed %d", line, closed);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The command opens /dev/null for those that are closed before it knows its subcommand, so one that
 * opens files of every kind and starts ranks is tried with every subset; the others, and all in the
 * short form, with the ones that a shell user is likely to meet. */
static int is_tried(int closed, int every) {
    return (every && !test_short()) || closed == 0 || closed == 1 << 1 || closed == SUBSETS - 1;
}

/* Its exit status: what is printed where descriptor 1 is closed has no reader. */
static int status_of(int closed) {
    return closed >> 1 & 1;
}

/* Only progress may be on stderr, and that output is lost; the JSON file must be whole. */
static void check_texts(const char *line, int closed, const char *json) {
    struct cli printed = {.terminal = -1};
    char *err = cli_read("err", NULL);
    cli_split(&printed, err);
    const char *lost = strstr(printed.err, "standard output: cannot be written: is it closed");
    cr_expect_eq(lost != NULL, closed >> 1 & ~closed >> 2 & 1, "%s: %d: %s", line, closed, err);
    if (!lost) cr_expect_str_eq(printed.err, "", "%s: closed %d: %s", line, closed, err);
    free(err);
    cli_free(&printed);
    if (json) json_free(json_of(json));
}

/* Files whose bytes do not depend on time: equal to those of the run with all streams open. */
static void run_subsets(const char *line, const char *const *files, const char *json, int every) {
    char copy[64], shell[200];
    for (int closed = 0; closed < SUBSETS; closed++) {
        if (!is_tried(closed, every)) continue;
        cr_expect_eq(run_closed(line, closed), status_of(closed), "%s: closed %d", line, closed);
        check_texts(line, closed, json);
        for (const char *const *f = files; f && *f; f++) {
            snprintf(copy, sizeof copy, "%s.open", *f);
            snprintf(shell, sizeof shell, "cp %s %s", *f, copy);
            if (closed == 0) cr_assert_eq(system(shell), 0);
            cr_expect(cli_same_file(*f, copy), "%s: %s is another one with %d closed", line, *f,
                      closed);
            unlink(*f);
        }
    }
}

#define SMALL " --device cpu --data-dir d --batch-size 30 --model mlp --steps 4"

CliTest(cli_closed_streams, train, 300) {
    static const char *const files[] = {"w", "l", NULL};
    static const char *const modes[] = {"single", "dp", "ddp"};
    put_data(100, 20);
    for (int m = 0; m < 3; m++) {
        char line[200];
        snprintf(line, sizeof line, "train --mode %s" SMALL " --save w --log-loss l --json j",
                 modes[m]);
        run_subsets(line, files, "j", m == 2);
    }
}

/* These only print. What they print where descriptor 1 is open is always the same, but for
 * `devices`, which looks at the memory that is free. */
CliTest(cli_closed_streams, commands_that_print, 120) {
    static const char *const lines[] = {"devices",
                                        "sampler --dataset-size 100 --world-size 2 --rank 1",
                                        "--help", "train --help", "--version"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        for (int closed = 0; closed < SUBSETS; closed++) {
            if (!is_tried(closed, 1)) continue;
            int compared = i > 0 && !(closed >> 1 & 1);
            cr_expect_eq(run_closed(lines[i], closed), status_of(closed), "%s: closed %d", lines[i],
                         closed);
            check_texts(lines[i], closed, NULL);
            if (closed == 0) cr_assert_eq(system("cp out open"), 0);
            if (compared) cr_expect(cli_same_file("out", "open"), "%s: %d", lines[i], closed);
        }
}

/* An error has no reader where descriptor 2 is closed. The status says it all the same, and the
 * text is in no file. */
CliTest(cli_closed_streams, errors, 120) {
    put_data(100, 20);
    for (int closed = 0; closed < SUBSETS; closed++) {
        if (!is_tried(closed, 1) && closed != 1 << 2) continue;
        cr_expect_eq(run_closed("train" SMALL " --save nowhere/w", closed), 1, "%d", closed);
        cr_expect_eq(run_closed("train --mode tpu", closed), 2, "%d", closed);
        cr_expect_eq(run_closed("job 0 1 2", closed), 2, "%d", closed);
    }
}
