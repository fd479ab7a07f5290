/* Counts the holders of objects. The program, the table of calls and other objects hold futures and
 * references, and the last release frees them. `life` reports when the last reference to a value of
 * this worker is gone. A thread of the pool then frees the value, because an object's `destroy` is
 * the user's function and the tensors need their device. */
#include <stdio.h>
#include <stdlib.h>

#include "rpc/autograd.h"

void future_free(struct duet_future *f) {
    if (f->holds && !f->rpc->over) life_release(&f->rpc->life, f->holds);
    if (f->context && !f->rpc->over) context_leave(f->context);
    message_drop(f->answer);
    pthread_cond_destroy(&f->ended);
    free(f);
}

void future_drop(struct duet_future *f) {
    if (--f->refs) return;
    f->rpc->kept--;
    future_free(f);
}

duet_rref *rref_new(duet_rpc *rpc, uint64_t id, int owner) {
    duet_rref *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    *r = (duet_rref){.rpc = rpc, .id = id, .owner = owner, .refs = 1};
    rpc->kept++;
    return r;
}

void rref_drop(duet_rref *r) {
    duet_rpc *rpc = r->rpc;
    if (--r->refs) return;
    rpc->kept--;
    if (!rpc->over && r->owner == rpc->rank)
        life_release(&rpc->life, r->id);
    else if (!rpc->over)
        life_drop(&rpc->life, r->owner, r->id, rpc->rank);
    if (r->created) future_drop(r->created);
    free(r);
}

void duet_rref_free(duet_rref *r) {
    if (!r) return;
    duet_rpc *rpc = r->rpc;
    pthread_mutex_lock(&rpc->lock);
    rref_drop(r);
    unlock_or_end(rpc);
}

/* ---- passed on, and arriving: lifetime.h says who counts what ---- */

static int owner_is_here(duet_rpc *rpc, const duet_rref *r) {
    return rpc->peers[r->owner].state == PEER_HERE ? OK : peer_error(rpc, r->owner, "a reference");
}

/* Waits until its owner has confirmed the request, or is gone. */
static int wait_confirmed(duet_rpc *rpc, const duet_rref *r, uint64_t number, int64_t deadline) {
    int late = 0;
    duet_device *paused = pause_begin(rpc);
    pthread_mutex_lock(&rpc->lock);
    while (!life_confirmed(&rpc->life, r->owner, number) && !rpc->stop && !late &&
           rpc->peers[r->owner].state == PEER_HERE)
        late = wait_changed(rpc, deadline);
    int code = owner_is_here(rpc, r);
    if (late && !code)
        code = fail(ERR_TIMEOUT, "rpc: a reference: its owner, worker '%s', did not answer in time",
                    rpc->peers[r->owner].name);
    pthread_mutex_unlock(&rpc->lock);
    pause_end(rpc, paused);
    return code;
}

/* The message is not sent. */
static void take_back(duet_rpc *rpc, const struct wire_out *w, int to) {
    pthread_mutex_lock(&rpc->lock);
    for (int i = 0; i < w->passed_count; i++)
        if (w->passed[i]->owner != to)
            life_drop(&rpc->life, w->passed[i]->owner, w->passed[i]->id, to);
    pthread_mutex_unlock(&rpc->lock);
}

int values_pass_on(duet_rpc *rpc, const struct wire_out *w, int to, int64_t deadline) {
    uint64_t asked[MOST_WORKERS] = {0}; /* number of the last HOLD sent to each owner */
    int code = OK;
    pthread_mutex_lock(&rpc->lock);
    for (int i = 0; i < w->passed_count && !code; i++)
        code = owner_is_here(rpc, w->passed[i]);
    for (int i = 0; i < w->passed_count && !code; i++) {
        const duet_rref *r = w->passed[i];
        if (r->owner == to) continue; /* the owner counts the reference on arrival */
        if (r->owner == rpc->rank)
            life_count(&rpc->life, r->id, to);
        else
            asked[r->owner] = life_ask(&rpc->life, r->owner, r->id, to);
    }
    pthread_mutex_unlock(&rpc->lock);
    CHECK(code);
    for (int i = 0; i < w->passed_count && !code; i++)
        if (asked[w->passed[i]->owner])
            code = wait_confirmed(rpc, w->passed[i], asked[w->passed[i]->owner], deadline);
    if (code) take_back(rpc, w, to);
    return code;
}

duet_rref *rref_arrives(duet_rpc *rpc, uint64_t id, int owner) {
    duet_rref *r = rref_new(rpc, id, owner);
    if (r && owner == rpc->rank) life_hold(&rpc->life, id);
    return r;
}

void rrefs_drop(struct duet_rpc_value *v) {
    for (int i = 0; v->type == DUET_RPC_LIST && i < v->count; i++)
        rrefs_drop((struct duet_rpc_value *)&v->items[i]);
    if (v->type != DUET_RPC_RREF) return;
    if (v->rref) rref_drop(v->rref);
    *v = duet_rpc_none();
}

void value_drop(struct duet_rpc_value *v) {
    rrefs_drop(v);
    duet_rpc_value_free(v);
}

/* ---- the values behind the references of this worker ---- */

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
