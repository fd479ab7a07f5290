/* Tests calls: values in both directions, nested calls to any depth, futures, deadlines, error
 * messages, and workers that begin again. */
#include <math.h>

#include "rpc/wire.h"
#include "tests/rpc/workers.h"

FUNCTION(scale) {
    duet_tensor *t = duet_rpc_arg_tensor(call, 0);
    int code = duet_tensor_scale(t, (float)duet_rpc_arg_number(call, 1));
    return code ? code : duet_rpc_return(call, duet_rpc_tensor(t));
}

/* Calls the next worker, and so on: depth calls at once, two threads a worker. */
FUNCTION(descend) {
    struct duet_rpc_value result = {0};
    duet_rpc *rpc = duet_rpc_of_call(call);
    int64_t depth = duet_rpc_arg_int(call, 0);
    if (depth == 0) return duet_rpc_return(call, duet_rpc_int(0));
    const char *next = duet_rpc_name(rpc, (duet_rpc_rank(rpc, NULL) + 1) % 2);
    int code = duet_rpc_sync(rpc, next, "descend", DUET_ARGS(duet_rpc_int(depth - 1)), 0, &result);
    return code ? code : duet_rpc_return(call, duet_rpc_int(result.integer + 1));
}

FUNCTION(refuse) {
    int64_t code = duet_rpc_arg_int(call, 0); /* 1 comes without a message */
    return code <= DUET_FAILED ? (int)code : fail((int)code, "the cat sat on it");
}

FUNCTION(twice) {
    duet_rpc_return(call, duet_rpc_int(1));
    return duet_rpc_return(call, duet_rpc_int(2));
}

static const struct duet_rpc_function functions[] = {F(scale), F(descend), F(refuse), F(twice)};

static void values(struct worker *w) {
    float x[3] = {1, 2, 3}, back[3];
    int32_t k[2] = {7, -7};
    struct duet_rpc_value got = {0};
    if (w->rank) return;
    duet_tensor *t = tensor_of(w, 3, x), *n;
    GOOD(duet_tensor_create(&n, w->device, DUET_I32, 1, (int[]){2}, k));
    for (int to = 0; to < 2; to++) { /* to itself and to another */
        const char *name = duet_rpc_name(w->rpc, to);
        struct duet_rpc_value inner[] = {duet_rpc_number(0.5), duet_rpc_none()};
        GOOD(SYNC(name, "echo",
                  DUET_ARGS(duet_rpc_int(-5), duet_rpc_text("a text"), duet_rpc_bytes("\0x", 2),
                            duet_rpc_tensor(t), duet_rpc_list(inner, 2), duet_rpc_tensor(n),
                            duet_rpc_text(""))));
        MUST(got.type == DUET_RPC_LIST && got.count == 7);
        MUST(got.items[0].type == DUET_RPC_INT && got.items[0].integer == -5);
        MUST(!strcmp(got.items[1].text, "a text") && !strcmp(got.items[6].text, ""));
        MUST(got.items[2].bytes == 2 && !memcmp(got.items[2].data, "\0x", 2));
        GOOD(duet_tensor_read(got.items[3].tensor, back));
        MUST(back[0] == 1 && back[2] == 3 && duet_tensor_dim(got.items[3].tensor, 0) == 3);
        MUST(got.items[4].count == 2 && got.items[4].items[0].number == 0.5);
        MUST(duet_tensor_type(got.items[5].tensor) == DUET_I32);
        duet_rpc_value_free(&got);
        /* A change at the other worker does not reach this tensor. */
        GOOD(SYNC(name, "scale", DUET_ARGS(duet_rpc_tensor(t), duet_rpc_int(2))));
        GOOD(duet_tensor_read(t, back));
        MUST(back[2] == 3);
        GOOD(duet_tensor_read(got.tensor, back));
        MUST(back[2] == 6);
        duet_rpc_value_free(&got);
    }
    duet_tensor_free(t), duet_tensor_free(n);
}

TEST_WORKERS(calls, carry_values, 2, values, functions)

static void nested(struct worker *w) {
    struct duet_rpc_value got = {0};
    if (w->rank) return;
    GOOD(SYNC("w1", "descend", DUET_ARGS(duet_rpc_int(60))));
    MUST(got.integer == 60);
}

