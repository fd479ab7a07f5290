/* Tests what PyTorch's own tests of torch.distributed.rpc require and no other file here tests
 * (docs/rpc_tests.md): futures, and workers that begin again or are also ranks of a process
 * group. */
#include "rpc/agent.h"
#include "tests/rpc/functions.h"

static const char *next_of(duet_rpc *rpc) {
    return duet_rpc_name(rpc, (duet_rpc_rank(rpc, NULL) + 1) % rpc->world);
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
    FAILS(DUET_TIMEOUT,
          duet_rpc_sync(w->rpc, "w1", "nap", DUET_ARGS(duet_rpc_number(0.6)), 0, NULL),
          "no answer within 0.2 s");
    GOOD(duet_rpc_sync(w->rpc, "w1", "nap", DUET_ARGS(duet_rpc_number(0.3)), -1, NULL));
}

Test(suite, futures_are_waited_for_twice_and_late, .timeout = 30) {
    COMMON_WORKERS(2, futures);
}

/* ---- workers that begin again; process groups next to them ---- */

static int sum_is(struct worker *w, duet_group *group) {
    float one = 1;
    duet_tensor *t = tensor_of(w, 1, &one);
    GOOD(duet_all_reduce(group, t, DUET_SUM, NULL));
    GOOD(duet_tensor_read(t, &one));
    duet_tensor_free(t);
    return (int)one;
}

static int again(int rank, void *context) {
    (void)context;
    struct worker w = {.rank = rank};
    struct duet_rpc_value got;
    duet_group *group = NULL;
    char name[16];
    snprintf(name, sizeof name, "w%d", rank);
    GOOD(duet_device_open(&w.device, "cpu", rank, 1 << 24));
    const struct duet_rpc_options options = {
        .functions = common, .function_count = COMMON, .device = w.device};
    for (int life = 0; life < 5; life++) {
        GOOD(duet_rpc_init(&w.rpc, name, -1, 0, &options));
        if (life == 2) GOOD(duet_group_init(&group, 0)); /* after one, and before others */
        GOOD(duet_rpc_sync(w.rpc, next_of(w.rpc), "add",
                           DUET_ARGS(duet_rpc_int(life), duet_rpc_int(rank)), 0, &got));
        MUST(got.integer == life + rank);
        duet_rpc_give_device(w.rpc, w.device); /* a group's calls do not, and others call here */
        if (group) MUST(sum_is(&w, group) == 3);
        GOOD(duet_rpc_take_device(w.rpc, w.device));
        GOOD(duet_rpc_shutdown(&w.rpc, 1, 20));
        MUST(!w.rpc);
        FAILS(DUET_USAGE, duet_rpc_sync(w.rpc, "w0", "add", DUET_NO_ARGS, 0, &got),
              "no worker was given");
    }
    duet_group_destroy(&group);
    duet_devices_close(&w.device, 1);
    return DUET_OK;
}

Test(suite, workers_begin_again_and_are_ranks_of_a_group, .timeout = 60) {
    int code = duet_spawn(3, again, NULL);
    cr_assert_eq(code, DUET_OK, "%s", duet_error());
}
