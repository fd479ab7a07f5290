/* The values behind the references of this worker: how they begin, and how they end. `life` reports
 * when the last reference to one is gone. A thread of the pool then frees the value, because an
 * object's `destroy` is the user's function and the tensors need their device. */
#include <stdio.h>
#include <stdlib.h>

#include "rpc/autograd.h"

struct owner *owner_find(duet_rpc *rpc, uint64_t rref) {
    const struct life_object *at = life_find(&rpc->life, rref);
    return at ? at->value : NULL;
}

struct owner *owner_new(duet_rpc *rpc, uint64_t rref, const char *type) {
    struct owner *o = calloc(1, sizeof *o);
    if (!o) return NULL;
    o->rpc = rpc;
    snprintf(o->type, sizeof o->type, "%s", type);
    life_hold(&rpc->life, rref);
    struct life_object *at = life_find(&rpc->life, rref);
    if (at) return at->value = o;
    free(o);
    return NULL;
}

void owner_ready(duet_rpc *rpc, uint64_t rref, int code) {
    pthread_mutex_lock(&rpc->lock);
    struct owner *o = owner_find(rpc, rref);
    if (o && code) o->failed = failures_of(code);
    if (o) o->ready = 1;
    pthread_cond_broadcast(&rpc->changed);
    pthread_mutex_unlock(&rpc->lock);
}

/* Waits until the function that makes the value has ended. Whoever calls it has a reference, here
 * or elsewhere, so the entry stays. */
int owner_wait(duet_rpc *rpc, uint64_t rref, struct owner **out) {
    struct owner *o;
    duet_device *paused = pause_begin(rpc);
    pthread_mutex_lock(&rpc->lock);
    while ((o = owner_find(rpc, rref)) && !o->ready && !rpc->stop)
        wait_changed(rpc, 0);
    const int code = !o         ? fail(ERR_USAGE, "the object of this reference is gone")
                     : o->ready ? failures_end(&o->failed)
                                : fail(ERR_FAILED, "this worker has been shut down");
    pthread_mutex_unlock(&rpc->lock);
    pause_end(rpc, paused);
    *out = code ? NULL : o;
    return code;
}

/* ---- the end of a value ---- */

static void free_value(void *owner) {
    struct owner *o = owner;
    device_take(o->rpc, o->device);
    duet_rpc_value_free(&o->value);
    if (o->object && o->destroy) o->destroy(o->object);
    if (o->pass) pass_free(o->pass);
    device_give(o->rpc, o->device);
    free(o);
}

/* If no job can be made, or the worker is about to end, the value stays until owner_free_all: its
 * place in the table is still free. */
void life_free(void *context, uint64_t rref, void *value) {
    duet_rpc *rpc = context;
    if (!value || (!rpc->stop && pool_run(&rpc->pool, free_value, value) == OK)) return;
    life_hold(&rpc->life, rref);
    life_find(&rpc->life, rref)->value = value;
}

/* A value may have references to others, which then come after it. */
void owner_free_all(duet_rpc *rpc) {
    while (rpc->life.objects) {
        struct owner *o = rpc->life.object[--rpc->life.objects].value;
        if (o) free_value(o);
    }
}
