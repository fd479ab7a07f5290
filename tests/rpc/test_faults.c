/* Workers that die, stop, leave early or never come: each ends in one line that names them. */
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "rpc/proof.h"
#include "tests/rpc/workers.h"

static int die(duet_rpc_call *call, void *context) {
    (void)call, (void)context;
    raise(SIGKILL);
    return DUET_OK;
}

static int nap(duet_rpc_call *call, void *context) {
    (void)context;
    usleep((useconds_t)(duet_rpc_arg_number(call, 0) * 1e6));
    return DUET_OK;
}

static int pid(duet_rpc_call *call, void *context) {
    (void)context;
    return duet_rpc_return(call, duet_rpc_int(getpid()));
}

static const struct duet_rpc_function functions[] = {
    {"die", die, NULL, NULL}, {"nap", nap, NULL, NULL}, {"pid", pid, NULL, NULL}};

static int begun[2]; /* a pipe: w1 says that its init is over */

/* w2 dies in a call of w0; w0 is told at once, later calls fail at once, and so does shutdown. The
 * init of a worker fails where another one dies before it is over. */
static void one_dies(struct worker *w) {
    struct duet_rpc_value got;
    duet_future *f;
    char word = 0;
    if (w->rank == 1) MUST(write(begun[1], &word, 1) == 1);
    if (w->rank == 0) {
        MUST(read(begun[0], &word, 1) == 1);
        GOOD(duet_rpc_async(&f, w->rpc, "w2", "nap", DUET_ARGS(duet_rpc_number(9)), 0));
        double began = duet_time();
        FAILS(DUET_PEER, duet_rpc_sync(w->rpc, "w2", "die", DUET_NO_ARGS, 0, &got),
              "rpc: die: worker 'w2' is gone: its process has ended");
        MUST(duet_time() - began < 1, "%g s", duet_time() - began);
        FAILS(DUET_PEER, duet_future_wait(f, &got), "rpc: nap: worker 'w2' is gone");
        FAILS(DUET_PEER, duet_rpc_sync(w->rpc, "w2", "pid", DUET_NO_ARGS, 0, &got), "w2");
        duet_future_free(f);
    }
    FAILS(DUET_PEER, duet_rpc_shutdown(&w->rpc, 1, 0), "worker 'w");
}

Test(faults, a_killed_worker_is_named, .timeout = 30) {
    cr_assert_eq(pipe(begun), 0);
    HAVE(functions);
    alone(3, one_dies, (int[]){0, 0, SIGKILL});
}

static void one_stops(struct worker *w) {
    struct duet_rpc_value got;
    duet_rref *r;
    int code = DUET_OK;
    if (w->rank) { /* it goes on when nobody counts on it any more */
        while (!code)
            code = duet_rpc_sync(w->rpc, "w0", "pid", DUET_NO_ARGS, -1, NULL);
        FAILS(DUET_PEER, code, "worker 'w0' is gone: it has given this worker up");
        GOOD(duet_rpc_shutdown(&w->rpc, 0, 0));
        return;
    }
    GOOD(duet_rpc_sync(w->rpc, "w1", "pid", DUET_NO_ARGS, 0, &got));
    kill((pid_t)got.integer, SIGSTOP);
    while (!code) /* the signal takes its time to reach all threads there */
        code = duet_rpc_sync(w->rpc, "w1", "pid", DUET_NO_ARGS, 0.3, NULL);
    MUST(code == DUET_TIMEOUT && strstr(duet_error(), "no answer within 0.3 s"));
    /* A reference that its owner has not confirmed goes to nobody else, whatever the timeout. */
    GOOD(duet_remote(&r, w->rpc, "w1", "pid", DUET_NO_ARGS, -1));
    FAILS(DUET_PEER, duet_rpc_sync(w->rpc, "w0", "pid", DUET_ARGS(duet_rpc_rref(r)), 0.1, NULL),
          "rpc: pid: worker 'w1' is gone: it has said nothing for");
    duet_rref_free(r);
    FAILS(DUET_PEER, duet_rpc_sync(w->rpc, "w1", "pid", DUET_NO_ARGS, -1, NULL), "is it stopped?");
    kill((pid_t)got.integer, SIGCONT);
    GOOD(duet_rpc_shutdown(&w->rpc, 0, 0));
}

