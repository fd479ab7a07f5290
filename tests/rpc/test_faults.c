/* Tests workers that die, stop, leave early or never join, late calls, and values that are too
 * large. Each ends with one line that names the fault. */
#include "tests/rpc/workers.h"

FUNCTION(size) {
    return duet_rpc_return(call, duet_rpc_bytes("", (size_t)duet_rpc_arg_int(call, 0)));
}

static const struct duet_rpc_function functions[] = {F(size)};

/* ---- one dies ---- */

/* w2 dies in a call of w0; w0 is told at once, later calls fail at once, as all that is done with a
 * reference to w2, and so does shutdown. Before, w1 has answered: its init, which would fail, too,
 * is over. */
static void one_dies(struct worker *w) {
    struct duet_rpc_value got;
    duet_future *f;
    duet_rref *r, *own, *other;
    if (w->rank == 0) {
        GOOD(SYNC("w1", "pid", DUET_NO_ARGS));
        GOOD(duet_remote(&r, w->rpc, "w2", "Thing", DUET_NO_ARGS, 0));
        GOOD(duet_rref_wait(r, 0));
        GOOD(duet_rpc_async(&f, w->rpc, "w2", "nap", DUET_ARGS(duet_rpc_number(9)), 0));
        GOOD(duet_rref_create_object(&own, w->rpc, "Thing", thing_of(7), thing_goes));
        double began = duet_time();
        FAILS(DUET_PEER, SYNC("w2", "die", DUET_ARGS(duet_rpc_rref(own))),
              "rpc: die: worker 'w2' is gone: its process has ended");
        MUST(duet_time() - began < 1, "%g s", duet_time() - began);
        duet_rref_free(own); /* w2 had the last reference to it */
        becomes(w, "w0", "alive", 0);
        FAILS(DUET_PEER, duet_future_wait(f, &got), "rpc: nap: worker 'w2' is gone");
        FAILS(DUET_PEER, SYNC("w2", "pid", DUET_NO_ARGS), "w2");
        duet_future_free(f);
        FAILS(DUET_PEER, duet_rref_sync(r, "add", DUET_NO_ARGS, 0, &got), "worker 'w2'");
        FAILS(DUET_PEER, duet_rref_to_here(r, 0, &got), "worker 'w2' is gone");
        FAILS(DUET_PEER, duet_rref_wait(r, 0), "worker 'w2' is gone");
        FAILS(DUET_PEER, duet_remote(&other, w->rpc, "w2", "Thing", DUET_NO_ARGS, 0), "'w2'");
        FAILS(DUET_PEER, SYNC("w0", "nap", DUET_ARGS(duet_rpc_rref(r))), "'w2'");
        duet_rref_free(r);
    }
    FAILS(DUET_PEER, duet_rpc_shutdown(&w->rpc, 1, 0), "worker 'w");
}

TEST_ALONE(faults, a_killed_worker_is_named, 3, one_dies, (int[]){0, 0, SIGKILL})

/* Calls to a stopped worker end with their own timeouts, also one that passes on a reference which
 * its owner has not counted yet. When it continues, so do its calls. */
static void one_stops(struct worker *w) {
    struct duet_rpc_value got;
    duet_rref *r;
    int code = DUET_OK;
    if (w->rank == 0) {
        GOOD(duet_remote(&r, w->rpc, "w1", "Thing", DUET_NO_ARGS, 0));
        GOOD(SYNC("w1", "pid", DUET_NO_ARGS));
        kill((pid_t)got.integer, SIGSTOP);
        while (!code) /* the signal takes its time to reach all threads there */
            code = duet_rpc_sync(w->rpc, "w1", "pid", DUET_NO_ARGS, 0.3, NULL);
        MUST(code == DUET_TIMEOUT && strstr(duet_error(), "no answer within 0.3 s"));
        for (int to = 0; to < 3; to += 2)
            FAILS(DUET_TIMEOUT,
                  duet_rpc_sync(w->rpc, to ? "w2" : "w0", "pid", DUET_ARGS(duet_rpc_rref(r)), 0.1,
                                NULL),
                  "rpc: a reference: its owner, worker 'w1', did not answer in time");
        kill((pid_t)got.integer, SIGCONT);
        duet_rref_free(r);
        becomes(w, "w1", "alive", 0);
    }
    GOOD(duet_rpc_shutdown(&w->rpc, 1, 0));
}

TEST_ALONE(faults, a_stopped_worker_is_waited_for, 3, one_stops, NULL)

/* ---- one leaves ---- */

/* Nobody who shuts down gracefully waits for one that has left, whatever the timeout. */
static void two_stay(struct worker *w) {
    if (w->rank == 1) {
        GOOD(duet_rpc_shutdown(&w->rpc, 0, 0));
        return;
    }
    if (w->rank == 2) usleep(300000); /* one already waits when it leaves, the other joins later */
    FAILS(DUET_PEER, duet_rpc_shutdown(&w->rpc, 1, 0), "worker 'w1' has left");
}

TEST_ALONE(faults, a_graceful_end_names_who_has_left, 3, two_stay, NULL)

