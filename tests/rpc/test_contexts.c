/* What contexts have to do with a duet_ddp, and with the end of the worker. */
#include "tests/rpc/matrix.h"

/* ---- parameters with a duet_ddp ---- */

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
    duet_params *alone;
    duet_autograd_context *c;
    duet_tensor *grad;
    snprintf(job, sizeof job, "rpc-contexts-%d", (int)getpid());
    GOOD(duet_params_create(&averaged, w->device, &one_param, 1));
    GOOD(duet_params_create(&alone, w->device, &one_param, 1));
    GOOD(duet_group_join(&group, job, 0, 1, 0));
    GOOD(duet_ddp_create(&ddp, group, averaged, NULL));
    for (int step = 0; step < 3; step++) {
        duet_var *loss[2];
        duet_tape *t;
        GOOD(duet_autograd_context_create(&c, w->rpc));
        for (int i = 0; i < 2; i++) {
            GOOD(duet_autograd_pass(&t, c, i ? alone : averaged, ROWS));
            duet_tensor *x = rows(w, X);
            GOOD(duet_autograd_keep(t, x));
            loss[i] = mean_of_squares(t, duet_linear(t, duet_input(t, x), 0, -1));
        }
        GOOD(duet_autograd_sync(t, "w0", "pass_of_ddp", DUET_NO_ARGS, 0, NULL));
        GOOD(duet_autograd_backward(c, loss, 2, 1));
        GOOD(duet_tensor_read(duet_params_grad(averaged, 0), is));
        for (int i = 0; i < 2; i++) {
            GOOD(duet_autograd_gradients(&grad, c, i ? alone : averaged, 0));
            GOOD(duet_tensor_read(grad, want));
            duet_tensor_free(grad);
            MUST(!memcmp(is, want, sizeof is) && is[0] != 0, "%d", i);
        }
        FAILS(DUET_USAGE, duet_autograd_backward(c, loss, 1, 0), "with DDP each pass has one");
        duet_autograd_context_free(c);
    }
    duet_ddp_free(ddp);
    duet_group_destroy(&group);
    duet_params_free(averaged), duet_params_free(alone);
}

Test(contexts, average_where_there_is_a_ddp, .timeout = 60) {
    static const struct duet_rpc_function functions_[] = {{"pass_of_ddp", pass_of_ddp, NULL, NULL}};
    WORKERS(1, ddp_of_one, functions_);
}

/* A stream that ends behind the end of the pool, as the transport closes: no job is given to it. */
static void stopped(struct worker *w) {
    duet_rpc *rpc = w->rpc;
    struct peer *other = &rpc->peers[1];
    uint64_t id = (uint64_t)other->rank << ID_BITS | 1;
    pthread_mutex_lock(&rpc->lock);
    other->state = PEER_HERE;
    duet_autograd_context *c = context_enter(rpc, id, 0);
    rpc->stop = 1;
    context_leave(c);
    peer_ends(rpc, other, PEER_GONE, "the test says so");
    MUST(rpc->contexts == c);
    pthread_mutex_unlock(&rpc->lock);
    GOOD(duet_rpc_shutdown(&w->rpc, 0, 0));
}

Test(contexts, a_worker_that_stops_starts_nothing, .timeout = 30) {
    worker_abrupt = 1;
    WORKERS(1, stopped, functions);
}
