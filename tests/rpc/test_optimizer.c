/* Tests optimizers at the owners of the parameters: their steps equal those of one local optimizer,
 * even if each has only some parameters, and if some have no gradient. */
#include "tests/rpc/matrix.h"

/* factor * linear(x), with the bias or without. */
FUNCTION(scaled) {
    duet_tape *t;
    int code = duet_autograd_call_pass(&t, call, matrix(call), ROWS);
    if (code) return code;
    duet_var *y = duet_linear(t, duet_autograd_arg(t, call, 0), 0,
                              duet_rpc_arg_int(call, 1) ? 1 : DUET_NO_BIAS);
    return duet_rpc_return(call, duet_rpc_var(duet_multiply(t, duet_parameter(t, 2), y)));
}

static const struct duet_rpc_function of_three[] = {F(scaled), F(parameter), F(bye)};

static void step_there(struct worker *w, duet_distributed_optimizer *o, int with_bias) {
    const struct pass p = begin_pass(w, X);
    struct duet_rpc_value y;
    GOOD(VARS(p.tape, "w1", "scaled", DUET_ARGS(duet_rpc_var(p.leaf), duet_rpc_int(with_bias))));
    duet_var *loss = mean_of_squares(p.tape, y.var);
    GOOD(duet_autograd_backward(p.context, &loss, 1, 0));
    GOOD(duet_distributed_optimizer_step(o, p.context));
    duet_autograd_context_free(p.context);
}

/* Here the factor is no parameter at all. */
static void step_here(struct worker *w, duet_tape *t, duet_params *params, duet_optimizer *o,
                      int with_bias) {
    duet_tensor *x = rows(w, X), *f = tensor_of(w, OUT, factor);
    GOOD(duet_tape_begin(t, params, ROWS, DUET_TRAIN));
    duet_var *y = duet_linear(t, duet_input(t, x), 0, with_bias ? 1 : DUET_NO_BIAS);
    GOOD(duet_backward(t, mean_of_squares(t, duet_multiply(t, duet_constant(t, f), y)), NULL));
    GOOD(duet_optimizer_step(o));
    duet_tensor_free(x), duet_tensor_free(f);
}

static void subset(struct worker *w) {
    static const int with_bias[] = {1, 0, 0, 1, 1};
    struct duet_rpc_value r[4], got;
    struct duet_optimizer_options options;
    duet_distributed_optimizer *o;
    duet_params *params;
    duet_optimizer *here;
    duet_tape *t;
    float want[OUT * IN], is[OUT * IN];
    if (w->rank) return;
    for (int i = 0; i < 4; i++) { /* three of w1, and one of w0 */
        GOOD(SYNC(i < 3 ? "w1" : "w0", "parameter", DUET_ARGS(duet_rpc_int(i % 3))));
        r[i] = got;
    }
    duet_rref *some[] = {r[1].rref, r[3].rref, r[0].rref};
    GOOD(duet_optimizer_defaults(&options, "adam"));
    options.name = "none"; /* its owners cannot make it */
    FAILS(DUET_USAGE, duet_distributed_optimizer_create(&o, w->rpc, some, 3, &options), "none");
    options.name = "adam", options.lr = 0.05;
    GOOD(duet_distributed_optimizer_create(&o, w->rpc, some, 3, &options));
    GOOD(duet_params_create(&params, w->device, three_params, 2));
    GOOD(duet_optimizer_create(&here, params, &options));
    GOOD(duet_tape_create(&t, w->device));
    for (int i = 0; i < 5; i++) {
        step_there(w, o, with_bias[i]);
        step_here(w, t, params, here, with_bias[i]);
        for (int k = 0; k < 4; k++) { /* the one at w0 has no gradient */
            const float *as = k < 2 ? want : k == 2 ? factor : &weight[0][0];
            GOOD(duet_rref_to_here(r[k].rref, 0, &got));
            GOOD(duet_tensor_read(got.tensor, is));
            if (k < 2) GOOD(duet_tensor_read(duet_params_value(params, k), want));
            MUST(!memcmp(is, as, (k % 3 ? OUT : OUT * IN) * sizeof *is), "step %d, parameter %d", i,
                 k);
            duet_rpc_value_free(&got);
        }
    }
    duet_tape_free(t);
    duet_optimizer_free(here);
    duet_params_free(params);
    for (int i = 0; i < 4; i++)
        duet_rpc_value_free(&r[i]);
    duet_distributed_optimizer_free(o);
    none_left(w);
    all_bye(w);
}

TEST_WORKERS(optimizer, distributed_ones_step_at_the_owners, 2, subset, of_three)