Test(faults, a_stopped_worker_is_noticed, .timeout = 30) {
    worker_silence = 2;
    HAVE(functions);
    alone(2, one_stops, NULL);
}

static void one_leaves(struct worker *w) {
    int code = DUET_OK;
    while (!w->rank && !code)
        code = duet_rpc_sync(w->rpc, "w1", "pid", DUET_NO_ARGS, 0, NULL);
    MUST(w->rank || (code == DUET_PEER && strstr(duet_error(), "worker 'w1' has left")));
    GOOD(duet_rpc_shutdown(&w->rpc, 0, 0));
}

Test(faults, one_that_leaves_early_is_named, .timeout = 30) {
    HAVE(functions);
    alone(2, one_leaves, NULL);
}

/* Nobody who shuts down gracefully waits for one that has left, whatever the timeout. */
static void two_stay(struct worker *w) {
    if (w->rank == 1) {
        GOOD(duet_rpc_shutdown(&w->rpc, 0, 0));
        return;
    }
    if (w->rank == 2) usleep(300000); /* one waits already when it leaves, the other comes later */
    FAILS(DUET_PEER, duet_rpc_shutdown(&w->rpc, 1, 0), "worker 'w1' has left");
}

Test(faults, a_graceful_end_names_who_has_left, .timeout = 30) {
    HAVE(functions);
    alone(3, two_stay, NULL);
}

/* ---- names of the library ---- */

static const char *const own[] = {"duet.to_here",        "duet.wait",     "duet.begin",
                                  "duet.leave",          "duet.backward", "duet.Optimizer",
                                  "duet.Optimizer.step", "duet.nothing"};
#define REFUSED(call) FAILS(DUET_USAGE, call, "names that begin with 'duet.' are the library's")

static void call_own(struct worker *w) {
    duet_autograd_context *c;
    struct duet_rpc_function f = {"duet.mine", nap, NULL, NULL};
    duet_tape *t;
    duet_future *future;
    duet_rref *r;
    struct duet_rpc_value got;
    if (w->rank) return;
    GOOD(duet_autograd_context_create(&c, w->rpc));
    GOOD(duet_autograd_pass(&t, c, NULL, 1));
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        for (int to = 0; to < 2; to++) {
            const char *name = duet_rpc_name(w->rpc, to);
            REFUSED(duet_rpc_sync(w->rpc, name, own[i], DUET_NO_ARGS, 0, &got));
            REFUSED(duet_rpc_async(&future, w->rpc, name, own[i], DUET_NO_ARGS, 0));
            REFUSED(duet_remote(&r, w->rpc, name, own[i], DUET_NO_ARGS, 0));
            REFUSED(duet_autograd_sync(t, name, own[i], DUET_NO_ARGS, 0, &got));
            REFUSED(duet_autograd_async(&future, t, name, own[i], DUET_NO_ARGS, 0));
            REFUSED(duet_autograd_remote(&r, t, name, own[i], DUET_NO_ARGS, 0));
        }
    REFUSED(duet_rref_create_object(&r, w->rpc, "duet.Optimizer", c, NULL));
    REFUSED(duet_rpc_register(w->rpc, &f));
    duet_autograd_context_free(c);
}

Test(faults, no_program_calls_the_librarys_own, .timeout = 30) {
    WORKERS(2, call_own, functions);
}

/* ---- the timeout of a remote call ---- */

static void too_late(struct worker *w) {
    const struct duet_rpc_value s = duet_rpc_number(0.5);
    struct duet_rpc_value got;
    duet_rref *r;
    if (w->rank) return;
    for (int waits = 0; waits < 2; waits++) { /* it is asked when it is late, and before */
        GOOD(duet_remote(&r, w->rpc, "w1", "nap", &s, 1, 0.1));
        if (!waits) usleep(700000);
        FAILS(DUET_TIMEOUT, duet_rref_to_here(r, 5, &got), "creation of this reference timed out");
        FAILS(DUET_TIMEOUT, duet_rref_wait(r, 5), "creation of this reference timed out");
        duet_rref_free(r);
    }
    GOOD(duet_remote(&r, w->rpc, "w1", "nap", &s, 1, -1)); /* none */
    GOOD(duet_rref_to_here(r, 5, &got));
    duet_rref_free(r);
}

