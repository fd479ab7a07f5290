/* Kills workers at random moments, during calls of all kinds. Each other worker gets an error of
 * one line that names the dead worker, and can leave.
 *
 * The choices follow a seed, which is printed; DUET_SEED=N repeats them. The test runs for
 * DUET_SECONDS seconds, or DUET_ROUNDS kills. */
#include "base/clock.h"
#include "base/random.h"
#include "tests/rpc/workers.h"

/* Some values fit into a socket, some do not. */
enum { RANKS = 3, LATEST_US = 20000, IN_FLIGHT = 24, SMALL = 80000, LARGE = 1200000 };

/* Calls the named worker. */
FUNCTION(relay) {
    return duet_rpc_sync(duet_rpc_of_call(call), duet_rpc_arg_text(call, 0), "echo",
                         DUET_ARGS(duet_rpc_int(1)), 0, NULL);
}

static const struct duet_rpc_function functions[] = {F(relay)};

static int below(struct rng *rng, int n) {
    return (int)(rng_u32(rng) % (uint32_t)n);
}

/* ---- traffic: each returns the first code that is not OK, with its text ---- */

static int objects(struct worker *w, const char *to) {
    duet_rref *r;
    struct duet_rpc_value got = {0};
    int code = duet_remote(&r, w->rpc, to, "Thing", DUET_NO_ARGS, 0);
    for (int i = 0; i < 3 && !code; i++)
        code = duet_rref_sync(r, "add", DUET_ARGS(duet_rpc_int(2)), 0, &got);
    MUST(code || got.integer == 13);
    duet_rref_free(r);
    return code;
}

/* Only the last is waited for. */
static int in_flight(struct worker *w, const char *to, struct duet_rpc_value value) {
    duet_future *f = NULL;
    int code = DUET_OK;
    for (int i = 0; i < IN_FLIGHT && !code; i++) {
        duet_future_free(f);
        code = duet_rpc_async(&f, w->rpc, to, "echo", &value, 1, 0);
    }
    if (!code) code = duet_future_wait(f, NULL);
    duet_future_free(f);
    return code;
}

static int some_call(struct worker *w, struct rng *rng) {
    static char bytes[LARGE];
    int far = (w->rank + 1 + below(rng, RANKS - 1)) % RANKS;
    const char *to = duet_rpc_name(w->rpc, far);
    const char *third = duet_rpc_name(w->rpc, RANKS - w->rank - far);
    struct duet_rpc_value value = duet_rpc_bytes(bytes, below(rng, 4) ? SMALL : LARGE);
    switch (below(rng, 4)) {
    case 0: return objects(w, to);
    case 1: return in_flight(w, to, value);
    case 2: return TELL(to, "relay", DUET_ARGS(duet_rpc_text(third)));
    default: return TELL(to, "echo", &value, 1);
    }
}

/* ---- a round ---- */

static unsigned long long seed;
static int round_now, victim, begun[2];

static void calls_until_told(struct worker *w) {
    char gone[32], word = 0;
    struct rng rng;
    rng_seed(&rng, seed * 1000003 + (unsigned)round_now * RANKS + (unsigned)w->rank);
    snprintf(gone, sizeof gone, "worker 'w%d'", victim);
    MUST(write(begun[1], &word, 1) == 1);
    int code = DUET_OK;
    while (!code)
        code = some_call(w, &rng);
    /* Of two that survive, one may leave first. */
    MUST(code == DUET_PEER && (strstr(duet_error(), gone) || strstr(duet_error(), "has left")));
    MUST(!strchr(duet_error(), '\n'));
    FAILS(DUET_PEER, duet_rpc_shutdown(&w->rpc, 1, 0), "worker 'w");
}

static void play(struct rng *rng) {
    pid_t pid[RANKS];
    char word;
    victim = below(rng, RANKS);
    cr_assert_eq(pipe(begun), 0);
    start(pid, RANKS, calls_until_told);
    for (int i = 0; i < RANKS; i++)
        cr_assert_eq(read(begun[0], &word, 1), 1);
    usleep((useconds_t)below(rng, LATEST_US));
    kill(pid[victim], SIGKILL);
    for (int i = 0; i < RANKS; i++)
        cr_expect_eq(status_of(pid[i]), i == victim ? SIGKILL : 0, "round %d: w%d", round_now, i);
    close(begun[0]), close(begun[1]);
}

Test(kills, at_any_moment, .timeout = 1200) {
    const char *seconds = getenv("DUET_SECONDS"), *rounds = getenv("DUET_ROUNDS");
    const int least = rounds ? atoi(rounds) : 8;
    struct rng rng;
    seed = test_seed();
    rng_seed(&rng, seed);
    HAVE(functions);
    fprintf(stderr, "workers are killed: DUET_SEED=%llu repeats this\n", seed);
    int64_t end = deadline_after(seconds ? atof(seconds) : 0);
    for (round_now = 0; round_now < least || now_ns() < end; round_now++)
        play(&rng);
    fprintf(stderr, "workers are killed: %d rounds\n", round_now);
}