Test(calls, go_back_and_forth_to_any_depth, .timeout = 30) {
    worker_options.threads = 2;
    worker_options.timeout_s = INFINITY; /* for all waits, so none ends early */
    WORKERS(2, nested, functions);
}

static void many(struct worker *w) {
    enum { CALLS = 200 };
    duet_future *f[CALLS];
    if (w->rank == 2) return;
    for (int i = 0; i < CALLS; i++) {
        GOOD(duet_rpc_async(&f[i], w->rpc, "w2", "add", DUET_ARGS(duet_rpc_int(i), duet_rpc_int(1)),
                            0));
    }
    GOOD(duet_future_wait_all(f, CALLS));
    for (int i = 0; i < CALLS; i++) {
        struct duet_rpc_value got;
        GOOD(duet_future_wait(f[i], &got));
        MUST(got.integer == i + 1);
        duet_future_free(f[i]);
    }
}

TEST_WORKERS(calls, many_are_under_way_at_once, 3, many, functions)

/* Lists nest as deep as they are read, and no deeper; a list that holds itself ends at once. */
static void lists(struct worker *w) {
    struct duet_rpc_value got, loop[3], deep[17] = {duet_rpc_int(7)};
    duet_rpc *r = w->rpc;
    duet_rref *own;
    if (w->rank) return;
    loop[0] = duet_rpc_int(1), loop[1] = loop[2] = duet_rpc_list(loop, 3);
    FAILS(DUET_USAGE, SYNC("w1", "echo", loop, 3), "more than 16 deep");
    FAILS(DUET_USAGE, duet_rref_create(&own, r, loop[1]), "more than 16 deep");
    for (int i = 1; i < 17; i++)
        deep[i] = duet_rpc_list(&deep[i - 1], 1);
    GOOD(duet_rref_create(&own, r, deep[16]));
    duet_rref_free(own);
    GOOD(SYNC("w1", "echo", &deep[15], 1)); /* it comes back in a list */
    duet_rpc_value_free(&got);
    FAILS(DUET_USAGE, SYNC("w1", "echo", &deep[16], 1),
          "rpc: worker 'w1': echo: rpc: lists nested more than 16 deep");
}

TEST_WORKERS(calls, carry_lists_in_lists, 2, lists, functions)

static void wrong(struct worker *w) {
    struct duet_rpc_value got;
    if (w->rank) return;
    FAILS(DUET_USAGE, SYNC("w7", "add", DUET_NO_ARGS), "worker 'w7'");
    FAILS(DUET_USAGE, SYNC("w1", "nothing", DUET_NO_ARGS),
          "rpc: worker 'w1': nothing: worker 'w1' has no function of this name");
    FAILS(DUET_USAGE, SYNC("w1", "add", DUET_ARGS(duet_rpc_int(1))),
          "rpc: worker 'w1': add: argument 1 is missing: the call has 1");
    FAILS(DUET_USAGE, SYNC("w1", "add", DUET_ARGS(duet_rpc_int(1), duet_rpc_text("2"))),
          "argument 1 is a string: it must be an integer");
    for (int i = 0; i < 12; i++) /* the threads there have the text of an earlier call */
        if (i % 3 == 2)
            FAILS(DUET_FAILED, SYNC("w1", "refuse", DUET_ARGS(duet_rpc_int(DUET_FAILED))),
                  "rpc: worker 'w1': refuse: it returned 1 without an error message");
        else
            FAILS(DUET_MEMORY, SYNC("w1", "refuse", DUET_ARGS(duet_rpc_int(4))),
                  "rpc: worker 'w1': refuse: the cat sat on it");
    FAILS(DUET_FAILED, SYNC("w1", "refuse", DUET_ARGS(duet_rpc_int(-3))), "it returned -3");
    FAILS(DUET_USAGE, SYNC("w1", "twice", DUET_NO_ARGS), "returns twice");
    FAILS(DUET_USAGE, SYNC("w1", "add", DUET_ARGS(duet_rpc_tensor(NULL))), "a tensor is NULL");
}

Test(calls, say_what_is_wrong, .timeout = 30) {
    worker_options.threads = 1;
    WORKERS(2, wrong, functions);
}

