/* Contexts of distributed autograd. A context begins at its creator. Another worker knows it while
 * a call in it runs there, or after a call has left a pass there.
 *
 * A pass left by a call is an object of this worker (owner.c), and its caller's tape has the
 * only reference to it. So a context ends along its calls: the creator frees its passes, and with
 * them its references to the passes at the callees, and so on. A worker that dies releases all its
 * passes, and with them their gradients. */
#include <stdlib.h>

#include "rpc/autograd.h"

/* ---- the end ---- */

/* A pass of the program; NULL: none is left. */
static struct autograd *own_pass(duet_autograd_context *c) {
    pthread_mutex_lock(&c->rpc->lock);
    struct autograd *p = c->passes;
    while (p && p->call)
        p = p->next;
    pthread_mutex_unlock(&c->rpc->lock);
    return p;
}

/* Frees the passes of the creator. Device memory is freed by a thread that has the device. */
static void clear(duet_autograd_context *c) {
    for (struct autograd *p; (p = own_pass(c));) {
        duet_device *device = p->device;
        device_take(c->rpc, device);
        pass_free(p);
        device_give(c->rpc, device);
    }
}

/* Its last user is the caller. Passes left here are freed when nobody refers to them. */
static void end_context(void *context) {
    duet_autograd_context *c = context, **at = &c->rpc->contexts;
    pthread_mutex_t *lock = &c->rpc->lock;
    clear(c);
    pthread_mutex_lock(lock);
    const int gone = !--c->users && !c->passes;
    while (gone && *at != c)
        at = &(*at)->next;
    if (gone) *at = c->next;
    pthread_mutex_unlock(lock);
    if (gone) free(c);
}

void contexts_free_all(duet_rpc *rpc) {
    for (duet_autograd_context *c = rpc->contexts; c; c = c->next)
        clear(c);
    owner_free_all(rpc);
    for (duet_autograd_context *c; (c = rpc->contexts);) {
        rpc->contexts = c->next;
        free(c);
    }
}

/* ---- the beginning, and calls in it ---- */

static duet_autograd_context *context_find(duet_rpc *rpc, uint64_t id) {
    duet_autograd_context *c = rpc->contexts;
    while (c && c->id != id)
        c = c->next;
    return c;
}

static duet_autograd_context *context_new(duet_rpc *rpc, uint64_t id) {
    duet_autograd_context *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    *c =
        (duet_autograd_context){.rpc = rpc, .id = id, .creator = id_worker(id), .end = end_context};
    c->next = rpc->contexts;
    rpc->contexts = c;
    return c;
}

duet_autograd_context *context_enter(duet_rpc *rpc, uint64_t id, int only_known) {
    duet_autograd_context *c = context_find(rpc, id);
    if (!c && !only_known) c = context_new(rpc, id);
    if (c) c->users++;
    return c;
}

/* ---- called by the program ---- */

int duet_autograd_context_create(duet_autograd_context **out, duet_rpc *rpc) {
    if (!out || !rpc)
        return fail(ERR_USAGE, "autograd: context: no %s was given", rpc ? "place" : "worker");
    pthread_mutex_lock(&rpc->lock);
    /* Counted separately: ids of calls depend on timing, and this id seeds dropout. */
    uint64_t id = (uint64_t)rpc->rank << ID_BITS | ++rpc->contexts_made;
    *out = context_new(rpc, id);
    if (*out) (*out)->users = 1;
    pthread_mutex_unlock(&rpc->lock);
    return *out ? OK : fail(ERR_MEMORY, "autograd: out of host memory for a context");
}

/* Its memory is freed at once if no call in it is running, for the next context. */
void duet_autograd_context_free(duet_autograd_context *c) {
    if (!c) return;
    duet_rpc *rpc = c->rpc;
    duet_device *paused = pause_begin(rpc);
    pthread_mutex_lock(&rpc->lock);
    const int last = c->users == 1;
    if (!last) context_leave(c);
    pthread_mutex_unlock(&rpc->lock);
    if (last) end_context(c);
    pause_end(rpc, paused);
}
