/* Large tensors in memory that two workers share: all ways they go, and workers that cannot share
 * or are killed. test_regions.c looks at that memory alone, test_kills.c kills at any moment. */
#include <signal.h>
#include <sys/resource.h>

#include "rpc/region.h"
#include "tests/rpc/shared_memory.h"
#include "tests/rpc/workers.h"

enum { FLOATS = 300001, IN_FLIGHT = MOST_REGIONS + 8, BYTES = 1 << 20 };

static int echo(duet_rpc_call *call, void *context) {
    (void)context;
    return duet_rpc_return(call, duet_rpc_list(duet_rpc_arg(call, 0), duet_rpc_arg_count(call)));
}

static int relay(duet_rpc_call *call, void *context) {
    (void)context;
    struct duet_rpc_value got = {0};
    int code = duet_rpc_sync(duet_rpc_of_call(call), "w0", "echo",
                             DUET_ARGS(*duet_rpc_arg(call, 0)), 0, &got);
    if (!code) code = duet_rpc_return(call, got.items[0]);
    duet_rpc_value_free(&got);
    return code;
}

static int twice(duet_rpc_call *call, void *context) {
    (void)context;
    duet_tape *t;
    int code = duet_autograd_call_pass(&t, call, NULL, 1);
    if (code) return code;
    duet_var *x = duet_autograd_arg(t, call, 0);
    return duet_rpc_return(call, duet_rpc_var(duet_multiply_number(t, x, 2)));
}

static int shared(duet_rpc_call *call, void *context) {
    (void)context;
    return duet_rpc_return(call, duet_rpc_int(regions_here() * 1000 + mappings_here()));
}

/* So many more descriptors may be opened: 0, or any. */
static int limit(duet_rpc_call *call, void *context) {
    (void)context;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = duet_rpc_arg_int(call, 0) ? files.rlim_max : 3;
    return setrlimit(RLIMIT_NOFILE, &files) ? DUET_FAILED : DUET_OK;
}

static int die(duet_rpc_call *call, void *context) {
    (void)call, (void)context;
    raise(SIGKILL);
    return DUET_OK;
}

static const struct duet_rpc_function functions[] = {
    {"echo", echo, NULL, NULL},     {"relay", relay, NULL, NULL}, {"twice", twice, NULL, NULL},
    {"shared", shared, NULL, NULL}, {"limit", limit, NULL, NULL}, {"die", die, NULL, NULL}};

static float there[FLOATS], back[FLOATS];

static duet_tensor *large(struct worker *w, int seed) {
    for (int i = 0; i < FLOATS; i++)
        there[i] = (float)(i % 1000 + seed);
    return tensor_of(w, FLOATS, there);
}

static void is_large(const duet_tensor *t, int seed) {
    GOOD(duet_tensor_read(t, back));
    for (int i = 0; i < FLOATS; i++)
        MUST(back[i] == (float)(i % 1000 + seed));
}

static int64_t shared_by(struct worker *w, const char *name) {
    struct duet_rpc_value got;
    GOOD(duet_rpc_sync(w->rpc, name, "shared", DUET_NO_ARGS, 0, &got));
    return got.integer;
}

static void one(struct worker *w, const char *function, int seed) {
    struct duet_rpc_value got;
    duet_tensor *t = large(w, seed);
    GOOD(duet_rpc_sync(w->rpc, "w1", function, DUET_ARGS(duet_rpc_tensor(t)), 0, &got));
    is_large(got.type == DUET_RPC_LIST ? got.items[0].tensor : got.tensor, seed);
    duet_rpc_value_free(&got);
    duet_tensor_free(t);
}

/* A small tensor, a large one, an empty one, none and a text of two megabytes. */
static void mixed(struct worker *w) {
    static char text[2 * BYTES];
    const int none = 0;
    struct duet_rpc_value got;
    duet_tensor *t = large(w, 3), *small = tensor_of(w, 1, (const float[]){5}), *empty;
    GOOD(duet_tensor_create(&empty, w->device, DUET_F32, 1, &none, NULL));
    memset(text, 'a', sizeof text - 1);
    GOOD(duet_rpc_sync(w->rpc, "w1", "echo",
                       DUET_ARGS(duet_rpc_tensor(small), duet_rpc_tensor(t), duet_rpc_tensor(empty),
                                 duet_rpc_text(text), duet_rpc_tensor(small)),
                       0, &got));
    is_large(got.items[1].tensor, 3);
    GOOD(duet_tensor_read(got.items[4].tensor, back));
    MUST(back[0] == 5 && !duet_tensor_count(got.items[2].tensor));
    MUST(!strcmp(got.items[3].text, text));
    duet_rpc_value_free(&got);
    duet_tensor_free(t), duet_tensor_free(small), duet_tensor_free(empty);
}

