/* A rank that runs alone with simulated peers, each of which sends the same data as this rank; see
 * comm.h. It has no board, no socket and no thread, so it never waits and never fails. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/rank.h"

int comm_imagine(struct comm **out, int rank, int world) {
    struct comm *comm = *out = calloc(1, sizeof *comm);
    if (!comm) return fail(ERR_MEMORY, "communicator: out of host memory: free some memory");
    comm->rank = rank;
    comm->world = world;
    comm->timeout_ns = INT64_MAX;
    comm->board_fd = -1;
    return OK;
}

int comm_is_imagined(const struct comm *comm) {
    return comm && !comm->board;
}

void imagine_all(const struct comm *comm, const void *mine, size_t bytes, void *all) {
    for (int r = 0; bytes && r < comm->world; r++)
        memmove((char *)all + (size_t)r * bytes, mine, bytes); /* `mine` may be part of `all` */
}
