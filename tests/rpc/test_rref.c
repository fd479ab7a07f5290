/* Tests references: an object lives as long as a reference to it, values, and the three proxies.
 * Also tests what keeps what: a method its object, an unsent message its references, the pool its
 * limit, a worker the function that runs in it, and references their worker. */
#include "tests/rpc/workers.h"

/* Uses a reference that it received. */
FUNCTION(use) {
    struct duet_rpc_value got;
    duet_rref *r = duet_rpc_arg_rref(call, 0);
    int code = duet_rref_sync(r, "add", DUET_ARGS(duet_rpc_int(10)), 0, &got);
    return code ? code : duet_rpc_return(call, got);
}

/* Keeps it after the call and returns it, or releases it. */
static duet_rref *kept;
FUNCTION(keep) {
    struct duet_rpc_value *v = (struct duet_rpc_value *)duet_rpc_arg(call, 0);
    if (v->type == DUET_RPC_RREF) {
        kept = v->rref;
        v->type = DUET_RPC_NONE; /* the call would free it */
        return duet_rpc_return(call, duet_rpc_rref(kept));
    }
    duet_rref_free(kept);
    kept = NULL;
    return DUET_OK;
}

static int64_t seen_value; /* what the slow method sees at its end; -1: the thing was gone */
FUNCTION(thing_slow) {
    const int64_t *thing = duet_rpc_self(call);
    usleep(300000);
    int there = __atomic_load_n(&alive, __ATOMIC_SEQ_CST);
    __atomic_store_n(&seen_value, there ? *thing : -1, __ATOMIC_SEQ_CST);
    return DUET_OK;
}
FUNCTION(seen) {
    return duet_rpc_return(call, duet_rpc_int(__atomic_load_n(&seen_value, __ATOMIC_SEQ_CST)));
}

/* Returns a reference; with an argument it fails then. */
FUNCTION(gives) {
    duet_rref *r;
    GOOD(duet_rref_create_object(&r, duet_rpc_of_call(call), "Thing", thing_of(7), thing_goes));
    int code = duet_rpc_return(call, duet_rpc_rref(r));
    duet_rref_free(r);
    return duet_rpc_arg_count(call) ? fail(DUET_FAILED, "after its result") : code;
}

static int now_run, most_run;
FUNCTION(one_of_few) {
    int n = __atomic_add_fetch(&now_run, 1, __ATOMIC_SEQ_CST);
    if (n > __atomic_load_n(&most_run, __ATOMIC_SEQ_CST))
        __atomic_store_n(&most_run, n, __ATOMIC_SEQ_CST);
    usleep(50000);
    __atomic_sub_fetch(&now_run, 1, __ATOMIC_SEQ_CST);
    return duet_rpc_return(call, duet_rpc_int(__atomic_load_n(&most_run, __ATOMIC_SEQ_CST)));
}

FUNCTION(ends_worker) {
    duet_rpc *rpc = duet_rpc_of_call(call);
    int code = duet_rpc_shutdown(&rpc, 1, 0);
    MUST(rpc == duet_rpc_of_call(call));
    return code;
}

static const struct duet_rpc_function functions[] = {
    F(use),        F(keep),       NAMED("Thing.slow", thing_slow), F(seen), F(gives),
    F(one_of_few), F(ends_worker)};

/* ---- objects ---- */

static void proxies(duet_rref *c) {
    struct duet_rpc_value got;
    duet_future *f;
    GOOD(duet_rref_sync(c, "add", DUET_ARGS(duet_rpc_int(1)), 0, &got));
    MUST(got.integer == 6);
    GOOD(duet_rref_async(&f, c, "add", DUET_ARGS(duet_rpc_int(2)), 0));
    GOOD(duet_future_wait(f, &got));
    duet_future_free(f);
    MUST(got.integer == 8);
}

