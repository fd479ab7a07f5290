/* Workers that are killed at random moments, in the midst of calls of all kinds: each of the others
 * is told in one line that names the one that is gone, in time, and can leave.
 *
 * The choices follow a seed, which is printed; DUET_SEED=N repeats them. DUET_SECONDS=N: the test
 * goes on for N seconds, DUET_ROUNDS=N: for N kills. */
#include <poll.h>

#include "base/clock.h"
#include "base/random.h"
#include "tests/rpc/workers.h"

/* Some tensors go through sockets, some lie in memory that two workers share. */
enum { RANKS = 3, LATEST_US = 20000, IN_FLIGHT = 24, SMALL = 20000, LARGE = 300000 };
/* Promised is one second. The rest is for a busy machine and for sanitizers; what is over a second
 * is counted. */
static const double END_S = 20, LATE_S = 1;

struct object {
    int64_t sum;
};

static int make(duet_rpc_call *call, void *context) {
    (void)context;
    struct object *o = calloc(1, sizeof *o);
    return o ? duet_rpc_return_object(call, o, free) : DUET_MEMORY;
}

static int add(duet_rpc_call *call, void *context) {
    (void)context;
    struct object *o = duet_rpc_self(call);
    o->sum += duet_rpc_arg_int(call, 0);
    return duet_rpc_return(call, duet_rpc_int(o->sum));
}

static int echo(duet_rpc_call *call, void *context) {
    (void)context;
    return duet_rpc_return(call, duet_rpc_list(duet_rpc_arg(call, 0), duet_rpc_arg_count(call)));
}

/* Calls the worker that is named, and gives its answer back. */
static int relay(duet_rpc_call *call, void *context) {
    (void)context;
    struct duet_rpc_value got = {0};
    int code = duet_rpc_sync(duet_rpc_of_call(call), duet_rpc_arg_text(call, 0), "echo",
                             DUET_ARGS(duet_rpc_int(1)), 0, &got);
    if (!code) code = duet_rpc_return(call, got);
    duet_rpc_value_free(&got);
    return code;
}

static const struct duet_rpc_function functions[] = {{"Object", make, NULL, NULL},
                                                     {"Object.add", add, NULL, NULL},
                                                     {"echo", echo, NULL, NULL},
                                                     {"relay", relay, NULL, NULL}};

static int below(struct rng *rng, int n) {
    return (int)(rng_u32(rng) % (uint32_t)n);
}

/* ---- traffic: each returns the first code that is not OK, with its text ---- */

static int objects(struct worker *w, const char *to) {
    duet_rref *r;
    struct duet_rpc_value got = {0};
    int code = duet_remote(&r, w->rpc, to, "Object", DUET_NO_ARGS, 0);
    if (code) return code;
    for (int i = 0; i < 3 && !code; i++)
        code = duet_rref_sync(r, "add", DUET_ARGS(duet_rpc_int(2)), 0, &got);
    MUST(code || got.integer == 6);
    char text[512];
    snprintf(text, sizeof text, "%s", duet_error());
    duet_rref_free(r);
    return code ? fail(code, "%s", text) : OK;
}

static int in_flight(struct worker *w, const char *to, duet_tensor *t) {
    duet_future *f[IN_FLIGHT];
    int code = OK, n = 0;
    for (; n < IN_FLIGHT && !code; n++)
        code = duet_rpc_async(&f[n], w->rpc, to, "echo", DUET_ARGS(duet_rpc_tensor(t)), 0);
    n -= code != OK;
    char text[512];
    if (!code && n % 2) code = duet_future_wait_all(f, n);
    snprintf(text, sizeof text, "%s", duet_error());
    for (int i = 0; i < n; i++) /* some that nobody waits for */
        duet_future_free(f[i]);
    return code ? fail(code, "%s", text) : OK;
}

static int some_call(struct worker *w, struct rng *rng, duet_tensor *const tensors[2]) {
    int far = (w->rank + 1 + below(rng, RANKS - 1)) % RANKS;
    const char *to = duet_rpc_name(w->rpc, far);
    struct duet_rpc_value got = {0};
    duet_tensor *t = tensors[below(rng, 4) == 0];
    int code;
    switch (below(rng, 4)) {
    case 0: return objects(w, to);
    case 1: return in_flight(w, to, t);
    case 2: {
        const char *third = duet_rpc_name(w->rpc, RANKS - w->rank - far);
        code = duet_rpc_sync(w->rpc, to, "relay", DUET_ARGS(duet_rpc_text(third)), 0, &got);
        break;
    }
    default: code = duet_rpc_sync(w->rpc, to, "echo", DUET_ARGS(duet_rpc_tensor(t)), 0, &got);
    }
    duet_rpc_value_free(&got);
    return code;
}

/* ---- a worker ---- */

