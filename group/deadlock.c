/* A call that its rank waits for, and a new_group, in another order on another rank:
 *
 *     rank 0    all_reduce #1 (waits for rank 1)    new_group
 *     rank 1    new_group (waits for all)           all_reduce #1
 *
 * Nobody can go on. A call that is not waited for may cross a new_group, since rank 0 then comes to
 * it, even where rank 0 waits for a message first: its sender may be another rank. So the two have
 * no common order that could be compared; what is compared is where the rank is that this one waits
 * for. */
#include "base/error.h"
#include "group/state.h"

void begin_making(struct group *g) {
    g->made++;
    __atomic_store_n(g->memory.makes[g->rank], g->made, __ATOMIC_RELEASE);
}

/* 1: the peer has begun a new_group of this group that this rank has not, and call `number` not. */
static int is_making(const struct group *g, uint64_t number, int peer) {
    if (__atomic_load_n(g->memory.makes[peer], __ATOMIC_ACQUIRE) <= g->made) return 0;
    const struct announcement *theirs = &g->memory.announced[peer][number % ANNOUNCED];
    return __atomic_load_n(&theirs->number, __ATOMIC_ACQUIRE) < number;
}

int look_for_deadlock(struct group *g, const char *call, uint64_t number, int peer) {
    /* Only the thread inside begins a new_group, and it waits for its collective. */
    if (!__atomic_load_n(&g->waits, __ATOMIC_ACQUIRE) || !is_making(g, number, peer)) return OK;
    int code = fail(ERR_FAILED,
                    "Detected mismatch between collectives on ranks. Rank %d is running "
                    "collective: #%llu %s, but Rank %d is running collective: new_group: all ranks "
                    "must make the same calls in the same order",
                    g->ranks[g->rank], (unsigned long long)number, call, g->ranks[peer]);
    comm_abort(g->job->comm, code, error_message());
    return code;
}