/* More than there are regions: the others take the stream. Their answers are not read until all are
 * there, and some never. */
static void in_flight(struct worker *w) {
    duet_future *f[IN_FLIGHT];
    struct duet_rpc_value got;
    for (int i = 0; i < IN_FLIGHT; i++) {
        duet_tensor *t = large(w, i);
        GOOD(duet_rpc_async(&f[i], w->rpc, "w1", "echo", DUET_ARGS(duet_rpc_tensor(t)), 0));
        duet_tensor_free(t);
    }
    GOOD(duet_future_wait_all(f, IN_FLIGHT));
    MUST(shared_by(w, "w1") / 1000 == 1 + MOST_REGIONS);
    for (int i = IN_FLIGHT - 1; i >= 0; i--) {
        if (i % 5) {
            GOOD(duet_future_wait(f[i], &got));
            is_large(got.items[0].tensor, i);
            duet_rpc_value_free(&got);
        }
        duet_future_free(f[i]);
    }
}

static void backward(struct worker *w) {
    duet_autograd_context *c;
    duet_tape *t;
    struct duet_rpc_value y;
    duet_tensor *x = large(w, 1), *g;
    GOOD(duet_autograd_context_create(&c, w->rpc));
    GOOD(duet_autograd_pass(&t, c, NULL, 1));
    GOOD(duet_autograd_keep(t, x));
    duet_var *leaf = duet_leaf(t, x);
    GOOD(duet_autograd_sync(t, "w1", "twice", DUET_ARGS(duet_rpc_var(leaf)), 0, &y));
    duet_var *loss = duet_sum(t, duet_multiply(t, y.var, leaf), NULL, 0, 0); /* 2 x^2 */
    GOOD(duet_autograd_backward(c, &loss, 1, 0));
    GOOD(duet_var_grad(&g, t, leaf));
    GOOD(duet_tensor_read(g, back));
    for (int i = 0; i < FLOATS; i++)
        MUST(back[i] == 4 * there[i]);
    duet_tensor_free(g);
    duet_autograd_context_free(c);
}

/* Only elements lie beside a message. */
static void texts_only(struct worker *w) {
    static const char zeros[2 * BYTES];
    GOOD(duet_rpc_sync(w->rpc, "w1", "echo", DUET_ARGS(duet_rpc_bytes(zeros, sizeof zeros)), 0,
                       NULL));
    MUST(regions_here() == 1, "a door alone");
}

static void all_ways(struct worker *w) {
    if (w->rank) return;
    texts_only(w);
    for (int i = 0; i < 3; i++)
        one(w, i % 2 ? "relay" : "echo", i);
    mixed(w);
    MUST(regions_here() > 1 && shared_by(w, "w1") > 2000, "a door, and no region");
    in_flight(w);
    backward(w);
    int own = regions_here();
    int64_t far = shared_by(w, "w1") / 1000;
    for (int i = 0; i < (test_short() ? 100 : 1000); i++)
        one(w, "echo", 0);
    /* Those of the burst may have been given back meanwhile. A peer's takes two lines. */
    MUST(regions_here() <= own && shared_by(w, "w1") / 1000 <= far);
    MUST(mappings_here() <= own + 2 * (int)far);
}

Test(shared_tensors, tensors_of_calls_of_all_kinds, .timeout = 300) {
    WORKERS(2, all_ways, functions);
}

static void note_end(void *object) {
    __atomic_store_n((int *)object, 1, __ATOMIC_RELEASE);
}

/* A worker that cannot open what lies beside a call says so, and the next call may do better. The
 * memory is free again, and so is what else was in the call. */