static void objects(struct worker *w) {
    struct duet_rpc_value got;
    duet_rref *c;
    if (w->rank) return;
    GOOD(duet_remote(&c, w->rpc, "w1", "Thing", DUET_ARGS(duet_rpc_int(5)), 0));
    MUST(duet_rref_owner(c) == 1);
    GOOD(duet_rref_wait(c, 0));
    proxies(c);
    /* Passed on: to another worker, to the owner, to itself; and back. */
    for (int to = 0; to < 3; to++) {
        GOOD(SYNC(duet_rpc_name(w->rpc, to), "use", DUET_ARGS(duet_rpc_rref(c))));
        MUST(got.integer == 18 + 10 * to);
    }
    FAILS(DUET_USAGE, duet_rref_to_here(c, 0, &got), "object of 'Thing'");
    FAILS(DUET_USAGE, duet_rref_sync(c, "sub", DUET_NO_ARGS, 0, &got),
          "no function of this name: Thing.sub");
    FAILS(DUET_USAGE, SYNC("w1", "Thing", DUET_ARGS(duet_rpc_int(1))),
          "rpc: worker 'w1': Thing: it returns an object: call it with duet_remote");
    /* Two in a list, which a worker that is not the owner sends back. */
    struct duet_rpc_value both[] = {duet_rpc_rref(c), duet_rpc_rref(c)}, inner;
    GOOD(SYNC("w2", "echo", DUET_ARGS(duet_rpc_list(both, 2))));
    for (int i = 0; i < 2; i++) {
        GOOD(duet_rref_sync(got.items[0].items[i].rref, "add", DUET_ARGS(duet_rpc_int(i)), 0,
                            &inner));
        MUST(inner.integer == 38 + i);
    }
    duet_rpc_value_free(&got);
    GOOD(SYNC("w2", "keep", DUET_ARGS(duet_rpc_rref(c))));
    MUST(got.type == DUET_RPC_RREF && duet_rref_owner(got.rref) == 1);
    duet_rref_free(c);
    becomes(w, "w1", "alive", 1);
    duet_rpc_value_free(&got); /* now only w2 has it */
    becomes(w, "w1", "alive", 1);
    GOOD(TELL("w2", "keep", DUET_ARGS(duet_rpc_none())));
    becomes(w, "w1", "alive", 0);
    MUST(w->rpc->life.objects == 0);
}

TEST_WORKERS(rref, an_object_lives_as_long_as_anybody_has_it, 3, objects, functions)

static void wrong(struct worker *w) {
    struct duet_rpc_value got;
    duet_rref *bad, *slow;
    GOOD(duet_remote(&bad, w->rpc, "w1", "Thing", DUET_ARGS(duet_rpc_int(-1)), 0));
    FAILS(DUET_USAGE, duet_rref_sync(bad, "add", DUET_ARGS(duet_rpc_int(1)), 0, &got),
          "a thing begins at 0");
    duet_rref_free(bad);
    GOOD(duet_remote(&bad, w->rpc, "w1", "nothing", DUET_NO_ARGS, 0));
    FAILS(DUET_USAGE, duet_rref_to_here(bad, 0, &got), "no function of this name");
    duet_rref_free(bad);
    GOOD(duet_remote(&slow, w->rpc, "w1", "Thing", DUET_ARGS(duet_rpc_int(2000)), 0));
    FAILS(DUET_TIMEOUT, duet_rref_sync(slow, "add", DUET_ARGS(duet_rpc_int(1)), 0.02, &got),
          "no answer within");
    GOOD(duet_rref_sync(slow, "add", DUET_ARGS(duet_rpc_int(1)), 0, &got)); /* it still comes */
    duet_rref_free(slow);
}

static void values(struct worker *w) {
    struct duet_rpc_value got;
    const struct duet_rpc_value *here;
    float x[2] = {3, 4}, back[2];
    duet_rref *r, *p;
    duet_params *params;
    if (w->rank) return;
    GOOD(duet_remote(&r, w->rpc, "w1", "add", DUET_ARGS(duet_rpc_int(4), duet_rpc_int(5)), 0));
    GOOD(duet_rref_to_here(r, 0, &got));
    MUST(got.integer == 9);
    duet_rref_free(r);
    wrong(w);
    duet_tensor *t = tensor_of(w, 2, x);
    GOOD(duet_rref_create(&r, w->rpc, duet_rpc_tensor(t)));
    duet_tensor_free(t);
    GOOD(duet_rref_local_value(r, &here));
    GOOD(duet_tensor_read(here->tensor, back));
    MUST(back[1] == 4 && duet_rref_owner(r) == 0);
    GOOD(duet_rref_to_here(r, 0, &got));
    MUST(got.tensor != here->tensor);
    duet_rpc_value_free(&got);
    duet_rref_free(r);
    GOOD(duet_params_create(&params, w->device,
                            &(struct duet_param){"w", 1, {2}, (float[]){0.5f, 1}}, 1));
    GOOD(duet_rref_create_param(&p, w->rpc, params, 0));
    GOOD(duet_rref_to_here(p, 0, &got));
    GOOD(duet_tensor_read(got.tensor, back));
    MUST(back[0] == 0.5f && back[1] == 1);
    duet_rpc_value_free(&got);
    duet_rref_free(p);
    duet_params_free(params);
    becomes(w, "w1", "alive", 0);
}

