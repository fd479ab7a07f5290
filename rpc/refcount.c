/* Counts the holders of objects, and frees an object that the last one releases. The program, the
 * table of calls, messages and other objects hold futures, references and contexts. They hold each
 * other, too: an answer has references, a reference has the future of the call that made it, and a
 * future has its answer. owner.c has the values that references refer to. */
#include <stdlib.h>

#include "rpc/autograd.h"

/* If no job can be made it stays until the end of the worker, like all others left then. */
void context_check_end(duet_autograd_context *c) {
    if (c->users || (c->passes && c->creator != c->rpc->rank) || c->rpc->stop) return;
    c->users = 1;
    pool_run(&c->rpc->pool, c->end, c);
}

void context_leave(duet_autograd_context *c) {
    c->users--;
    context_check_end(c);
}

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

/* ---- values, and the messages that hold them ---- */

void rrefs_drop(struct duet_rpc_value *v) {
    for (int i = 0; v->type == DUET_RPC_LIST && i < v->count; i++)
        rrefs_drop((struct duet_rpc_value *)&v->items[i]);
    if (v->type != DUET_RPC_RREF) return;
    if (v->rref) rref_drop(v->rref);
    *v = duet_rpc_none();
}

void duet_rpc_value_free(struct duet_rpc_value *v) {
    if (!v) return;
    switch (v->type) {
    case DUET_RPC_TEXT:
    case DUET_RPC_BYTES: free((void *)v->data); break;
    case DUET_RPC_TENSOR: duet_tensor_free(v->tensor); break;
    case DUET_RPC_RREF: duet_rref_free(v->rref); break;
    case DUET_RPC_LIST:
        for (int i = 0; i < v->count; i++)
            duet_rpc_value_free((struct duet_rpc_value *)&v->items[i]);
        free((void *)v->items);
        break;
    default: break;
    }
    *v = duet_rpc_none();
}

void value_drop(struct duet_rpc_value *v) {
    rrefs_drop(v);
    duet_rpc_value_free(v);
}

void frame_free(struct frame *f) {
    if (!f) return;
    free(f->data);
    free(f);
}

void message_drop(struct message *m) {
    if (!m) return;
    value_drop(&m->value);
    frame_free(m->frame);
    free(m);
}
