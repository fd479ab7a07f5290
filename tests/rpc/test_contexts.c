/* What contexts have to do with a duet_ddp. That it averages is shown by examples/rpc_ddp. */
#include "tests/rpc/matrix.h"

static duet_params *averaged;

FUNCTION(pass_of_ddp) {
    duet_tape *t;
    FAILS(DUET_USAGE, duet_autograd_call_pass(&t, call, averaged, ROWS), "have a duet_ddp");
    return DUET_OK;
}

/* The gradient, a copy of which the parameter has as well. A pass in the context of a function that
 * somebody calls would be one that other ranks may not begin. */
static void ddp_of_one(struct worker *w) {
    char job[64];
    float is[OUT * IN], want[OUT * IN];
    duet_group *group;
    duet_ddp *ddp;
    duet_autograd_context *c;
    duet_tensor *grad;
    snprintf(job, sizeof job, "rpc-contexts-%d", (int)getpid());
    GOOD(duet_params_create(&averaged, w->device, &one_param, 1));
    GOOD(duet_group_join(&group, job, 0, 1, 0));
    GOOD(duet_ddp_create(&ddp, group, averaged, NULL));
    duet_tape *t;
    GOOD(duet_autograd_context_create(&c, w->rpc));
    GOOD(duet_autograd_pass(&t, c, averaged, ROWS));
    duet_tensor *x = rows(w, X);
    GOOD(duet_autograd_keep(t, x));
    duet_var *loss = mean_of_squares(t, duet_linear(t, duet_input(t, x), 0, -1));
    GOOD(duet_autograd_sync(t, "w0", "pass_of_ddp", DUET_NO_ARGS, 0, NULL));
    GOOD(duet_autograd_backward(c, &loss, 1, 1));
    GOOD(duet_tensor_read(duet_params_grad(averaged, 0), is));
    GOOD(duet_autograd_gradients(&grad, c, averaged, 0));
    GOOD(duet_tensor_read(grad, want));
    duet_tensor_free(grad);
    MUST(!memcmp(is, want, sizeof is) && is[0] != 0);
    FAILS(DUET_USAGE, duet_autograd_backward(c, &loss, 1, 0), "with DDP each pass has one");
    duet_autograd_context_free(c);
    duet_ddp_free(ddp);
    duet_group_destroy(&group);
    duet_params_free(averaged);
}

Test(contexts, average_where_there_is_a_ddp, .timeout = 60) {
    static const struct duet_rpc_function functions_[] = {{"pass_of_ddp", pass_of_ddp, NULL, NULL}};
    WORKERS(1, ddp_of_one, functions_);
}