/* w0 leaves while calls in both directions run. */
static void leaves_at_once(struct worker *w) {
    duet_future *f;
    if (w->rank == 1) {
        FAILS(DUET_PEER, TELL("w0", "nap", DUET_ARGS(duet_rpc_number(0.3))),
              "rpc: nap: worker 'w0' has left");
        raise(SIGKILL); /* its nap is long */
    }
    GOOD(duet_rpc_async(&f, w->rpc, "w1", "nap", DUET_ARGS(duet_rpc_number(20)), 0));
    duet_future_free(f); /* nobody waits for it */
    usleep(100000);      /* so that w1's call has arrived */
    double began = duet_time();
    GOOD(duet_rpc_shutdown(&w->rpc, 0, 0));
    MUST(duet_time() - began < 10 && !w->rpc);
}

TEST_ALONE(faults, leaving_at_once_waits_for_no_call_from_here, 2, leaves_at_once,
           (int[]){0, SIGKILL})

/* A graceful shutdown also waits for calls of others that nobody waits for. */
static void all_leave(struct worker *w) {
    duet_future *f[3];
    for (int i = 0; i < 3; i++) {
        const char *to = i == 2 ? "w0" : "w1";
        GOOD(duet_rpc_async(&f[i], w->rpc, to, "nap", DUET_ARGS(duet_rpc_number(0.2)), 0));
        duet_future_free(f[i]);
    }
    double began = duet_time();
    GOOD(duet_rpc_shutdown(&w->rpc, 1, 0));
    MUST(duet_time() - began > 0.15, "%g s", duet_time() - began);
}

TEST_ALONE(faults, leaving_together_waits_for_all_calls, 2, all_leave, NULL)

/* One worker does not call it: the others' shutdown ends at its deadline, and names it. */
static void comes_late(struct worker *w) {
    if (w->rank < 2)
        FAILS(DUET_TIMEOUT, duet_rpc_shutdown(&w->rpc, 1, 2), "'w2' did not shut down in time");
    else
        usleep(3000 * 1000);
    GOOD(duet_rpc_shutdown(&w->rpc, 0, 0));
}

Test(faults, a_shutdown_names_who_does_not_come, .timeout = 30) {
    worker_abrupt = 1;
    COMMON_WORKERS(3, comes_late);
}

/* ---- late calls, and values that are too large ---- */

static void too_late(struct worker *w) {
    const struct duet_rpc_value s = duet_rpc_number(0.5);
    const size_t most = (size_t)18 << 30;
    struct duet_rpc_value got;
    duet_rref *r;
    if (w->rank) return;
    GOOD(duet_remote(&r, w->rpc, "w1", "nap", &s, 1, 0.1));
    usleep(120000); /* less than a second has passed, but each use checks the time */
    FAILS(DUET_TIMEOUT, duet_rref_to_here(r, 5, &got), "creation of this reference timed out");
    FAILS(DUET_TIMEOUT, duet_rref_wait(r, 5), "creation of this reference timed out");
    duet_rref_free(r);
    GOOD(duet_remote(&r, w->rpc, "w1", "nap", &s, 1, -1)); /* none */
    GOOD(duet_rref_to_here(r, 5, &got));
    duet_rref_free(r);
    for (int i = 0; i < 5; i++) /* the answers still come, while other calls are made */
        FAILS(DUET_TIMEOUT, duet_rpc_sync(w->rpc, "w1", "nap", &s, 1, 0.01, &got),
              "rpc: worker 'w1': nap: "); /* or it says that its caller has given up */
    GOOD(SYNC("w1", "nap", DUET_ARGS(duet_rpc_number(0.1))));
    MUST(got.integer == 7);
    FAILS(DUET_USAGE, SYNC("w1", "nap", DUET_ARGS(duet_rpc_bytes("", most))),
          "rpc: a message has at most 18253611008 bytes");
    FAILS(DUET_USAGE, SYNC("w1", "size", DUET_ARGS(duet_rpc_int((int64_t)most))),
          "rpc: worker 'w1': size: rpc: a message has at most");
}

TEST_WORKERS(faults, a_value_that_was_not_made_in_time_is_none, 2, too_late, functions)

/* ---- init ---- */

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
    if (!(p[0] = fork())) _exit(refused(0, 3, "w0", 0.5, "rank 1, 2 did not join within 0.5 s"));
    cr_expect_eq(status_of(p[0]), 0);
    double began = duet_time();
    for (int r = 0; r < 2; r++)
        if (!(p[r] = fork())) _exit(refused(r, 2, "twin", 20, "are both named 'twin'"));
    for (int r = 0; r < 2; r++)
        cr_expect_eq(status_of(p[r]), 0);
    refused(63, 2, "w63", 20, "rank 63 of 2 workers: give 0 to n - 1");
    for (int r = 0; r < 2; r++)
        if (!(p[r] = fork())) _exit(refused(2 * r, 2 + r, "w", 20, "was started for"));
    for (int r = 0; r < 2; r++)
        cr_expect_eq(status_of(p[r]), 0);
    cr_expect_lt(duet_time() - began, 15, "init has waited for its timeout");
    refused(0, 1, "no good", 1, "worker name 'no good'");
}
