/* Contexts end everywhere, also where the end comes at a bad time. */
#include "tests/rpc/matrix.h"

static void pass_of_another(duet_rpc_call *call) {
    duet_tape *t;
    FAILS(DUET_USAGE, duet_autograd_pass(&t, duet_autograd_context_of(call), NULL, ROWS),
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

/* The call to w2 takes long to write. */
static int overtaken(duet_rpc_call *call, void *context) {
    (void)context;
    enum { BYTES = 16 << 20 };
    duet_tape *t;
    pthread_t thread;
    char *bytes = calloc(BYTES, 1);
    pass_of_another(call);
    GOOD(duet_autograd_call_pass(&t, call, NULL, ROWS));
    MUST(!pthread_create(&thread, NULL, end_it, duet_autograd_context_of(call)));
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

Test(contexts, an_end_that_overtakes_a_call_comes_again, .timeout = 60) {
    WORKERS(3, overtake, ends);
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
