/* What holds on to what: a method to its object, a message that is not sent to its references, the
 * pool to its limit, a worker to the function that runs in it, and what is kept to its worker. */
#include <math.h>

#include "tests/rpc/workers.h"

enum { SLOW_US = 300000 };
static int alive; /* objects in this process */

static void destroy(void *object) {
    *(int *)object = -1;
    __atomic_fetch_sub(&alive, 1, __ATOMIC_SEQ_CST);
    free(object);
}

static int *object_new(void) {
    int *object = malloc(sizeof *object);
    *object = 7;
    __atomic_fetch_add(&alive, 1, __ATOMIC_SEQ_CST);
    return object;
}

static int thing(duet_rpc_call *call, void *context) {
    (void)context;
    return duet_rpc_return_object(call, object_new(), destroy);
}

static int seen_alive, seen_value; /* by the slow method, at its end */

static int thing_slow(duet_rpc_call *call, void *context) {
    (void)context;
    const int *object = duet_rpc_self(call);
    usleep(SLOW_US);
    __atomic_store_n(&seen_alive, __atomic_load_n(&alive, __ATOMIC_SEQ_CST), __ATOMIC_SEQ_CST);
    if (seen_alive) __atomic_store_n(&seen_value, *object, __ATOMIC_SEQ_CST);
    return DUET_OK;
}

static int seen(duet_rpc_call *call, void *context) {
    (void)context;
    return duet_rpc_return(call, duet_rpc_int(__atomic_load_n(&seen_value, __ATOMIC_SEQ_CST)));
}

static int count_alive(duet_rpc_call *call, void *context) {
    (void)context;
    return duet_rpc_return(call, duet_rpc_int(__atomic_load_n(&alive, __ATOMIC_SEQ_CST)));
}

static int gives(duet_rpc_call *call, void *context) {
    (void)context;
    duet_rref *r;
    GOOD(duet_rref_create_object(&r, duet_rpc_of_call(call), "Thing", object_new(), destroy));
    int code = duet_rpc_return(call, duet_rpc_rref(r));
    duet_rref_free(r);
    return code;
}

/* Returns a reference, and then fails. */
static int gives_and_fails(duet_rpc_call *call, void *context) {
    int code = gives(call, context);
    return code ? code : fail(DUET_FAILED, "after its result");
}

static int now_run, most_run;

static int one_of_few(duet_rpc_call *call, void *context) {
    (void)context;
    int n = __atomic_add_fetch(&now_run, 1, __ATOMIC_SEQ_CST);
    if (n > __atomic_load_n(&most_run, __ATOMIC_SEQ_CST))
        __atomic_store_n(&most_run, n, __ATOMIC_SEQ_CST);
    usleep(50000);
    __atomic_sub_fetch(&now_run, 1, __ATOMIC_SEQ_CST);
    return duet_rpc_return(call, duet_rpc_int(__atomic_load_n(&most_run, __ATOMIC_SEQ_CST)));
}

static int ends_worker(duet_rpc_call *call, void *context) {
    (void)context;
    duet_rpc *rpc = duet_rpc_of_call(call);
    int code = duet_rpc_shutdown(&rpc, 1, 0);
    MUST(rpc == duet_rpc_of_call(call));
    return code;
}

/* Without a device: nothing but the reference keeps the object of a method. */
static const struct duet_rpc_function functions[] = {
    {"Thing", thing, NULL, NULL},
    {"Thing.slow", thing_slow, NULL, NULL},
    {"seen", seen, NULL, NULL},
    {"alive", count_alive, NULL, NULL},
    {"gives", gives, NULL, NULL},
    {"gives_and_fails", gives_and_fails, NULL, NULL},
    {"one_of_few", one_of_few, NULL, NULL},
    {"ends_worker", ends_worker, NULL, NULL}};
static void run(int n, void (*each)(struct worker *w)) {
    worker_bare = 1;
    worker_threads = 2;
    WORKERS(n, each, functions);
}

static int64_t ask(struct worker *w, const char *to, const char *function) {
    struct duet_rpc_value got;
    GOOD(duet_rpc_sync(w->rpc, to, function, DUET_NO_ARGS, 0, &got));
    return got.integer;
}

/* At the latest after a few messages. */
static void none_lives(struct worker *w, const char *at) {
    for (int i = 0; i < 1000 && ask(w, at, "alive"); i++)
        usleep(10000);
    MUST(ask(w, at, "alive") == 0);
}

