/* Futures and references as they are held: by the program, by the table of calls, by one another.
 * The last one to release them ends them. References are also passed on here, and arrive. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/autograd.h"

void future_free(struct duet_future *f) {
    if (f->context && !f->rpc->over) context_leave(f->context);
    message_free(f->answer);
    pthread_cond_destroy(&f->ended);
    free(f);
}

void future_drop(struct duet_future *f) {
    if (--f->refs) return;
    f->rpc->futures--;
    future_free(f);
}

duet_rref *rref_new(duet_rpc *rpc, uint64_t id, uint64_t fork, int owner, const char *type) {
    duet_rref *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    *r = (duet_rref){.rpc = rpc, .id = id, .fork = fork, .owner = owner, .refs = 1};
    snprintf(r->type, sizeof r->type, "%s", type);
    rpc->rrefs++;
    return r;
}

/* ---- passed on, and arriving ---- */

static void wait_confirmed(duet_rpc *rpc, duet_rref *r) {
    struct pause pause = pause_begin(rpc);
    pthread_mutex_lock(&rpc->lock);
    while (!life_confirmed(&rpc->life, r->fork) && !rpc->stop &&
           rpc->peers[r->owner].state == PEER_HERE)
        wait_changed(rpc, 0);
    pthread_mutex_unlock(&rpc->lock);
    pause_end(rpc, pause);
}

/* To the owner it goes behind the call that makes the object, in the same stream. */
int rref_pass_on(duet_rpc *rpc, duet_rref *r, int to, uint64_t *child) {
    if (r->rpc != rpc) return fail(ERR_USAGE, "rpc: a reference of another worker of this program");
    pthread_mutex_lock(&rpc->lock);
    int wait = r->fork && to != r->owner && !life_confirmed(&rpc->life, r->fork);
    pthread_mutex_unlock(&rpc->lock);
    if (wait) wait_confirmed(rpc, r);
    pthread_mutex_lock(&rpc->lock);
    int code = rpc->peers[r->owner].state == PEER_HERE
                   ? OK
                   : peer_error(rpc, r->owner, r->type[0] ? r->type : "a reference");
    *child = 0;
    if (!code && !r->fork && to == rpc->rank) {
        life_hold(&rpc->life, r->id); /* what arrives here is held already */
    } else if (!code) {
        *child = new_id(rpc);
        if (rpc->peers[to].state == PEER_HERE) /* to one that is gone nothing is sent */
            life_share(&rpc->life, r->id, r->fork, *child, to);
    }
    pthread_mutex_unlock(&rpc->lock);
    return code;
}

int rref_arrived(duet_rref **out, duet_rpc *rpc, uint64_t id, uint64_t fork, int owner,
                 const char *type, int from) {
    pthread_mutex_lock(&rpc->lock);
    if (fork) life_receive(&rpc->life, id, fork, owner, from);
    *out = rref_new(rpc, id, owner == rpc->rank ? 0 : fork, owner, type);
    pthread_mutex_unlock(&rpc->lock);
    return *out ? OK : fail(ERR_MEMORY, "rpc: no host memory for a reference");
}

void rref_drop(duet_rref *r) {
    duet_rpc *rpc = r->rpc;
    if (--r->refs) return;
    rpc->rrefs--;
    if (r->fork)
        life_release(&rpc->life, r->fork);
    else
        life_release_object(&rpc->life, r->id);
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