/* ---- futures ---- */

static void futures(struct worker *w) {
    struct duet_rpc_value got;
    duet_future *f[3];
    static const char *const name[] = {"add", "nothing", "add"};
    if (w->rank) return;
    for (int i = 0; i < 3; i++)
        GOOD(duet_rpc_async(&f[i], w->rpc, "w1", name[i],
                            DUET_ARGS(duet_rpc_int(i), duet_rpc_int(1)), 0));
    FAILS(DUET_USAGE, duet_future_wait_all(f, 3), "rpc: worker 'w1': nothing: ");
    MUST(f[2]->done); /* later ones were already waited for */
    GOOD(duet_future_wait(f[2], &got));
    MUST(got.integer == 3);
    GOOD(duet_future_wait(f[2], &got)); /* twice: it has been taken */
    MUST(got.type == DUET_RPC_NONE);
    for (int twice = 0; twice < 2; twice++)
        FAILS(DUET_USAGE, duet_future_wait(f[1], &got), "no function of this name");
    FAILS(DUET_USAGE, duet_future_wait_all((duet_future *[]){f[0], NULL}, 2), "future 1 is NULL");
    GOOD(duet_future_wait(f[0], &got));
    for (int i = 0; i < 3; i++)
        duet_future_free(f[i]);
    w->rpc->timeout_ns = 200 * 1000 * 1000; /* from the options: 0 means this one */
    double began = duet_time();
    FAILS(DUET_TIMEOUT, TELL("w1", "nap", DUET_ARGS(duet_rpc_number(0.6))),
          "rpc: worker 'w1': nap: no answer within 0.2 s");
    MUST(duet_time() - began > 0.19);
    GOOD(duet_rpc_sync(w->rpc, "w1", "nap", DUET_ARGS(duet_rpc_number(0.3)), -1, NULL));
}

Test(calls, futures_are_waited_for_twice_and_late, .timeout = 30) {
    COMMON_WORKERS(2, futures);
}

/* ---- workers that begin again, and are ranks of a process group, too ---- */

static void again(struct worker *w) {
    struct duet_rpc_value got;
    duet_group *group = NULL;
    float sum = 1;
    GOOD(duet_device_open(&w->device, "cpu", w->rank, 1 << 24));
    duet_tensor *t = tensor_of(w, 1, &sum);
    for (int life = 0; life < 5; life++) {
        if (life) GOOD(init_worker(w, 0));
        if (life == 2) GOOD(duet_group_init(&group, 0)); /* after one, and before others */
        GOOD(SYNC(duet_rpc_name(w->rpc, (w->rank + 1) % 3), "add",
                  DUET_ARGS(duet_rpc_int(life), duet_rpc_int(w->rank))));
        MUST(got.integer == life + w->rank);
        duet_rpc_give_device(w->rpc, w->device); /* a group's calls do not, and others call here */
        if (group) GOOD(duet_all_reduce(group, t, DUET_SUM, NULL));
        GOOD(duet_rpc_take_device(w->rpc, w->device));
        GOOD(duet_rpc_shutdown(&w->rpc, 1, 20));
        FAILS(DUET_USAGE, SYNC("w0", "add", DUET_NO_ARGS), "no worker was given");
    }
    GOOD(duet_tensor_read(t, &sum));
    MUST(sum == 27); /* 3 workers, 3 lives with a group */
    duet_tensor_free(t);
    duet_group_destroy(&group);
}

Test(calls, workers_begin_again_and_are_ranks_of_a_group, .timeout = 60) {
    worker_bare = worker_abrupt = 1; /* it opens its own device */
    COMMON_WORKERS(3, again);
}

/* ---- long messages ---- */

/* Many large parts are not copied for each of them. */
Test(wire, grows_by_half, .timeout = 30) {
    enum { PARTS = 64, BYTES = (1 << 20) + 1 };
    struct wire_out w = {0};
    int moves = 0;
    for (int i = 0; i < PARTS; i++) {
        const uint8_t *before = w.data;
        cr_assert(wire_put_room(&w, BYTES));
        moves += w.data != before;
    }
    cr_expect(moves < 16, "%d moves", moves);
    free(w.data);
}
