/* Contexts end everywhere, also where the end comes at a bad time. */
#include "tests/rpc/matrix.h"

static void pass_of_another(duet_rpc_call *call) {
    duet_tape *t;
    FAILS(DUET_USAGE, duet_autograd_pass(&t, autograd_context_of(call), NULL, ROWS),
          "worker 'w0' has created this context");
}

/* As soon as the context notes that it calls w2, its creator's word comes that it has ended. */
static void *end_it(void *context) {
    duet_autograd_context *c = context;
    duet_rpc *rpc = c->rpc;
    for (int called = 0; !called;) {
        pthread_mutex_lock(&rpc->lock);
        called = c->called != 0;
        pthread_mutex_unlock(&rpc->lock);
    }
    end_comes(rpc, 0, c->id);
    return NULL;
}

/* The call to w2 takes long to write, so the end comes before it is sent, or behind it. */
FUNCTION(overtaken) {
    enum { BYTES = 16 << 20 };
    duet_tape *t;
    pthread_t thread;
    char *bytes = calloc(BYTES, 1);
    pass_of_another(call);
    GOOD(duet_autograd_call_pass(&t, call, NULL, ROWS));
    MUST(!pthread_create(&thread, NULL, end_it, autograd_context_of(call)));
    int code =
        duet_autograd_sync(t, "w2", "contexts", DUET_ARGS(duet_rpc_bytes(bytes, BYTES)), 0, NULL);
    pthread_join(thread, NULL);
    free(bytes);
    return code;
}

static const struct duet_rpc_function ends[] = {{"overtaken", overtaken, NULL, NULL},
                                                {"contexts", contexts, NULL, NULL}};

static void overtake(struct worker *w) {
    if (w->rank) return;
    for (int i = 0; i < 4; i++) {
        duet_autograd_context *c;
        duet_tape *t;
        GOOD(duet_autograd_context_create(&c, w->rpc));
        GOOD(duet_autograd_pass(&t, c, NULL, ROWS));
        GOOD(duet_autograd_sync(t, "w1", "overtaken", DUET_NO_ARGS, 0, NULL));
        duet_autograd_context_free(c);
    }
    none_left(w);
}

Test(contexts, an_end_never_overtakes_a_call, .timeout = 60) {
    WORKERS(3, overtake, ends);
}

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
    context_leave(context_enter(rpc, id, other->rank, 0));
    rpc->stop = 1;
    peer_ends(rpc, other, PEER_GONE, "the test says so");
    MUST(context_find(rpc, id));
    pthread_mutex_unlock(&rpc->lock);
    GOOD(duet_rpc_shutdown(&w->rpc, 0, 0));
}

Test(contexts, a_worker_that_stops_starts_nothing, .timeout = 30) {
    worker_abrupt = 1;
    WORKERS(1, stopped, functions);
}
