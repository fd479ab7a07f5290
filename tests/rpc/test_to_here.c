/* References inside a context: the gradient of a parameter from duet_autograd_to_here goes to its
 * owner, with the bits of one tape. */
#include "tests/rpc/matrix.h"

static void same_gradients(const struct pass *p, const char *owner, const float *want_dw,
                           const float *want_dx) {
    float dw[OUT * IN], dx[ROWS * IN];
    GOOD(read_gradient(p->tape, owner, dw));
    MUST(!memcmp(dw, want_dw, sizeof dw));
    read_grad(p->tape, p->leaf, dx);
    MUST(!memcmp(dx, want_dx, sizeof dx));
    duet_autograd_context_free(p->context);
}

/* Fetches the matrix of `owner` as a var. */
static void parameter_to_here(struct worker *w, const char *owner) {
    float dw[OUT * IN], dx[ROWS * IN];
    struct duet_rpc_value r, value;
    on_one_tape(w, AS_LEAF, dw, dx);
    GOOD(duet_rpc_sync(w->rpc, owner, "parameter", DUET_NO_ARGS, 0, &r));
    const struct pass p = begin_pass(w, X);
    duet_var *h = duet_tanh(p.tape, p.leaf);
    GOOD(duet_autograd_to_here(p.tape, r.rref, 0, &value));
    MUST(value.type == DUET_RPC_VAR);
    duet_var *y = duet_matmul(p.tape, h, duet_transpose(p.tape, value.var, 0, 1));
    duet_var *loss = mean_of_squares(p.tape, y);
    GOOD(duet_autograd_backward(p.context, &loss, 1, 0));
    same_gradients(&p, owner, dw, dx);
    duet_rpc_value_free(&r);
}

/* Any other tensor is fetched as a value, without a gradient; errors are the function's. */
static void others_to_here(struct worker *w) {
    struct duet_rpc_value value;
    duet_rref *r;
    const struct pass p = begin_pass(w, X);
    duet_tensor *t = rows(w, X);
    GOOD(duet_rref_create(&r, w->rpc, duet_rpc_tensor(t)));
    GOOD(duet_autograd_to_here(p.tape, r, 0, &value));
    MUST(value.type == DUET_RPC_VAR);
    duet_var *loss = duet_sum(p.tape, value.var, NULL, 0, 0);
    FAILS(DUET_USAGE, duet_autograd_backward(p.context, &loss, 1, 0), "requires_grad not set");
    duet_rref_free(r);
    GOOD(duet_remote(&r, w->rpc, "w1", "nothing", DUET_NO_ARGS, 0));
    FAILS(DUET_USAGE, duet_autograd_to_here(p.tape, r, 0, &value), "no function of this name");
    duet_rref_free(r);
    FAILS(DUET_USAGE, duet_autograd_to_here(NULL, r, 0, &value), "give a tape");
    duet_tensor_free(t);
    duet_autograd_context_free(p.context);
}

/* x W^T at a third worker, to which the reference to W was passed on. */
FUNCTION(product) {
    duet_tape *t;
    struct duet_rpc_value value;
    int code = duet_autograd_call_pass(&t, call, NULL, ROWS);
    if (!code) code = duet_autograd_to_here(t, duet_rpc_arg_rref(call, 1), 0, &value);
    if (code) return code;
    duet_var *W = duet_transpose(t, value.var, 0, 1);
    return duet_rpc_return(call, duet_rpc_var(duet_matmul(t, duet_autograd_arg(t, call, 0), W)));
}

static void parameter_elsewhere(struct worker *w, const char *at, const char *owner) {
    float dw[OUT * IN], dx[ROWS * IN];
    struct duet_rpc_value r, y;
    on_one_tape(w, AS_LEAF, dw, dx);
    GOOD(duet_rpc_sync(w->rpc, owner, "parameter", DUET_NO_ARGS, 0, &r));
    const struct pass p = begin_pass(w, X);
    duet_var *h = duet_tanh(p.tape, p.leaf);
    GOOD(duet_autograd_sync(p.tape, at, "product", DUET_ARGS(duet_rpc_var(h), r), 0, &y));
    duet_var *loss = mean_of_squares(p.tape, y.var);
    GOOD(duet_autograd_backward(p.context, &loss, 1, 0));
    same_gradients(&p, owner, dw, dx);
    duet_rpc_value_free(&r);
}

static void body(struct worker *w) {
    if (w->rank) return;
    for (int i = 0; i < 2; i++) { /* the second time on tapes that were used before */
        parameter_to_here(w, "w1");
        parameter_to_here(w, "w0");
        parameter_elsewhere(w, "w1", "w2");
        parameter_elsewhere(w, "w1", "w1");
        parameter_elsewhere(w, "w1", "w0");
        others_to_here(w);
    }
    none_left(w);
    all_bye(w);
}

Test(to_here, has_the_gradients_of_one_tape, .timeout = 60) {
    static const struct duet_rpc_function own[] = {F(parameter), F(gradient), F(product), F(bye)};
    WORKERS(3, body, own);
}