TEST_WORKERS(rref, values_and_what_goes_wrong, 2, values, functions)

/* ---- what keeps what: without a device, which would also keep an object ---- */

#define TEST_BARE(name_, n_, each_)     \
    Test(holds, name_, .timeout = 60) { \
        worker_bare = 1;                \
        worker_options.threads = 2;     \
        WORKERS(n_, each_, functions);  \
    }

/* Its caller gives up, and releases the last reference. */
static void gives_up(struct worker *w) {
    duet_rref *r;
    if (w->rank) return;
    GOOD(duet_remote(&r, w->rpc, "w1", "Thing", DUET_NO_ARGS, 0));
    GOOD(duet_rref_wait(r, 0));
    FAILS(DUET_TIMEOUT, duet_rref_sync(r, "slow", DUET_NO_ARGS, 0.05, NULL), "slow: no answer");
    duet_rref_free(r);
    for (int i = 0; i < 1000 && !ask(w, "w1", "seen"); i++)
        usleep(10000);
    MUST(ask(w, "w1", "seen") == 7);
    becomes(w, "w1", "alive", 0);
}

TEST_BARE(an_object_stays_until_its_method_has_ended, 2, gives_up)

/* Of an object here and of one elsewhere, in calls and in a result. */
static void not_sent(struct worker *w) {
    duet_rref *own, *other;
    if (w->rank) return;
    const struct duet_rpc_value bad = duet_rpc_text(NULL), one = duet_rpc_int(1);
    GOOD(duet_rref_create_object(&own, w->rpc, "Thing", thing_of(7), thing_goes));
    GOOD(duet_remote(&other, w->rpc, "w1", "Thing", DUET_NO_ARGS, 0));
    for (int to = 0; to < 3; to++) {
        const char *name = duet_rpc_name(w->rpc, to);
        const struct duet_rpc_value args[] = {duet_rpc_rref(own), duet_rpc_rref(other), bad};
        FAILS(DUET_USAGE, TELL(name, "seen", args, 3), "a string is NULL");
        FAILS(DUET_USAGE, TELL(name, "none", args, 2), "no function");
    }
    FAILS(DUET_FAILED, TELL("w1", "gives", &one, 1), "after its result");
    duet_rref_free(own);
    duet_rref_free(other);
    becomes(w, "w0", "alive", 0);
    becomes(w, "w1", "alive", 0);
}

TEST_BARE(references_in_what_is_not_sent_or_not_taken_end, 3, not_sent)

/* The main thread of w1, which waits for the end, is none of its pool. */
static void no_more_than_two(struct worker *w) {
    duet_future *f[8];
    struct duet_rpc_value got;
    if (w->rank) return;
    for (int i = 0; i < 8; i++)
        GOOD(duet_rpc_async(&f[i], w->rpc, "w1", "one_of_few", DUET_NO_ARGS, 0));
    for (int i = 0; i < 8; i++) {
        GOOD(duet_future_wait(f[i], &got));
        MUST(got.integer <= 2, "%d at once", (int)got.integer);
        duet_future_free(f[i]);
    }
    FAILS(DUET_USAGE, TELL("w1", "ends_worker", DUET_NO_ARGS),
          "worker 'w1': ends_worker: rpc: shutdown: a function cannot end the worker");
}

TEST_BARE(no_more_threads_run_calls_than_were_given, 2, no_more_than_two)

static duet_future *kept_future;
static duet_rref *kept_rref;

static void keep_some(struct worker *w) {
    GOOD(duet_rpc_async(&kept_future, w->rpc, "w1", "gives", DUET_NO_ARGS, 0));
    GOOD(duet_remote(&kept_rref, w->rpc, "w0", "Thing", DUET_NO_ARGS, 0));
}

static void use_them(void) {
    const struct duet_rpc_value *value;
    struct duet_rpc_value got;
    FAILS(DUET_FAILED, duet_future_wait(kept_future, &got), "has been shut down");
    FAILS(DUET_FAILED, duet_rref_sync(kept_rref, "slow", DUET_NO_ARGS, 0, NULL),
          "slow: the worker has been shut down");
    MUST(duet_rref_local_value(kept_rref, &value) != DUET_OK);
    duet_future_free(kept_future);
    duet_rref_free(kept_rref);
}

Test(holds, what_is_kept_beyond_the_end_says_so, .timeout = 60) {
    worker_bare = 1;
    worker_behind = use_them;
    WORKERS(2, keep_some, functions);
}
