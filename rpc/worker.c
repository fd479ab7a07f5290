/* Functions that the files of a worker share: ids, names, waits and the devices of threads. They do
 * not depend on messages, calls, references or contexts. */
#include <stdlib.h>
#include <string.h>

#include "rpc/autograd.h"

uint64_t new_id(duet_rpc *rpc) {
    return (uint64_t)rpc->rank << ID_BITS | ++rpc->ids;
}

/* ---- waiting ---- */

int rpc_wait(duet_rpc *rpc, pthread_cond_t *cond, int64_t deadline) {
    const int64_t second = deadline_after(1);
    cond_wait_until(cond, &rpc->lock, deadline && deadline < second ? deadline : second);
    return deadline && now_ns() >= deadline ? ERR_TIMEOUT : OK;
}

int wait_changed(duet_rpc *rpc, int64_t deadline) {
    return rpc_wait(rpc, &rpc->changed, deadline);
}

static struct turns *turns_of(duet_rpc *rpc, duet_device *device) {
    struct turns *t = rpc->turns;
    while (t->device && t->device != device && t < rpc->turns + DUET_MAX_DEVICES - 1)
        t++;
    t->device = device;
    return t;
}

void device_take(duet_rpc *rpc, duet_device *device) {
    if (!device) return;
    pthread_mutex_lock(&rpc->lock);
    struct turns *t = turns_of(rpc, device);
    for (uint64_t number = t->next++; t->serving != number;)
        wait_changed(rpc, 0);
    t->held = 1;
    t->holder = pthread_self();
    pthread_mutex_unlock(&rpc->lock);
}

void device_give(duet_rpc *rpc, duet_device *device) {
    if (!device) return;
    pthread_mutex_lock(&rpc->lock);
    struct turns *t = turns_of(rpc, device);
    t->held = 0;
    t->serving++;
    pthread_cond_broadcast(&rpc->changed);
    pthread_mutex_unlock(&rpc->lock);
}

duet_device *device_of_thread(duet_rpc *rpc) {
    duet_device *found = NULL;
    pthread_mutex_lock(&rpc->lock);
    for (int i = 0; i < DUET_MAX_DEVICES && rpc->turns[i].device && !found; i++)
        if (rpc->turns[i].held && pthread_equal(rpc->turns[i].holder, pthread_self()))
            found = rpc->turns[i].device;
    pthread_mutex_unlock(&rpc->lock);
    return found;
}

duet_device *pause_begin(duet_rpc *rpc) {
    duet_device *device = device_of_thread(rpc);
    device_give(rpc, device);
    pool_pause(&rpc->pool);
    return device;
}

void pause_end(duet_rpc *rpc, duet_device *device) {
    pool_resume(&rpc->pool);
    device_take(rpc, device);
}

/* ---- names, and the other workers ---- */

int user_name_check(const char *name) {
    if (strncmp(name, "duet.", 5) != 0) return OK;
    return fail(ERR_USAGE, "rpc: '%.140s': names that begin with 'duet.' are reserved", name);
}

int find_worker(const duet_rpc *rpc, const char *name, int *rank) {
    for (*rank = 0; name && *rank < rpc->world; ++*rank)
        if (!strcmp(rpc->peers[*rank].name, name)) return OK;
    return fail(ERR_USAGE, "rpc: worker '%s' does not exist", name ? name : "");
}

int duet_rpc_rank(const duet_rpc *rpc, const char *name) {
    int rank;
    if (!rpc) return -1;
    return !name ? rpc->rank : find_worker(rpc, name, &rank) ? -1 : rank;
}

const char *duet_rpc_name(const duet_rpc *rpc, int rank) {
    return rpc && rank >= 0 && rank < rpc->world ? rpc->peers[rank].name : NULL;
}

int peer_error(const duet_rpc *rpc, int rank, const char *what) {
    const struct peer *p = &rpc->peers[rank];
    return fail(ERR_PEER, "rpc: %s: worker '%s' %s", what, p->name,
                p->state == PEER_LEFT ? "has left" : p->why);
}

/* ---- the end of its memory ---- */

/* References and futures that the program has kept report that the worker has ended, and can be
 * freed: while any exist, this much of it stays. */
void unlock_or_end(duet_rpc *rpc) {
    int last = rpc->over && !rpc->kept;
    pthread_mutex_unlock(&rpc->lock);
    if (!last) return;
    pthread_mutex_destroy(&rpc->lock);
    free(rpc);
}