struct report {
    int rank, ready; /* ready 1: init is over; 0: this is the end */
    int64_t at;      /* when the error was there */
    double leaving;  /* seconds that shutdown took */
    char text[512], end[512];
};

static int run_worker(int rank, int to_test, unsigned long long seed, int round) {
    static float values[LARGE];
    struct worker w = {.rank = rank, .n = RANKS};
    struct report report = {.rank = rank, .ready = 1};
    struct rng rng;
    char name[16];
    rng_seed(&rng, seed * 1000003 + (unsigned)round * RANKS + (unsigned)rank);
    snprintf(name, sizeof name, "w%d", rank);
    GOOD(duet_device_open(&w.device, "cpu", rank, 1 << 26));
    const struct duet_rpc_options options = {
        .functions = functions, .function_count = 4, .device = w.device, .threads = 4};
    GOOD(duet_rpc_init(&w.rpc, name, rank, RANKS, &options));
    duet_tensor *t[2] = {tensor_of(&w, SMALL, values), tensor_of(&w, LARGE, values)};
    MUST(write(to_test, &report, sizeof report) == sizeof report);
    int code = OK;
    while (!code)
        code = some_call(&w, &rng, t);
    report.at = now_ns(), report.ready = 0;
    snprintf(report.text, sizeof report.text, "%s", duet_error());
    MUST(code == DUET_PEER, "code %d", code);
    int64_t began = now_ns();
    code = duet_rpc_shutdown(&w.rpc, 1, 0);
    report.leaving = (double)(now_ns() - began) * 1e-9;
    MUST(code == DUET_PEER);
    snprintf(report.end, sizeof report.end, "%s", duet_error());
    MUST(write(to_test, &report, sizeof report) == sizeof report);
    duet_tensor_free(t[0]), duet_tensor_free(t[1]);
    duet_devices_close(&w.device, 1);
    return 0;
}

/* ---- a round ---- */

static int read_report(int from, struct report *r) {
    struct pollfd p = {from, POLLIN, 0};
    return poll(&p, 1, (int)(3 * END_S * 1000)) == 1 && read(from, r, sizeof *r) == sizeof *r;
}

static double play(unsigned long long seed, int round, struct rng *rng) {
    pid_t pid[RANKS];
    int pipes[2], victim = below(rng, RANKS), delay = below(rng, LATEST_US);
    double slowest = 0;
    char name[16];
    struct report r;
    set_secret();
    snprintf(name, sizeof name, "'w%d'", victim);
    cr_assert_eq(pipe(pipes), 0);
    for (int i = 0; i < RANKS; i++)
        if (!(pid[i] = fork())) _exit(run_worker(i, pipes[1], seed, round));
    for (int i = 0; i < RANKS; i++)
        cr_assert(read_report(pipes[0], &r) && r.ready, "round %d: a worker did not begin", round);
    usleep((useconds_t)delay);
    int64_t killed = now_ns();
    kill(pid[victim], SIGKILL);
    for (int i = 0; i < RANKS - 1; i++) {
        cr_assert(read_report(pipes[0], &r), "round %d: a worker is not told", round);
        double took = (double)(r.at - killed) * 1e-9;
        if (took > slowest) slowest = took;
        if (r.leaving > slowest) slowest = r.leaving;
        /* Of two that survive, one may leave first. */
        cr_expect(strstr(r.text, name) || strstr(r.text, "has left"), "round %d: %s: '%s'", round,
                  name, r.text);
        cr_expect(!strchr(r.text, '\n') && strstr(r.end, "worker 'w"), "'%s', '%s'", r.text, r.end);
    }
    for (int i = 0; i < RANKS; i++)
        cr_expect_eq(status_of(pid[i]), i == victim ? SIGKILL : 0, "round %d: worker %d", round, i);
    close(pipes[0]), close(pipes[1]);
    return slowest;
}

Test(kills, at_any_moment, .timeout = 1200) {
    unsigned long long seed = test_seed();
    const char *seconds = getenv("DUET_SECONDS"), *rounds = getenv("DUET_ROUNDS");
    const int least = rounds ? atoi(rounds) : 8;
    double slowest = 0;
    int round = 0, late = 0;
    struct rng rng;
    rng_seed(&rng, seed);
    fprintf(stderr, "workers are killed: DUET_SEED=%llu repeats this\n", seed);
    for (int64_t end = deadline_after(seconds ? atof(seconds) : 0); round < least || now_ns() < end;
         round++) {
        double took = play(seed, round, &rng);
        late += took > LATE_S;
        if (took > slowest) slowest = took;
        cr_expect_lt(took, END_S, "round %d: %g s", round, took);
    }
    fprintf(stderr, "workers are killed: %d rounds, the slowest word of it after %.3f s, %d late\n",
            round, slowest, late);
}
