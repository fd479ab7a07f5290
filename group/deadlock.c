/* Detects a deadlock, in which two ranks make a new_group and a blocking call in different orders:
 *
 *     rank 0    all_reduce #1 (waits for rank 1)    new_group
 *     rank 1    new_group (waits for all)           all_reduce #1
 *
 * Neither rank can continue. The order of the two calls alone proves nothing: an asynchronous call
 * may cross a new_group, because rank 0 then reaches the new_group. So a waiting rank checks which
 * call its peer is in. */
#include "base/error.h"
#include "group/state.h"

void begin_making(struct group *g) {
    g->made++;
    __atomic_store_n(g->memory.makes[g->rank], g->made, __ATOMIC_RELEASE);
}

/* 1: the peer has begun a new_group that this rank has not, and has not begun call `number`. */
static int is_making(const struct group *g, uint64_t number, int peer) {
    if (__atomic_load_n(g->memory.makes[peer], __ATOMIC_ACQUIRE) <= g->made) return 0;
    const struct announcement *theirs = &g->memory.announced[peer][number % ANNOUNCED];
    return __atomic_load_n(&theirs->number, __ATOMIC_ACQUIRE) < number;
}

int look_for_deadlock(struct group *g, const char *call, uint64_t number, int peer) {
    /* Only the thread inside the group begins a new_group, and it is waiting for a call. */
    if (!__atomic_load_n(&g->waits, __ATOMIC_ACQUIRE) || !is_making(g, number, peer)) return OK;
    int code = fail(ERR_FAILED,
                    "Detected mismatch between collectives on ranks. Rank %d is running "
                    "collective: #%llu %s, but Rank %d is running collective: new_group: all ranks "
                    "must make the same calls in the same order",
                    g->ranks[g->rank], (unsigned long long)number, call, g->ranks[peer]);
    comm_abort(g->job->comm, code, error_message());
    return code;
}
