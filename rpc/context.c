/* Contexts of distributed autograd: they begin at their creator, are known to each worker from the
 * first call on that carries their id, and end everywhere.
 *
 * The end follows the calls: the creator tells the workers that it has called in the context, and
 * each tells those that it has called. A call and the word of the end go in one stream, and the
 * context notes whom a call goes to in the moment in which it is sent. So each call has an end
 * behind it, and a worker forgets the context for good. A context whose creator or caller has died
 * ends as well. While a call runs in it, it stays. */
#include <stdlib.h>
#include <string.h>

#include "rpc/autograd.h"

static uint64_t bit_of(int rank) {
    return (uint64_t)1 << rank;
}

duet_autograd_context *context_find(duet_rpc *rpc, uint64_t id) {
    duet_autograd_context *c = rpc->contexts;
    while (c && c->id != id)
        c = c->next;
    return c;
}

static duet_autograd_context *context_new(duet_rpc *rpc, uint64_t id) {
    duet_autograd_context *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    *c = (duet_autograd_context){.rpc = rpc, .id = id, .creator = (int)(id >> ID_BITS)};
    c->next = rpc->contexts;
    rpc->contexts = c;
    return c;
}

/* ---- the end ---- */

/* On a thread of the pool, or at the end of the worker; nobody uses it any more. What lies on a
 * device goes by a thread that has it. */
static void free_context(void *context) {
    duet_autograd_context *c = context;
    while (c->passes || c->parts) {
        struct autograd *p = c->passes;
        duet_device *device = p ? p->device : (duet_device *)c->parts->device;
        const int take = device_of_thread(c->rpc) != device;
        if (take) device_take(c->rpc, device);
        if (p) c->passes = p->next;
        if (p) pass_free(p);
        if (!p) grad_sums_free(c, device);
        if (take) device_give(c->rpc, device);
    }
    free(c);
}

static void remove_context(duet_autograd_context *c) {
    duet_autograd_context **at = &c->rpc->contexts;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
}

/* Where no job can be made it stays until the end of the worker. */
static void free_unused(duet_autograd_context *c) {
    if (!c->ended || c->users) return;
    remove_context(c);
    if (pool_run(&c->rpc->pool, free_context, c) == OK) return;
    c->next = c->rpc->contexts;
    c->rpc->contexts = c;
    c->users = 1;
}

static void end_context(duet_autograd_context *c) {
    for (int r = 0; r < c->rpc->world && !c->ended; r++)
        if (c->called & bit_of(r) && r != c->rpc->rank)
            tell_peer(c->rpc, r, &(struct message){.kind = MESSAGE_CONTEXT_END, .context = c->id});
    c->ended = 1;
    free_unused(c);
}

void context_end(duet_rpc *rpc, uint64_t id, int from) {
    duet_autograd_context *c = context_find(rpc, id);
    if (c && c->callers & bit_of(from)) end_context(c);
}

void contexts_of_dead(duet_rpc *rpc, int rank) {
    for (duet_autograd_context *c = rpc->contexts, *next; c; c = next) {
        next = c->next;
        if (c->creator == rank || c->callers & bit_of(rank)) end_context(c);
    }
}

void contexts_free_all(duet_rpc *rpc) {
    for (duet_autograd_context *c; (c = rpc->contexts);) {
        rpc->contexts = c->next;
        free_context(c);
    }
}

/* ---- calls in it ---- */

duet_autograd_context *context_enter(duet_rpc *rpc, uint64_t id, int from, int only_known) {
    duet_autograd_context *c = context_find(rpc, id);
    if (!c && !only_known) c = context_new(rpc, id);
    if (!c) return NULL;
    if (from != rpc->rank && !only_known) c->callers |= bit_of(from);
    c->users++;
    return c;
}

int context_call(duet_autograd_context *c, int to) {
    if (c->ended) return fail(ERR_USAGE, "autograd: the context has ended");
    c->called |= bit_of(to);
    c->users++;
    return OK;
}

void context_leave(duet_autograd_context *c) {
    c->users--;
    free_unused(c);
}

/* ---- in the hands of the program ---- */

int duet_autograd_context_create(duet_autograd_context **out, duet_rpc *rpc) {
    if (!out || !rpc)
        return fail(ERR_USAGE, "autograd: context: no %s was given", rpc ? "place" : "worker");
    pthread_mutex_lock(&rpc->lock);
    /* A count of its own: the ids of calls depend on time, and dropout draws by this one. */
    uint64_t id = (uint64_t)rpc->rank << ID_BITS | ++rpc->contexts_made;
    *out = context_new(rpc, id);
    if (*out) (*out)->users = 1;
    pthread_mutex_unlock(&rpc->lock);
    return *out ? OK : fail(ERR_MEMORY, "autograd: no host memory for a context");
}

static int is_all_on(const duet_autograd_context *c, const duet_device *device) {
    int all = device != NULL;
    for (const struct autograd *p = c->passes; p && all; p = p->next)
        all = p->device == device;
    for (const struct grad_part *p = c->parts; p && all; p = p->next)
        all = (duet_device *)p->device == device;
    return all;
}

/* What lies on the device of this thread goes at once, so that the next context has its memory. */
void duet_autograd_context_free(duet_autograd_context *c) {
    if (!c) return;
    pthread_mutex_t *lock = &c->rpc->lock;
    const duet_device *mine = device_of_thread(c->rpc);
    pthread_mutex_lock(lock);
    int here = c->users == 1 && is_all_on(c, mine);
    if (!here) c->users--;
    end_context(c);
    if (here) remove_context(c);
    pthread_mutex_unlock(lock);
    if (here) free_context(c);
}
