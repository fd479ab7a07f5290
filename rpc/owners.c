/* The values behind the references of this worker. `life` says when the last reference is gone. The
 * value is then freed on a thread of the pool, because an object's `destroy` is the user's function
 * and the tensors need their device. */
#include <stdio.h>
#include <stdlib.h>

#include "rpc/autograd.h"

struct owner *owner_find(duet_rpc *rpc, uint64_t rref) {
    struct owner *o = rpc->owners;
    while (o && o->rref != rref)
        o = o->next;
    return o;
}

struct owner *owner_new(duet_rpc *rpc, uint64_t rref, const char *type) {
    struct owner *o = owner_find(rpc, rref);
    if (o || !(o = calloc(1, sizeof *o))) return o;
    o->rpc = rpc;
    o->rref = rref;
    snprintf(o->type, sizeof o->type, "%s", type);
    o->next = rpc->owners;
    rpc->owners = o;
    return o;
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
    duet_autograd_context *of = o->pass ? o->pass->context : NULL;
    if (o->pass) pass_free(o->pass);
    device_give(o->rpc, o->device);
    pthread_mutex_lock(&o->rpc->lock);
    if (of && !o->rpc->stop) context_forget_pass(of);
    pthread_mutex_unlock(&o->rpc->lock);
    free(o);
}

void life_free(void *context, uint64_t rref) {
    duet_rpc *rpc = context;
    struct owner **at = &rpc->owners;
    if (rpc->stop) return; /* owner_free_all */
    while (*at && (*at)->rref != rref)
        at = &(*at)->next;
    struct owner *o = *at;
    if (!o) return;
    *at = o->next;
    if (pool_run(&rpc->pool, free_value, o) == OK) return;
    o->next = rpc->owners; /* it stays to the end */
    rpc->owners = o;
}

void owner_free_all(duet_rpc *rpc) {
    for (struct owner *o; (o = rpc->owners);) {
        rpc->owners = o->next;
        free_value(o);
    }
}
