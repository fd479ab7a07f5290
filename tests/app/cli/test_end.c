/* A signal ends the command or one of its ranks at each stage of a run. The command must end with
 * the right exit status and one line that names the victim, and leave no process and no file. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"

enum phase { START, TRAINING, EVALUATION, PHASES };
static const char *const NAMES[PHASES] = {"start", "training", "evaluation"};
enum { RANKS = 3 };

static const char *devices_of(const char *command) {
    return strstr(command, "--mode single") ? "" : "--devices 3";
}

/* Starts a job of three ranks that would stay in this phase for long, and returns when it is
 * there. */
static void start_in(struct cli *c, enum phase phase, const char *command, int signal) {
    /* The deadline after which a stopped rank is missed. On a busy machine other ranks may be late,
     * too, above all in a long evaluation, and the short form is slow. If no rank is stopped, no
     * deadline should pass. */
    const double timeout = signal != SIGSTOP ? 60 : test_short() || phase == EVALUATION ? 5 : 2;
    const int width = test_short() ? 1024 : 2048;
    if (phase == EVALUATION) { /* one quick step, then a long evaluation */
        put_data(30, test_short() ? 4000 : 8000);
        cli_start_on_terminal(c,
                              "%s %s --data-dir d --batch-size 30 --model mlp --mlp-hidden "
                              "%d,%d --epochs 1 --timeout %g",
                              command, devices_of(command), width, width, timeout);
        cr_assert(cli_shows(c, "step 1/1"), "%s", c->shown);
        usleep(50000);
    } else {
        put_data(300, 20);
        cli_start_on_terminal(c, "%s %s --data-dir d --batch-size 30 --epochs 100000 --timeout %g",
                              command, devices_of(command), timeout);
        if (phase == TRAINING) cr_assert(cli_shows(c, "epoch 2/"), "%s", c->shown);
    }
}

static void one_line(struct cli *c, int status, const char *expression, const char *what) {
    const char *end = strchr(c->err, '\n');
    cr_expect_eq(c->status, status, "%s: status %d: %s", what, c->status, c->err);
    cr_expect(!strncmp(c->err, "duet: ", 6) && end && !end[1] && matches(c->err, expression),
              "%s: not '%s' but '%s'", what, expression, c->err);
    cr_expect_eq(cli_files(), 2, "%s: left a file", what); /* golden, d */
    cli_free(c);
}

/* After SIGKILL the error names the rank and its signal, and its status is that of the command.
 * After SIGSTOP a wait ends by --timeout, and the error names the rank that did not come. */
static void hit_ranks(int signal) {
    for (enum phase phase = START; phase < PHASES; phase++)
        for (int rank = 0; rank < RANKS; rank++) {
            struct cli c;
            char want[64], what[64];
            int once =
                test_short() || (signal == SIGSTOP &&
                                 /* each wait for a stopped rank takes as long as --timeout */
                                 phase != TRAINING);
            if (once && rank != (int)phase) continue;
            start_in(&c, phase, "train --mode ddp --save w --log-loss l", signal);
            kill(cli_find_rank(&c, rank), signal);
            cli_wait(&c);
            snprintf(what, sizeof what, "rank %d gets signal %d in %s", rank, signal, NAMES[phase]);
            snprintf(want, sizeof want,
                     signal == SIGKILL ? "rank %d \\(pid [0-9]+\\) .*signal 9" : "rank %d", rank);
            one_line(&c, signal == SIGKILL ? 137 : 1, want, what);
        }
}

CliTest(cli_end, rank_killed, 300) {
    hit_ranks(SIGKILL);
}
CliTest(cli_end, rank_stopped, 300) {
    hit_ranks(SIGSTOP);
}

/* After SIGKILL the command prints nothing, and still no process is left, nor a file, since an
 * unfinished one has no name. SIGINT and SIGTERM are tried in test_stop.c and test_report.c. */
CliTest(cli_end, command_killed, 300) {
    static const char *const commands[] = {"train --mode ddp --save w --log-loss l --json j",
                                           "train --mode dp --save w --log-loss l --json j",
                                           "train --mode single --save w --log-loss l --json j",
                                           "compare --json j"};
    for (int k = 0; k < 4; k++) {
        struct cli c;
        if (test_short() && k % 3) continue;
        start_in(&c, TRAINING, commands[k], SIGKILL);
        kill(c.pid, SIGKILL);
        cli_wait(&c);
        cr_expect(c.status == 137 && !*c.err && cli_files() == 2, "%s: %d '%s'", commands[k],
                  c.status, c.err);
        cli_free(&c);
    }
}

/* A reader of the output that goes away, as head does, is no failure: the status is that of signal
 * 13, and there is no message. It is noticed when something is to be printed, so the reader gets
 * the progress as well. */
CliTest(cli_end, reader_gone, 240) {
    static const struct {
        const char *command, *first;
    } table[] = {{"train --mode ddp --save w", "DDP: lenet"},
                 {"train --mode dp --save w", "DP: lenet"},
                 {"compare --json w", "single epoch 1/"}};
    put_data(300, 20);
    for (int i = 0; i < 3; i++) {
        char command[PATH_MAX + 256];
        snprintf(command, sizeof command,
                 "{ %s %s --device cpu --devices 3 --data-dir d --batch-size 30 --epochs 100000; "
                 "echo $? >s; } 2>&1 | "
                 "head -1 >o",
                 cli_program, table[i].command);
        cr_assert_eq(system(command), 0);
        cr_assert(cli_nobody_left(CLI_LEFT_SECONDS), "a process is left");
        char *status = cli_read("s", NULL), *out = cli_read("o", NULL);
        cr_expect(!strcmp(status, "141\n") && !strncmp(out, table[i].first, strlen(table[i].first)),
                  "%s: '%s' '%s'", table[i].command, status, out);
        cr_expect_eq(cli_files(), 4, "golden, d, s and o");
        free(status), free(out);
    }
}
