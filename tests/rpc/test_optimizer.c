/* Optimizers at the owners of the parameters: their steps are those of one here. */
#include "tests/rpc/matrix.h"

/* Momentum and a schedule, at two owners, against the same steps here. */
static void steps(struct worker *w) {
    duet_distributed_optimizer *o;
    struct duet_rpc_value r[2], got;
    struct duet_optimizer_options options;
    duet_params *params;
    duet_optimizer *here;
    float want[OUT * IN], is[OUT * IN];
    if (w->rank) return;
    GOOD(duet_optimizer_defaults(&options, "sgd"));
    options.lr = 0.1, options.momentum = 0.9;
    for (int i = 0; i < 2; i++)
        GOOD(duet_rpc_sync(w->rpc, i ? "w1" : "w0", "parameter", DUET_NO_ARGS, 0, &r[i]));
    GOOD(duet_distributed_optimizer_create(&o, w->rpc, (duet_rref *[]){r[0].rref, r[1].rref}, 2,
                                           &options));
    GOOD(duet_params_create(&params, w->device, &one_param, 1));
    GOOD(duet_optimizer_create(&here, params, &options));
    for (int step = 0; step < 4; step++) {
        duet_autograd_context *c;
        duet_tape *t;
        struct duet_rpc_value y;
        GOOD(duet_autograd_context_create(&c, w->rpc));
        GOOD(duet_autograd_pass(&t, c, NULL, ROWS));
        duet_tensor *x = rows(w, X);
        GOOD(duet_autograd_keep(t, x));
        GOOD(duet_autograd_sync(t, "w1", "forward", DUET_ARGS(duet_rpc_tensor(x)), 0, &y));
        duet_var *loss = mean_of_squares(t, y.var);
        GOOD(duet_autograd_backward(c, &loss, 1, 0));
        GOOD(duet_distributed_optimizer_set_lr(o, duet_lr_step(0.1, 2, 0.5, step)));
        GOOD(duet_distributed_optimizer_step(o, c));
        GOOD(read_gradient(t, "w1", is));
        GOOD(duet_tensor_write(duet_params_grad(params, 0), is));
        GOOD(duet_optimizer_set_lr(here, duet_lr_step(0.1, 2, 0.5, step)));
        GOOD(duet_optimizer_step(here));
        duet_autograd_context_free(c);
    }
    GOOD(duet_rref_to_here(r[1].rref, 0, &got));
    GOOD(duet_tensor_read(got.tensor, is));
    GOOD(duet_tensor_read(duet_params_value(params, 0), want));
    MUST(!memcmp(is, want, sizeof is) && is[0] != weight[0][0]);
    duet_rpc_value_free(&got);
    GOOD(duet_rref_to_here(r[0].rref, 0, &got)); /* without a gradient: as it was */
    GOOD(duet_tensor_read(got.tensor, is));
    MUST(!memcmp(is, weight, sizeof is));
    duet_rpc_value_free(&got);
    duet_optimizer_free(here);
    duet_params_free(params);
    duet_distributed_optimizer_free(o);
    duet_rpc_value_free(&r[0]), duet_rpc_value_free(&r[1]);
    FAILS(DUET_USAGE, duet_distributed_optimizer_create(&o, w->rpc, NULL, 0, &options), "give a");
    none_left(w);
    usleep(100000); /* the optimizers end before the parameters */
    all_bye(w);
}

Test(optimizer, distributed_ones_step_at_the_owners, .timeout = 60) {
    WORKERS(2, steps, functions);
}
