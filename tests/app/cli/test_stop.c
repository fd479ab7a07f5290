/* Sends SIGINT and SIGTERM to `train`: all ranks stop after the same step, the requested files are
 * written, and --resume continues from there. Other runs are killed repeatedly at random moments;
 * resumed, they end with the bits of an undisturbed run. */
#include <signal.h>

#include "base/random.h"
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"

#define RUN "--data-dir d --batch-size 24 --virtual-devices 4 --momentum 0.9 --lr 0.05 --quiet "
enum { EPOCHS = 12, RANKS = 4 };
static const char *const modes[] = {"ddp --devices 4", "dp --devices 2", "single"};

static void train_once(void) {
    put_data(240, 20);
    cli_well("train " RUN "--epochs %d --save one --log-loss one.csv", EPOCHS);
}

/* Waits until the run has written its first checkpoint, so that some steps are done. */
static void wait_for_file(const char *path) {
    for (int64_t deadline = deadline_after(CLI_SECONDS); now_ns() < deadline; cli_pause())
        if (!access(path, F_OK)) return;
    cr_assert_fail("%s was not written", path);
}

/* The losses of both parts together are those of the whole run. */
static void goes_on(const char *mode, const char *what) {
    cli_well("train --mode %s " RUN "--epochs %d --resume ck --save two --log-loss rest.csv", mode,
             EPOCHS);
    cr_expect(cli_same_file("one", "two"), "%s: other weights", what);
    cr_assert_eq(system("tail -n +2 rest.csv >> two.csv"), 0);
    cr_expect(cli_same_file("one.csv", "two.csv"), "%s: other losses", what);
}

/* to_all: the signal goes to the whole group, as Ctrl-C does. */
static void stops(const char *mode, int signal, int to_all, const char *then) {
    struct cli c;
    char what[96], line[96];
    snprintf(what, sizeof what, "%s, signal %d%s", mode, signal, to_all ? " to all" : "");
    cr_assert_eq(system("rm -f ck two*"), 0);
    cli_start(&c,
              "train --mode %s " RUN "--epochs 100000 --save two --log-loss two.csv --json j "
              "--checkpoint ck --checkpoint-every 2",
              mode);
    wait_for_file("ck");
    kill(to_all ? -c.pid : c.pid, signal);
    cli_wait(&c);
    cr_expect_eq(c.status, 128 + signal, "%s: status %d: %s", what, c.status, c.err);
    struct json *j = json_of("j");
    int steps = (int)json_int(j, "steps");
    json_free(j);
    snprintf(line, sizeof line, "duet: ended by signal %d (%s) after %d steps\n", signal,
             strsignal(signal), steps);
    cr_expect_str_eq(c.err, line, "%s: %s", what, c.err);
    cli_free(&c);
    cr_expect_geq(steps, 2, "%s", what);
    /* its files equal those of a run with that many steps */
    cli_well("train " RUN "--epochs 100000 --steps %d --save three --log-loss three.csv", steps);
    cr_expect(cli_same_file("two", "three"), "%s: other weights", what);
    cr_expect(cli_same_file("two.csv", "three.csv"), "%s: other losses", what);
    if (steps < 10 * EPOCHS) goes_on(then, what);
}

CliTest(cli_stop, after_a_step, 300) {
    train_once();
    stops("ddp --devices 4", SIGINT, 1, "single");
    stops("dp --devices 2", SIGTERM, 0, "ddp --devices 2");
    if (test_short()) return;
    stops("ddp --devices 2", SIGINT, 0, "ddp --devices 4");
    stops("single", SIGTERM, 1, "dp --devices 4");
}

/* A second signal, at a later moment, ends the job at once; nothing is written. Rank 0 is
 * stopped meanwhile, so that the first cannot be obeyed. */
CliTest(cli_stop, second_signal, 120) {
    struct cli c;
    put_data(240, 20);
    cli_start(&c, "train --mode ddp --devices 4 " RUN "--epochs 100000 --save two --checkpoint ck "
                  "--checkpoint-every 2");
    wait_for_file("ck");
    kill(cli_find_rank(&c, 0), SIGSTOP);
    kill(c.pid, SIGINT);
    usleep(300000);
    siginfo_t ended = {0};
    cr_expect(!waitid(P_PID, (id_t)c.pid, &ended, WEXITED | WNOHANG | WNOWAIT) && !ended.si_pid);
    kill(c.pid, SIGINT);
    cli_wait(&c);
    cr_expect_eq(c.status, 130, "status %d: %s", c.status, c.err);
    cr_expect_str_eq(c.err, "duet: ended by signal 2 (Interrupt) to the launcher\n");
    cr_expect(access("two", F_OK) != 0, "weights were written");
    cli_free(&c);
}

/* ---- killed again and again ---- */

static int below(struct rng *rng, int n) {
    return (int)(rng_u32(rng) % (uint32_t)n);
}

/* Returns how many it has found, `most` at most. */
static int children_of(pid_t parent, pid_t *children, int most) {
    int count = 0;
    DIR *all = opendir("/proc");
    for (struct dirent *entry; all && count < most && (entry = readdir(all));) {
        pid_t pid = atoi(entry->d_name);
        if (pid > 0 && cli_parent_of(pid) == parent) children[count++] = pid;
    }
    if (all) closedir(all);
    return count;
}

/* Starts the run, or what is left of it, and kills the command or a rank after some time. Returns
 * the exit status. */
static int part(struct rng *rng, int kills) {
    enum { LONGEST_MS = 400 };
    struct cli c;
    pid_t ranks[RANKS];
    const char *mode = modes[below(rng, 3)];
    int delay_ms = 1 + below(rng, LONGEST_MS), victim = below(rng, RANKS + 1) - 1;
    cli_start(&c,
              "train --mode %s " RUN "--epochs %d --save two --checkpoint ck "
              "--checkpoint-every %d%s",
              mode, EPOCHS, 1 + below(rng, 3), access("ck", F_OK) ? "" : " --resume ck");
    if (kills) {
        usleep((useconds_t)delay_ms * 1000);
        int count = victim < 0 ? 0 : children_of(c.pid, ranks, RANKS);
        kill(count ? ranks[victim % count] : c.pid, SIGKILL);
    }
    cli_wait(&c);
    int status = c.status;
    cr_expect(status == 0 || (kills && status == 137), "%s, %d ms: status %d: %s", mode, delay_ms,
              status, c.err);
    cli_free(&c);
    return status;
}

CliTest(cli_stop, killed_again_and_again, 300) {
    if (test_short()) cr_skip_test("short form: random kills belong to the plain build and soak");
    unsigned long long seed = test_seed();
    struct rng rng;
    int kills = getenv("DUET_SECONDS") ? 10 : 3, killed = 0;
    fprintf(stderr, "killed again and again: DUET_SEED=%llu repeats this\n", seed);
    rng_seed(&rng, seed);
    train_once();
    for (int i = 0; i <= kills; i++)
        killed += part(&rng, i < kills) != 0;
    cr_expect(cli_same_file("one", "two"), "seed %llu, %d times killed: other weights", seed,
              killed);
    cr_expect(killed > 0, "seed %llu: it was never killed", seed);
}
