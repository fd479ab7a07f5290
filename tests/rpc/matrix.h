/* What the tests of distributed autograd share: workers that have a matrix each, and functions that
 * multiply by it, pass on, and tell its gradient. */
#ifndef TESTS_RPC_MATRIX_H
#define TESTS_RPC_MATRIX_H

#include "rpc/autograd.h"
#include "tests/rpc/workers.h"

enum { ROWS = 3, IN = 4, OUT = 2 };

static float weight[OUT][IN] = {{0.5f, -1, 0.25f, 3}, {0.125f, 2, -0.75f, 1}};
static const struct duet_param one_param = {"w", 2, {OUT, IN}, &weight[0][0]};

/* Each worker has one matrix, made before its first call. */
static duet_params *matrix(duet_rpc_call *call) {
    static duet_params *params;
    if (params || !call) return params;
    GOOD(duet_params_create(&params, worker_here.device, &one_param, 1));
    return params;
}

static int bye(duet_rpc_call *call, void *context) {
    (void)context;
    duet_params_free(matrix(call));
    return DUET_OK;
}

/* linear(x), behind a nap. */
static int forward(duet_rpc_call *call, void *context) {
    (void)context;
    duet_tape *t;
    duet_params *params = matrix(call);
    int code = duet_autograd_call_pass(&t, call, params, ROWS);
    if (code) return code;
    if (duet_rpc_arg_count(call) > 1) usleep((useconds_t)duet_rpc_arg_int(call, 1));
    duet_var *y = duet_linear(t, duet_autograd_arg(t, call, 0), 0, -1);
    return duet_rpc_return(call, duet_rpc_var(y));
}

/* Passes x on to the worker that is named, and gives its answer back: this one has no part. */
static int pass_on(duet_rpc_call *call, void *context) {
    (void)context;
    duet_tape *t;
    struct duet_rpc_value y;
    int code = duet_autograd_call_pass(&t, call, NULL, ROWS);
    if (code) return code;
    code = duet_autograd_sync(t, duet_rpc_arg_text(call, 1), "forward",
                              DUET_ARGS(duet_rpc_var(duet_autograd_arg(t, call, 0))), 0, &y);
    return code ? code : duet_rpc_return(call, y);
}

/* An object whose method is forward. */
static void layer_goes(void *object) {
    (void)object;
}

static int layer_new(duet_rpc_call *call, void *context) {
    (void)context;
    return duet_rpc_return_object(call, weight, layer_goes);
}

/* x, x and a constant: a result may be an argument, twice, beside other things. */
static int mirror(duet_rpc_call *call, void *context) {
    (void)context;
    duet_tape *t;
    int code = duet_autograd_call_pass(&t, call, NULL, ROWS);
    if (code) return code;
    duet_var *x = duet_autograd_arg(t, call, 0);
    const struct duet_rpc_value all[] = {duet_rpc_var(x), duet_rpc_var(x), duet_rpc_int(7)};
    return duet_rpc_return(call, duet_rpc_list(all, 3));
}

/* The gradient of this worker's matrix in the context of the call. */
static int gradient(duet_rpc_call *call, void *context) {
    (void)context;
    duet_tensor *g;
    int code = duet_autograd_gradients(&g, duet_autograd_context_of(call), matrix(call), 0);
    if (code) return code;
    code = duet_rpc_return(call, duet_rpc_tensor(g));
    duet_tensor_free(g);
    return code;
}

/* A reference to it; its value. */
static int parameter(duet_rpc_call *call, void *context) {
    (void)context;
    duet_rref *r;
    int code = duet_rref_create_param(&r, duet_rpc_of_call(call), matrix(call), 0);
    if (code) return code;
    code = duet_rpc_return(call, duet_rpc_rref(r));
    duet_rref_free(r);
    return code;
}

static int contexts(duet_rpc_call *call, void *context) {
    (void)context;
    struct duet_rpc_info info;
    duet_rpc_info(duet_rpc_of_call(call), &info);
    return duet_rpc_return(call, duet_rpc_int(info.contexts));
}

static int leave(duet_rpc_call *call, void *context) {
    (void)call, (void)context;
    _exit(0);
}

static const struct duet_rpc_function functions[] = {
    {"forward", forward, NULL, NULL},   {"pass_on", pass_on, NULL, NULL},
    {"mirror", mirror, NULL, NULL},     {"gradient", gradient, NULL, NULL},
    {"contexts", contexts, NULL, NULL}, {"parameter", parameter, NULL, NULL},
    {"leave", leave, NULL, NULL},       {"bye", bye, NULL, NULL},
    {"Layer", layer_new, NULL, NULL},   {"Layer.forward", forward, NULL, NULL}};

static inline duet_tensor *rows(struct worker *w, const float *values) {
    duet_tensor *t;
    GOOD(duet_tensor_create(&t, w->device, DUET_F32, 2, (int[]){ROWS, IN}, values));
    return t;
}

static inline duet_var *mean_of_squares(duet_tape *t, duet_var *y) {
    return duet_mean(t, duet_multiply(t, y, y), NULL, 0, 0);
}

static inline void all_bye(struct worker *w) {
    for (int r = 0; r < w->n; r++)
        GOOD(duet_rpc_sync(w->rpc, duet_rpc_name(w->rpc, r), "bye", DUET_NO_ARGS, 0, NULL));
}

/* No worker knows of a context any more, at the latest after a few messages. */
static void none_left(struct worker *w) {
    for (int r = 0; r < w->n; r++) {
        struct duet_rpc_value left = {.integer = 1};
        for (int i = 0; i < 300 && left.integer; i++) {
            if (i) usleep(5000);
            GOOD(duet_rpc_sync(w->rpc, duet_rpc_name(w->rpc, r), "contexts", DUET_NO_ARGS, 0,
                               &left));
        }
        MUST(!left.integer, "worker %d has %lld contexts", r, (long long)left.integer);
    }
}

/* As if `from` had sent the end of a context. */
static inline void end_comes(duet_rpc *rpc, int from, uint64_t id) {
    on_frame(rpc, &rpc->peers[from],
             message_frame(&(struct message){.kind = MESSAGE_CONTEXT_END, .context = id}));
}

/* What the context has at a worker; the tape belongs to the context. */
static inline int read_gradient(duet_tape *t, const char *worker, float *out) {
    struct duet_rpc_value g = {0};
    int code = duet_autograd_sync(t, worker, "gradient", DUET_NO_ARGS, 0, &g);
    if (code) return code;
    duet_tensor *copy;
    GOOD(duet_var_value(&copy, t, g.var));
    GOOD(duet_tensor_read(copy, out));
    duet_tensor_free(copy);
    return DUET_OK;
}

static const float X[ROWS * IN] = {1, 2, -3, 0.1f, 5, 0.3f, 7, -0.7f, 0.9f, 1.1f, 1.3f, -11};

#endif
