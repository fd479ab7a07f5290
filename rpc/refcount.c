/* Counts who holds futures and references: the program, the table of calls, one another. The last
 * release frees them. References are also passed on and received here. */
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
    f->rpc->futures--;
    future_free(f);
}

duet_rref *rref_new(duet_rpc *rpc, uint64_t id, int owner, const char *type) {
    duet_rref *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    *r = (duet_rref){.rpc = rpc, .id = id, .owner = owner, .refs = 1};
    snprintf(r->type, sizeof r->type, "%s", type);
    rpc->rrefs++;
    rpc->forks += owner != rpc->rank;
    return r;
}

void rref_drop(duet_rref *r) {
    duet_rpc *rpc = r->rpc;
    if (--r->refs) return;
    rpc->rrefs--;
    rpc->forks -= r->owner != rpc->rank;
    if (!rpc->over && r->owner == rpc->rank)
        life_release(&rpc->life, r->id);
    else if (!rpc->over)
        life_drop(&rpc->life, r->owner, r->id);
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
    return rpc->peers[r->owner].state == PEER_HERE
               ? OK
               : peer_error(rpc, r->owner, r->type[0] ? r->type : "a reference");
}

/* Until its owner has confirmed what was asked of it, or is gone. */
static int wait_confirmed(duet_rpc *rpc, const duet_rref *r, uint64_t number) {
    duet_device *paused = pause_begin(rpc);
    pthread_mutex_lock(&rpc->lock);
    while (!life_confirmed(&rpc->life, r->owner, number) && !rpc->stop &&
           rpc->peers[r->owner].state == PEER_HERE)
        wait_changed(rpc, 0);
    int code = owner_is_here(rpc, r);
    pthread_mutex_unlock(&rpc->lock);
    pause_end(rpc, paused);
    return code;
}

int values_pass_on(duet_rpc *rpc, const struct wire_out *w, int to) {
    uint64_t asked[MOST_WORKERS] = {0}; /* the last number of each owner */
    int code = OK;
    pthread_mutex_lock(&rpc->lock);
    for (int i = 0; i < w->passed_count && !code; i++)
        code = owner_is_here(rpc, w->passed[i]);
    for (int i = 0; i < w->passed_count && !code; i++) {
        const duet_rref *r = w->passed[i];
        if (r->owner == to) continue; /* it counts it when it comes */
        if (r->owner == rpc->rank)
            life_count(&rpc->life, r->id, to);
        else
            asked[r->owner] = life_ask(&rpc->life, r->owner, r->id, to);
    }
    pthread_mutex_unlock(&rpc->lock);
    for (int i = 0; i < w->passed_count && !code; i++)
        if (asked[w->passed[i]->owner])
            code = wait_confirmed(rpc, w->passed[i], asked[w->passed[i]->owner]);
    return code;
}

duet_rref *rref_arrives(duet_rpc *rpc, uint64_t id, int owner, const char *type) {
    duet_rref *r = rref_new(rpc, id, owner, type);
    if (r && owner == rpc->rank) life_hold(&rpc->life, id);
    return r;
}

static void drop_rrefs(struct duet_rpc_value *v) {
    for (int i = 0; v->type == DUET_RPC_LIST && i < v->count; i++)
        drop_rrefs((struct duet_rpc_value *)&v->items[i]);
    if (v->type != DUET_RPC_RREF) return;
    if (v->rref) rref_drop(v->rref);
    *v = duet_rpc_none();
}

void value_drop(struct duet_rpc_value *v) {
    drop_rrefs(v);
    duet_rpc_value_free(v);
}
