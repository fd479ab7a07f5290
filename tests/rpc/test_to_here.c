/* References inside a context: the gradient of a parameter from duet_autograd_to_here goes to its
 * owner, with the bits of one tape. */
#include "tests/rpc/matrix.h"

/* h W^T, of a reference to W. */
static duet_var *times(duet_tape *t, duet_var *h, duet_rref *r) {
    struct duet_rpc_value value;
    GOOD(duet_autograd_to_here(t, r, 0, &value));
    MUST(value.type == DUET_RPC_VAR);
    return duet_matmul(t, h, duet_transpose(t, value.var, 0, 1));
}

/* At a worker to which the reference was passed on. */
FUNCTION(product) {
    duet_tape *t;
    int code = duet_autograd_call_pass(&t, call, NULL, ROWS);
    if (code) return code;
    duet_var *y = times(t, duet_autograd_arg(t, call, 0), duet_rpc_arg_rref(call, 1));
    return duet_rpc_return(call, duet_rpc_var(y));
}

/* Fetches the matrix of `owner` as a var, here (at NULL) or at another worker. */
static void parameter_of(struct worker *w, const char *at, const char *owner) {
    float dw[OUT * IN], dx[ROWS * IN];
    struct duet_rpc_value got, y = {0};
    on_one_tape(w, 1, dw, dx);
    GOOD(SYNC(owner, "parameter", DUET_ARGS(duet_rpc_int(0))));
    const struct pass p = begin_pass(w, X);
    duet_var *h = duet_tanh(p.tape, p.leaf);
    if (at)
        GOOD(VARS(p.tape, at, "product", DUET_ARGS(duet_rpc_var(h), got)));
    else
        y = duet_rpc_var(times(p.tape, h, got.rref));
    duet_var *loss = mean_of_squares(p.tape, y.var);
    GOOD(duet_autograd_backward(p.context, &loss, 1, 0));
    same_gradients(&p, owner, dw, dx);
    duet_autograd_context_free(p.context);
    duet_rpc_value_free(&got);
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

static void body(struct worker *w) {
    if (w->rank) return;
    for (int i = 0; i < 2; i++) { /* the second time on tapes that were used before */
        parameter_of(w, NULL, "w1");
        parameter_of(w, NULL, "w0");
        parameter_of(w, "w1", "w2");
        parameter_of(w, "w1", "w1");
        parameter_of(w, "w1", "w0");
        others_to_here(w);
    }
    none_left(w);
    all_bye(w);
}

Test(to_here, has_the_gradients_of_one_tape, .timeout = 60) {
    static const struct duet_rpc_function own[] = {F(parameter), F(gradient), F(product), F(bye)};
    WORKERS(3, body, own);
}