/* Its caller gives up, and releases the last reference. */
static void gives_up(struct worker *w) {
    duet_rref *r;
    if (w->rank) return;
    GOOD(duet_remote(&r, w->rpc, "w1", "Thing", DUET_NO_ARGS, 0));
    GOOD(duet_rref_wait(r, 0));
    FAILS(DUET_TIMEOUT, duet_rref_sync(r, "slow", DUET_NO_ARGS, 0.05, NULL), "Thing.slow");
    duet_rref_free(r);
    for (int i = 0; i < 1000 && !ask(w, "w1", "seen"); i++)
        usleep(10000);
    MUST(ask(w, "w1", "seen") == 7);
    none_lives(w, "w1");
}

Test(holds, an_object_stays_until_its_method_has_ended, .timeout = 60) {
    run(2, gives_up);
}

/* Of an object here and of one elsewhere, in calls and in a result. */
static void not_sent(struct worker *w) {
    duet_rref *own, *other;
    if (w->rank) return;
    const struct duet_rpc_value bad = duet_rpc_text(NULL);
    GOOD(duet_rref_create_object(&own, w->rpc, "Thing", object_new(), destroy));
    GOOD(duet_remote(&other, w->rpc, "w1", "Thing", DUET_NO_ARGS, 0));
    for (int to = 0; to < 3; to++) {
        const char *name = duet_rpc_name(w->rpc, to);
        const struct duet_rpc_value args[] = {duet_rpc_rref(own), duet_rpc_rref(other), bad};
        FAILS(DUET_USAGE, duet_rpc_sync(w->rpc, name, "seen", args, 3, 0, NULL), "a text is NULL");
        FAILS(DUET_USAGE, duet_rpc_sync(w->rpc, name, "none", args, 2, 0, NULL), "no function");
    }
    FAILS(DUET_FAILED, duet_rpc_sync(w->rpc, "w1", "gives_and_fails", DUET_NO_ARGS, 0, NULL),
          "after its result");
    duet_rref_free(own);
    duet_rref_free(other);
    none_lives(w, "w0");
    none_lives(w, "w1");
}

Test(holds, references_in_what_is_not_sent_or_not_taken_end, .timeout = 60) {
    run(3, not_sent);
}

/* The main thread of w1, which waits for the end, is none of its pool. */
static void no_more_than_two(struct worker *w) {
    duet_future *f[8];
    struct duet_rpc_value got;
    for (int i = 0; i < 8 && !w->rank; i++)
        GOOD(duet_rpc_async(&f[i], w->rpc, "w1", "one_of_few", DUET_NO_ARGS, 0));
    for (int i = 0; i < 8 && !w->rank; i++) {
        GOOD(duet_future_wait(f[i], &got));
        MUST(got.integer <= 2, "%d at once", (int)got.integer);
        duet_future_free(f[i]);
    }
}

Test(holds, no_more_threads_run_calls_than_were_given, .timeout = 60) {
    worker_timeout = INFINITY; /* of all waits: none ends early */
    run(2, no_more_than_two);
}

static void end_from_inside(struct worker *w) {
    if (!w->rank)
        FAILS(DUET_USAGE, duet_rpc_sync(w->rpc, "w1", "ends_worker", DUET_NO_ARGS, 20, NULL),
              "worker 'w1': ends_worker: rpc: shutdown: a function cannot end the worker");
}

Test(holds, a_function_cannot_end_its_worker, .timeout = 60) {
    run(2, end_from_inside);
}

static duet_future *kept_future;
static duet_rref *kept_rref;

static void keep_some(struct worker *w) {
    GOOD(duet_rpc_async(&kept_future, w->rpc, "w1", "gives", DUET_NO_ARGS, 0));
    GOOD(duet_remote(&kept_rref, w->rpc, "w0", "Thing", DUET_NO_ARGS, 0));
}

static void follow(void *context, int code) {
    (void)context, (void)code;
}

static void use_them(void) {
    const struct duet_rpc_value *value;
    struct duet_rpc_value got;
    FAILS(DUET_FAILED, duet_future_wait(kept_future, &got), "has been shut down");
    FAILS(DUET_FAILED, duet_future_then(kept_future, follow, NULL), "has been shut down");
    FAILS(DUET_FAILED, duet_rref_sync(kept_rref, "slow", DUET_NO_ARGS, 0, NULL),
          "Thing.slow: the worker has been shut down");
    MUST(duet_rref_local_value(kept_rref, &value) != DUET_OK);
    duet_future_free(kept_future);
    duet_rref_free(kept_rref);
}

Test(holds, what_is_kept_beyond_the_end_says_so, .timeout = 60) {
    worker_behind = use_them;
    run(2, keep_some);
}
