/* What tests look at inside a worker. */
#ifndef TESTS_RPC_INSIDE_H
#define TESTS_RPC_INSIDE_H

#include "rpc/agent.h"
#include "rpc/autograd.h"

/* What this worker has at the moment. */
struct rpc_info {
    int threads;     /* of the pool */
    int owned, kept; /* objects here; references and futures of this worker */
    int contexts;    /* of duet/autograd.h that are known here */
};

static inline void rpc_info(duet_rpc *rpc, struct rpc_info *info) {
    if (!info) return;
    *info = (struct rpc_info){0};
    if (!rpc) return;
    pthread_mutex_lock(&rpc->lock);
    info->owned = rpc->life.objects;
    info->kept = rpc->kept;
    pthread_mutex_lock(&rpc->pool.lock);
    info->threads = rpc->pool.count;
    pthread_mutex_unlock(&rpc->pool.lock);
    for (duet_autograd_context *c = rpc->contexts; c; c = c->next)
        info->contexts++;
    pthread_mutex_unlock(&rpc->lock);
}

/* The context of the call that a function runs in; NULL: none. It belongs to the caller. */
static inline duet_autograd_context *autograd_context_of(duet_rpc_call *call) {
    return call ? call->said->entered : NULL;
}

#endif
