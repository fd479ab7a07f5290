/* Barrier and gather, in the shared segment.
 *
 * The barrier counts arrivals and never resets: the k-th barrier is complete when the count is k
 * times the world size. Whoever brings it there posts epoch k in the flag that the others wait
 * on. Nobody can arrive for k+1 before k is released, so the count needs no generations, and a
 * fast rank cannot overtake a slow one that is still waking up: its epoch is >= k for good.
 *
 * Gather puts each rank's bytes into a box of its own, passes one barrier, and reads all boxes.
 * With one box a fast rank could overwrite it for the next gather while a slow one still reads.
 * With two boxes in turn it cannot: a box is used again in gather k+2, which begins after
 * barrier k+1, at which every rank has arrived, and a rank arrives there only after it has read
 * all of gather k. */
#include "base/error.h"
#include "comm/rank.h"

#include <string.h>

static int barrier(struct comm *comm, const char *collective, const char *what) {
    struct board *board = comm->board;
    uint64_t k = ++comm->barriers;
    /* The slot's count is for error texts alone; it is written first so that it never lags. */
    __atomic_store_n(&board->slots[comm->rank].begun[COUNT_BARRIERS], k, __ATOMIC_RELEASE);
    /* Acquire and release: the last to arrive has seen what all wrote before they arrived, and
     * passes it on by its post. */
    if (__atomic_add_fetch(&board->arrivals, 1, __ATOMIC_ACQ_REL) == k * (uint64_t)comm->world) {
        comm_post_flag(&board->released, k);
        return OK;
    }
    struct wait wait;
    wait_start(&wait, comm, NULL);
    wait.reason.collective = collective;
    wait.what = what;
    wait.counter = COUNT_BARRIERS;
    wait.target = k;
    return wait_flag(comm, &board->released, k, &wait);
}

int comm_barrier(struct comm *comm, const char *what) {
    return barrier(comm, "barrier", what);
}

int comm_gather(struct comm *comm, const void *mine, size_t bytes, void *all) {
    struct board *board = comm->board;
    int parity = (int)(comm->gathers++ & 1);
    if (bytes > COMM_BLOB_BYTES)
        return fail(ERR_USAGE, "rank %d: gather: %zu bytes a rank: at most %d", comm->rank, bytes,
                    COMM_BLOB_BYTES);
    if (bytes) memcpy(board_box(board, comm->rank, parity), mine, bytes);
    board->slots[comm->rank].box_bytes[parity] = (uint32_t)bytes;
    CHECK(barrier(comm, "gather", NULL));
    for (int r = 0; r < comm->world; r++) {
        if (board->slots[r].box_bytes[parity] != bytes)
            return fail(
                ERR_USAGE,
                "rank %d: gather: rank %d brought %u bytes, this rank %zu: all bring the same",
                comm->rank, r, board->slots[r].box_bytes[parity], bytes);
        if (bytes) memcpy((char *)all + (size_t)r * bytes, board_box(board, r, parity), bytes);
    }
    return OK;
}
