/* Processes of a job that are killed, stopped or stopped for a moment at random times: the command,
 * one of its ranks, or all of them. Whenever that happens, the command ends within its deadline
 * with one line of error, or goes on as if nothing had been, and it leaves no process and no file.
 *
 * The choices follow a seed, which is printed; DUET_SEED=N repeats them. The times then are the
 * same too, but not what the processes do at those times. DUET_SECONDS=N: the test
 * goes on for N seconds. */

#include "tests/app/cli/data.h"
#include "tests/app/cli/kills.h"

enum { RANKS = 3, EARLIEST_MS = 1, LATEST_MS = 700, PAUSE_MS = 150 };
enum deed { KILL, STOP, PAUSE, DEEDS };
static const char *const deed_names[DEEDS] = {"kill", "stop", "pause"};

/* --timeout of a command whose ranks are stopped for good, and of any other: there no deadline may
 * pass, however busy the machine is. */
static const double STOP_TIMEOUT_S = 2, OTHER_TIMEOUT_S = 60;
/* Promised is one second after the failure, or after the deadline. The rest is for a busy machine
 * and for sanitizers. */
static const double END_S = 15;

/* The modes, and what their output files are. */
static const struct {
    const char *command, *outputs;
} commands[] = {
    {"train --mode ddp", "--save w --log-loss l --json j"},
    {"train --mode dp", "--save w --log-loss l --json j"},
    {"compare", "--json j"},
};

struct round {
    int command;
    enum deed deed;
    int delay_ms;
    int victim; /* -1: the command; RANKS: all ranks; else one rank, modulo those there are */
    char text[160];
};

/* A stopped command waits for whoever stopped it: the command itself is only killed or paused. */
static struct round draw(struct rng *rng) {
    struct round r = {.command = below(rng, 3),
                      .deed = (enum deed)below(rng, DEEDS),
                      .delay_ms = EARLIEST_MS + below(rng, LATEST_MS),
                      .victim = below(rng, RANKS + 2) - 1};
    if (r.deed == STOP && r.victim < 0) r.victim = 0;
    char victim[32] = "the command";
    if (r.victim == RANKS)
        snprintf(victim, sizeof victim, "all ranks");
    else if (r.victim >= 0)
        snprintf(victim, sizeof victim, "rank %d", r.victim);
    snprintf(r.text, sizeof r.text, "%s: %s %s after %d ms", commands[r.command].command,
             deed_names[r.deed], victim, r.delay_ms);
    return r;
}

/* ---- one round ---- */

/* Returns how many processes got the signal: none where the chosen rank has not started yet. */
static int signal_victims(const pid_t *victims, int count, int signal) {
    int hit = 0;
    for (int i = 0; i < count; i++)
        hit += kill(victims[i], signal) == 0;
    return hit;
}

static int choose_victims(const struct cli *c, const struct round *r, pid_t victims[RANKS]) {
    if (r->victim < 0) {
        victims[0] = c->pid;
        return 1;
    }
    int count = children_of(c->pid, victims, RANKS);
    if (r->victim == RANKS || count == 0) return count;
    victims[0] = victims[r->victim % count];
    return 1;
}

/* A command without ranks may not catch signals yet: SIGTERM then ends it without a word. */
static void check_end(struct cli *c, const struct round *r, int signal, int ranks, double seconds) {
    const char *end = strchr(c->err, '\n');
    int one_line = !strncmp(c->err, "duet: ", 6) && end && !end[1], silent = !*c->err;
    int want = signal ? 128 + signal : 1;
    int killed = signal == SIGKILL && r->victim < 0; /* the command itself */
    int good = killed ? silent : one_line || (silent && !ranks && signal == SIGTERM);
    cr_expect_eq(c->status, want, "%s: status %d, not %d: %s", r->text, c->status, want, c->err);
    cr_expect(good, "%s: not one line: '%s'", r->text, c->err);
    /* Ended by SIGTERM after its first step, a command has written its files. */
    if (signal == SIGTERM) cr_assert_eq(system("rm -f w l j"), 0);
    cr_expect_eq(cli_files(), 2, "%s: left a file", r->text); /* golden, d */
    cr_expect_lt(seconds, END_S, "%s: took %g s: %s", r->text, seconds, c->err);
}

/* Returns 1 if the deed was done, 0 if there was nobody yet to do it to. */
static int play(const struct round *r) {
    struct cli c;
    pid_t victims[RANKS];
    double timeout = r->deed == STOP ? STOP_TIMEOUT_S : OTHER_TIMEOUT_S;
    cli_start(&c, "%s --devices %d --data-dir d --batch-size 30 --epochs 100000 --timeout %g %s",
              commands[r->command].command, RANKS, timeout, commands[r->command].outputs);
    usleep((useconds_t)r->delay_ms * 1000);
    int signal = r->deed == KILL ? SIGKILL : SIGSTOP;
    int count = choose_victims(&c, r, victims), hit = signal_victims(victims, count, signal);
    if (r->deed == PAUSE && hit) {
        usleep(PAUSE_MS * 1000);
        signal_victims(victims, count, SIGCONT);
        usleep(PAUSE_MS * 1000);
    }
    int goes_on = r->deed == PAUSE || !hit;
    if (goes_on) {
        siginfo_t ended = {0};
        cr_expect(!waitid(P_PID, (id_t)c.pid, &ended, WEXITED | WNOHANG | WNOWAIT) && !ended.si_pid,
                  "%s: the command has ended", r->text);
        kill(c.pid, SIGTERM); /* not SIGINT: a shell's background jobs ignore it, ranks and all */
    }
    int64_t start = now_ns();
    cli_wait(&c);
    double seconds = (double)(now_ns() - start) * 1e-9;
    if (getenv("DUET_SHOW"))
        fprintf(stderr, "%-44s %d %5.1f s %s", r->text, c.status, seconds, *c.err ? c.err : "\n");
    check_end(&c, r, goes_on ? SIGTERM : r->deed == KILL ? SIGKILL : 0, hit, seconds);
    cli_free(&c);
    return hit > 0;
}

CliTest(cli_random_kills, at_any_moment, 1200) {
    unsigned long long seed = test_seed();
    const char *seconds = getenv("DUET_SECONDS");
    const double most_s = seconds ? atof(seconds) : 2;
    int rounds = 0, hits = 0;
    struct rng rng;
    fprintf(stderr, "random kills: DUET_SEED=%llu repeats these\n", seed);
    rng_seed(&rng, seed);
    put_data(300, 20);
    for (int64_t deadline = deadline_after(most_s); rounds < 3 || now_ns() < deadline; rounds++) {
        struct round r = draw(&rng);
        if (getenv("DUET_SHOW")) fprintf(stderr, "%s\n", r.text);
        hits += play(&r);
    }
    fprintf(stderr, "random kills: %d rounds, %d of them hit a process\n", rounds, hits);
    cr_assert(hits > 0, "no process was hit in %d rounds", rounds);
}
