/* References: objects that live as long as anybody has one, values, the three proxies. */
#include "tests/rpc/workers.h"

struct counter {
    int64_t value;
};
static int alive; /* counters in this process */

static void destroy(void *object) {
    __atomic_fetch_sub(&alive, 1, __ATOMIC_SEQ_CST);
    free(object);
}

static int counter_new(duet_rpc_call *call, void *context) {
    (void)context;
    struct counter *c = malloc(sizeof *c);
    c->value = duet_rpc_arg_int(call, 0);
    __atomic_fetch_add(&alive, 1, __ATOMIC_SEQ_CST);
    if (c->value < 0) {
        destroy(c);
        return fail(ERR_USAGE, "a counter begins at 0 or above");
    }
    if (c->value > 1000) usleep(100000);
    return duet_rpc_return_object(call, c, destroy);
}

static int counter_add(duet_rpc_call *call, void *context) {
    (void)context;
    struct counter *c = duet_rpc_self(call);
    return duet_rpc_return(call, duet_rpc_int(c->value += duet_rpc_arg_int(call, 0)));
}

/* Uses a reference that it was given. */
static int use(duet_rpc_call *call, void *context) {
    (void)context;
    struct duet_rpc_value got;
    duet_rref *r = duet_rpc_arg_rref(call, 0);
    int code = duet_rref_sync(r, "add", DUET_ARGS(duet_rpc_int(10)), 0, &got);
    return code ? code : duet_rpc_return(call, got);
}

/* Keeps it beyond the call and gives it back, or releases it. */
static duet_rref *kept;
static int keep(duet_rpc_call *call, void *context) {
    (void)context;
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

static int square(duet_rpc_call *call, void *context) {
    (void)context;
    double x = duet_rpc_arg_number(call, 0);
    return duet_rpc_return(call, duet_rpc_number(x * x));
}

static int count_alive(duet_rpc_call *call, void *context) {
    (void)context;
    return duet_rpc_return(call, duet_rpc_int(__atomic_load_n(&alive, __ATOMIC_SEQ_CST)));
}

static const struct duet_rpc_function functions[] = {{"Counter", counter_new, NULL, NULL},
                                                     {"Counter.add", counter_add, NULL, NULL},
                                                     {"use", use, NULL, NULL},
                                                     {"keep", keep, NULL, NULL},
                                                     {"square", square, NULL, NULL},
                                                     {"alive", count_alive, NULL, NULL}};

/* Worker w1 has `wanted` counters, at the latest after a few messages. An object ends on its
 * device, which a function that waited for that would keep. */
static void lives(struct worker *w, int wanted) {
    struct duet_rpc_value got = {.integer = -1};
    for (int i = 0; i < 300 && got.integer != wanted; i++) {
        if (i) usleep(10000);
        GOOD(duet_rpc_sync(w->rpc, "w1", "alive", DUET_NO_ARGS, 0, &got));
    }
    MUST(got.integer == wanted, "%lld counters, not %d", (long long)got.integer, wanted);
}

static void proxies(duet_rref *c) {
    struct duet_rpc_value got;
    duet_future *f;
    duet_rref *other;
    GOOD(duet_rref_sync(c, "add", DUET_ARGS(duet_rpc_int(1)), 0, &got));
    MUST(got.integer == 6);
    GOOD(duet_rref_async(&f, c, "add", DUET_ARGS(duet_rpc_int(1)), 0));
    GOOD(duet_future_wait(f, &got));
    duet_future_free(f);
    MUST(got.integer == 7);
    GOOD(duet_rref_remote(&other, c, "add", DUET_ARGS(duet_rpc_int(1)), 0));
    GOOD(duet_rref_to_here(other, 0, &got));
    MUST(got.integer == 8);
    duet_rref_free(other);
}

static void objects(struct worker *w) {
    struct duet_rpc_value got;
    struct duet_rpc_info info;
    duet_rref *c;
    void *object;
    if (w->rank) return;
    GOOD(duet_remote(&c, w->rpc, "w1", "Counter", DUET_ARGS(duet_rpc_int(5)), 0));
    MUST(duet_rref_owner(c) == 1);
    GOOD(duet_rref_wait(c, 0));
    MUST(duet_rref_confirmed(c));
    proxies(c);
    /* Passed on: to another worker, to the owner, to itself; and back. */
    for (int to = 0; to < 3; to++) {
        GOOD(duet_rpc_sync(w->rpc, duet_rpc_name(w->rpc, to), "use", DUET_ARGS(duet_rpc_rref(c)), 0,
                           &got));
        MUST(got.integer == 18 + 10 * to);
    }
    FAILS(DUET_USAGE, duet_rref_to_here(c, 0, &got), "object of 'Counter'");
    FAILS(DUET_USAGE, duet_rref_local_object(c, &object), "the owner is 'w1'");
    FAILS(DUET_USAGE, duet_rref_sync(c, "sub", DUET_NO_ARGS, 0, &got), "Counter.sub");
    FAILS(DUET_USAGE, duet_rpc_sync(w->rpc, "w1", "Counter", DUET_ARGS(duet_rpc_int(1)), 0, &got),
          "call it by duet_remote");
    GOOD(duet_rpc_sync(w->rpc, "w2", "keep", DUET_ARGS(duet_rpc_rref(c)), 0, &got));
    MUST(got.type == DUET_RPC_RREF && duet_rref_owner(got.rref) == 1);
    duet_rref_free(c);
    lives(w, 1);
    duet_rpc_value_free(&got); /* now w2 alone has it */
    lives(w, 1);
    GOOD(duet_rpc_sync(w->rpc, "w2", "keep", DUET_ARGS(duet_rpc_none()), 0, NULL));
    lives(w, 0);
    duet_rpc_info(w->rpc, &info);
    MUST(info.owned == 0);
}

Test(rref, an_object_lives_as_long_as_anybody_has_it, .timeout = 60) {
    WORKERS(3, objects, functions);
}

static void wrong(struct worker *w) {
    struct duet_rpc_value got;
    duet_rref *bad, *slow;
    GOOD(duet_remote(&bad, w->rpc, "w1", "Counter", DUET_ARGS(duet_rpc_int(-1)), 0));
    FAILS(DUET_USAGE, duet_rref_sync(bad, "add", DUET_ARGS(duet_rpc_int(1)), 0, &got),
          "a counter begins at 0");
    duet_rref_free(bad);
    GOOD(duet_remote(&bad, w->rpc, "w1", "nothing", DUET_NO_ARGS, 0));
    FAILS(DUET_USAGE, duet_rref_to_here(bad, 0, &got), "no function of this name");
    duet_rref_free(bad);
    GOOD(duet_remote(&slow, w->rpc, "w1", "Counter", DUET_ARGS(duet_rpc_int(2000)), 0));
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
    GOOD(duet_remote(&r, w->rpc, "w1", "square", DUET_ARGS(duet_rpc_number(3)), 0));
    GOOD(duet_rref_to_here(r, 0, &got));
    MUST(got.number == 9);
    duet_rref_free(r);
    wrong(w);
    duet_tensor *t = tensor_of(w, 2, x);
    GOOD(duet_rref_create(&r, w->rpc, duet_rpc_tensor(t)));
    duet_tensor_free(t);
    GOOD(duet_rref_local_value(r, &here));
    GOOD(duet_tensor_read(here->tensor, back));
    MUST(back[1] == 4 && duet_rref_owner(r) == 0 && duet_rref_confirmed(r));
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
    lives(w, 0);
}

Test(rref, values_and_what_goes_wrong, .timeout = 60) {
    WORKERS(2, values, functions);
}
