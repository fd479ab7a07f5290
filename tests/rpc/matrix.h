/* Shared by the tests of distributed autograd: each worker has a matrix, and functions that
 * multiply by it, pass values on, and return its gradient. */
#ifndef TESTS_RPC_MATRIX_H
#define TESTS_RPC_MATRIX_H

#include "tests/rpc/workers.h"

enum { ROWS = 3, IN = 4, OUT = 2 };

static float weight[OUT][IN] = {{0.5f, -1, 0.25f, 3}, {0.125f, 2, -0.75f, 1}};
static float bias[OUT] = {0.5f, -0.25f}, factor[OUT] = {2, -3};
static const struct duet_param three_params[] = {
    {"w", 2, {OUT, IN}, &weight[0][0]}, {"b", 1, {OUT}, bias}, {"factor", 1, {OUT}, factor}};

/* Each worker has one matrix, and two other parameters for test_optimizer.c, made before its first
 * call. */
static duet_params *matrix(duet_rpc_call *call) {
    static duet_params *params;
    if (params || !call) return params;
    GOOD(duet_params_create(&params, worker_here.device, three_params, 3));
    return params;
}

FUNCTION(bye) {
    duet_params_free(matrix(call));
    return DUET_OK;
}

/* linear(x), after a pause. */
FUNCTION(forward) {
    duet_tape *t;
    duet_params *params = matrix(call);
    int code = duet_autograd_call_pass(&t, call, params, ROWS);
    if (code) return code;
    if (duet_rpc_arg_count(call) > 1) usleep((useconds_t)duet_rpc_arg_int(call, 1));
    duet_var *y = duet_linear(t, duet_autograd_arg(t, call, 0), 0, -1);
    return duet_rpc_return(call, duet_rpc_var(y));
}

/* Passes x on to the named worker and returns its answer: this one computes nothing. */
FUNCTION(pass_on) {
    duet_tape *t;
    struct duet_rpc_value y;
    int code = duet_autograd_call_pass(&t, call, NULL, ROWS);
    if (code) return code;
    code = duet_autograd_sync(t, duet_rpc_arg_text(call, 1), "forward",
                              DUET_ARGS(duet_rpc_var(duet_autograd_arg(t, call, 0))), 0, &y);
    return code ? code : duet_rpc_return(call, y);
}

/* An object whose method is forward. */
FUNCTION(layer_new) {
    return duet_rpc_return_object(call, weight, NULL);
}

/* The context of the call that a function runs in. It belongs to the caller. */
static inline duet_autograd_context *autograd_context_of(duet_rpc_call *call) {
    return call->said->entered;
}

/* x, x and a constant: a result may be an argument, twice, beside other things. */
FUNCTION(mirror) {
    duet_tape *t;
    FAILS(DUET_USAGE, duet_autograd_pass(&t, autograd_context_of(call), NULL, ROWS),
          "worker 'w0' has created this context");
    int code = duet_autograd_call_pass(&t, call, NULL, ROWS);
    if (code) return code;
    duet_var *x = duet_autograd_arg(t, call, 0);
    const struct duet_rpc_value all[] = {duet_rpc_var(x), duet_rpc_var(x), duet_rpc_int(7)};
    return duet_rpc_return(call, duet_rpc_list(all, 3));
}

/* The gradient of this worker's matrix in the context of the call. */
FUNCTION(gradient) {
    duet_tensor *g;
    int code = duet_autograd_gradients(&g, autograd_context_of(call), matrix(call), 0);
    if (code) return code;
    code = duet_rpc_return(call, duet_rpc_tensor(g));
    duet_tensor_free(g);
    return code;
}

/* A reference to one of them. */
FUNCTION(parameter) {
    duet_rref *r;
    int code = duet_rref_create_param(&r, duet_rpc_of_call(call), matrix(call),
                                      (int)duet_rpc_arg_int(call, 0));
    if (code) return code;
    code = duet_rpc_return(call, duet_rpc_rref(r));
    duet_rref_free(r);
    return code;
}

FUNCTION(leave) {
    (void)call;
    _exit(0);
}