Test(faults, a_value_that_was_not_made_in_time_is_none, .timeout = 30) {
    WORKERS(2, too_late, functions);
}

static int refused(int rank, int n, const char *name, double timeout_s, const char *words) {
    duet_rpc *rpc;
    struct duet_rpc_options options = {.timeout_s = timeout_s};
    int code = duet_rpc_init(&rpc, name, rank, n, &options);
    MUST(code && !rpc && strstr(duet_error(), words), "wanted: %s", words);
    return 0;
}

Test(faults, init_names_who_is_missing_or_twice, .timeout = 30) {
    pid_t p[3];
    set_secret();
    if (!(p[0] = fork())) _exit(refused(0, 3, "w0", 0.5, "rank 1, 2 did not come within 0.5 s"));
    cr_expect_eq(status_of(p[0]), 0);
    for (int r = 0; r < 2; r++)
        if (!(p[r] = fork())) _exit(refused(r, 2, "twin", 20, "are both named 'twin'"));
    cr_expect_eq(status_of(p[0]), 0);
    cr_expect_eq(status_of(p[1]), 0);
    if (!(p[0] = fork()))
        _exit(refused(0, 2, "w0", 20, "worker 'w63' has rank 63 in a world of 2"));
    usleep(300000); /* it waits when the wrong one comes */
    double began = duet_time();
    refused(63, 2, "w63", 20, "rank 63 of 2 workers: give 0 to n - 1");
    cr_expect_eq(status_of(p[0]), 0);
    for (int r = 0; r < 2; r++)
        if (!(p[r] = fork())) _exit(refused(2 * r, 2 + r, "w", 20, "was started for"));
    cr_expect_eq(status_of(p[0]), 0);
    cr_expect_eq(status_of(p[1]), 0);
    cr_expect_lt(duet_time() - began, 10, "init has waited for its timeout");
    refused(0, 1, "no good", 1, "worker name 'no good'");
    refused(2, 2, "w", 1, "rank 2 of 2 workers");
}

/* Says something to every socket of this job that listens. Returns how many it reached. */
static int say_junk_to_all(void) {
    char line[256], own[64], job[32], name[100];
    int reached = 0;
    FILE *sockets = fopen("/proc/net/unix", "r");
    proof_name(job, sizeof job, getenv("DUET_RPC_SECRET"));
    snprintf(own, sizeof own, "@duet-rpc-%u-%s-", (unsigned)geteuid(), job);
    while (sockets && fgets(line, sizeof line, sockets)) {
        char *at = strstr(line, own), junk[4096] = "let me in";
        if (!at || sscanf(at + 1, "%99s", name) != 1) continue;
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        memcpy(to.sun_path + 1, name, strlen(name));
        socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
        int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (!connect(s, (struct sockaddr *)&to, size)) {
            ssize_t sent = send(s, junk, sizeof junk, MSG_NOSIGNAL);
            while (sent > 0 && recv(s, junk, sizeof junk, 0) > 0) /* the hello, and then the end */
                ;
            reached++;
        }
        close(s);
    }
    fclose(sockets);
    return reached;
}

static void only_call(struct worker *w) {
    if (w->rank == 0) GOOD(duet_rpc_sync(w->rpc, "w1", "pid", DUET_NO_ARGS, 0, NULL));
    MUST(say_junk_to_all() == 0); /* when all have come, nobody listens any more */
    GOOD(duet_rpc_shutdown(&w->rpc, 1, 20));
}

/* While a worker waits for the other, somebody knocks who is none. */
Test(faults, a_stranger_is_cut_off, .timeout = 30) {
    pid_t p[2];
    HAVE(functions);
    set_secret();
    for (int r = 0; r < 2; r++) {
        p[r] = start_one(r, 2, only_call);
        while (r == 0 && !say_junk_to_all())
            usleep(1000);
    }
    cr_expect_eq(status_of(p[0]), 0);
    cr_expect_eq(status_of(p[1]), 0);
}