static void no_descriptor(struct worker *w) {
    struct duet_rpc_value got;
    duet_rref *r;
    int ended = 0;
    if (w->rank) return;
    duet_tensor *t = large(w, 1);
    GOOD(duet_rref_create_object(&r, w->rpc, "Object", &ended, note_end));
    GOOD(duet_rpc_sync(w->rpc, "w1", "limit", DUET_ARGS(duet_rpc_int(0)), 0, NULL));
    for (int i = 0; i < MOST_REGIONS; i++)
        FAILS(DUET_FAILED,
              duet_rpc_sync(w->rpc, "w1", "echo", DUET_ARGS(duet_rpc_tensor(t), duet_rpc_rref(r)),
                            0, &got),
              "lies in memory of worker 'w0' that cannot be opened");
    MUST(regions_here() == 2, "%d: a door, and one for all calls", regions_here());
    GOOD(duet_rpc_sync(w->rpc, "w1", "limit", DUET_ARGS(duet_rpc_int(1)), 0, NULL));
    duet_rref_free(r);
    for (int i = 0; i < 2000 && !__atomic_load_n(&ended, __ATOMIC_ACQUIRE); i++) {
        shared_by(w, "w1"); /* it ends while this thread waits: it needs the device */
        usleep(1000);
    }
    MUST(ended, "a reference beside the tensor is held");
    duet_tensor_free(t);
    one(w, "echo", 2);
}

Test(shared_tensors, that_cannot_be_opened_fail_one_call, .timeout = 60) {
    WORKERS(2, no_descriptor, functions);
}

/* ---- workers that are killed, or cannot share; each process by itself ---- */

/* limited 1: it may make no file of any size, so it has no door. */
static int run_one(int rank, int limited, void (*body)(struct worker *w)) {
    struct worker w = {.rank = rank, .n = 2};
    char name[16];
    struct rlimit size, none;
    snprintf(name, sizeof name, "w%d", rank);
    GOOD(duet_device_open(&w.device, "cpu", rank, WORKER_MEMORY));
    const struct duet_rpc_options options = {.functions = functions,
                                             .function_count = sizeof functions / sizeof *functions,
                                             .device = w.device};
    getrlimit(RLIMIT_FSIZE, &size);
    none = size;
    if (limited) none.rlim_cur = 0;
    setrlimit(RLIMIT_FSIZE, &none);
    GOOD(duet_rpc_init(&w.rpc, name, rank, 2, &options));
    setrlimit(RLIMIT_FSIZE, &size);
    body(&w);
    duet_devices_close(&w.device, 1);
    return 0;
}

static void two(int limited, int status_of_1, void (*body)(struct worker *w)) {
    pid_t p[2];
    set_secret();
    for (int r = 0; r < 2; r++)
        if (!(p[r] = fork())) _exit(run_one(r, limited && r, body));
    for (int r = 0; r < 2; r++)
        cr_expect_eq(status_of(p[r]), r ? status_of_1 : 0, "worker %d", r);
}

/* One can open the other's memory and not the other way round: each way goes as it can. */
static void one_has_no_door(struct worker *w) {
    if (!w->rank) {
        one(w, "echo", 0);
        MUST(shared_by(w, "w1") / 1000 == 0 && regions_here() >= 1);
        one(w, "relay", 1);
    }
    GOOD(duet_rpc_shutdown(&w->rpc, 1, 60));
}

Test(shared_tensors, a_worker_without_any_takes_the_stream, .timeout = 60) {
    two(1, 0, one_has_no_door);
}

/* What a killed worker had taken comes back. */
static void other_dies(struct worker *w) {
    duet_future *f[4];
    if (w->rank) {
        duet_rpc_shutdown(&w->rpc, 1, 60);
        return;
    }
    duet_tensor *t = large(w, 0);
    for (int i = 0; i < 4; i++) { /* it may be gone before the last has left */
        f[i] = NULL;
        if (!duet_rpc_async(&f[i], w->rpc, "w1", "die", DUET_ARGS(duet_rpc_tensor(t)), 0)) continue;
        MUST(strstr(duet_error(), "worker 'w1' is gone"));
    }
    for (int i = 0; i < 4; i++) {
        if (f[i]) FAILS(DUET_PEER, duet_future_wait(f[i], NULL), "worker 'w1' is gone");
        duet_future_free(f[i]);
    }
    /* The door, and one that a call took which then found the worker gone: free, for the next. */
    for (int i = 0; i < 2000 && regions_here() > 2; i++)
        usleep(5000);
    MUST(regions_here() <= 2, "%d", regions_here());
    FAILS(DUET_PEER, duet_rpc_sync(w->rpc, "w1", "die", DUET_ARGS(duet_rpc_tensor(t)), 0, NULL),
          "worker 'w1' is gone");
    duet_tensor_free(t);
    GOOD(duet_rpc_shutdown(&w->rpc, 0, 0));
}

Test(shared_tensors, of_a_killed_reader_come_back, .timeout = 60) {
    two(0, SIGKILL, other_dies);
}