static const struct duet_rpc_function functions[] = {F(forward),
                                                     F(pass_on),
                                                     F(mirror),
                                                     F(gradient),
                                                     F(parameter),
                                                     F(leave),
                                                     F(bye),
                                                     NAMED("Layer", layer_new),
                                                     NAMED("Layer.forward", forward)};

static const float X[ROWS * IN] = {1, 2, -3, 0.1f, 5, 0.3f, 7, -0.7f, 0.9f, 1.1f, 1.3f, -11};

static inline duet_tensor *rows(struct worker *w, const float *values) {
    duet_tensor *t;
    GOOD(duet_tensor_create(&t, w->device, DUET_F32, 2, (int[]){ROWS, IN}, values));
    return t;
}

static inline duet_var *mean_of_squares(duet_tape *t, duet_var *y) {
    return duet_mean(t, duet_multiply(t, y, y), NULL, 0, 0);
}

static inline duet_var *leaf_of(struct worker *w, duet_tape *t, const float *values) {
    duet_tensor *x = rows(w, values);
    GOOD(duet_autograd_keep(t, x));
    return duet_leaf(t, x);
}

/* A context with one pass, which has some rows as a leaf. */
struct pass {
    duet_autograd_context *context;
    duet_tape *tape;
    duet_var *leaf;
};

static inline struct pass begin_pass(struct worker *w, const float *values) {
    struct pass p;
    GOOD(duet_autograd_context_create(&p.context, w->rpc));
    GOOD(duet_autograd_pass(&p.tape, p.context, NULL, ROWS));
    p.leaf = leaf_of(w, p.tape, values);
    return p;
}

/* A call with vars, whose result is y. */
#define VARS(tape_, to_, ...) duet_autograd_sync((tape_), (to_), __VA_ARGS__, 0, &y)

/* The gradient of a var of this tape. */
static inline void read_grad(duet_tape *t, const duet_var *x, float *out) {
    duet_tensor *g;
    GOOD(duet_var_grad(&g, t, (duet_var *)x));
    GOOD(duet_tensor_read(g, out));
    duet_tensor_free(g);
}

/* What one tape computes of X: the loss of linear(tanh(x)), or with the matrix as a leaf, as it is
 * where it comes as a var. */
static inline void on_one_tape(struct worker *w, int as_leaf, float *dw, float *dx) {
    duet_tape *t;
    duet_params *params;
    duet_tensor *x = rows(w, X), *leaf_of;
    GOOD(duet_tensor_create(&leaf_of, w->device, DUET_F32, 2, (int[]){OUT, IN}, weight));
    GOOD(duet_params_create(&params, w->device, three_params, 1));
    GOOD(duet_tape_create(&t, w->device));
    GOOD(duet_tape_begin(t, params, ROWS, DUET_TRAIN));
    duet_var *leaf = duet_leaf(t, x), *h = duet_tanh(t, leaf), *W = duet_leaf(t, leaf_of);
    duet_var *y =
        as_leaf ? duet_matmul(t, h, duet_transpose(t, W, 0, 1)) : duet_linear(t, h, 0, -1);
    GOOD(duet_backward(t, mean_of_squares(t, y), NULL));
    if (as_leaf)
        read_grad(t, W, dw);
    else
        GOOD(duet_tensor_read(duet_params_grad(params, 0), dw));
    read_grad(t, leaf, dx);
    duet_tensor_free(x), duet_tensor_free(leaf_of);
    duet_tape_free(t);
    duet_params_free(params);
}

static inline void all_bye(struct worker *w) {
    for (int r = 0; r < w->n; r++)
        GOOD(TELL(duet_rpc_name(w->rpc, r), "bye", DUET_NO_ARGS));
}

/* No worker knows of a context any more. */
static inline void none_left(struct worker *w) {
    for (int r = 0; r < w->n; r++)
        becomes(w, duet_rpc_name(w->rpc, r), "contexts", 0);
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

static inline void same_gradients(const struct pass *p, const char *worker, const float *want_dw,
                                  const float *want_dx) {
    float dw[OUT * IN], dx[ROWS * IN];
    read_grad(p->tape, p->leaf, dx);
    MUST(!memcmp(dx, want_dx, sizeof dx));
    GOOD(read_gradient(p->tape, worker, dw));
    MUST(!memcmp(dw, want_dw, sizeof dw));
}

#endif
