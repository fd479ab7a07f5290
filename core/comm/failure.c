/* Lets a rank report the failure of a job and learn of it. The first failure counts. It is on the
 * board, and every wait of every rank checks it. The failed rank prints the cause, and the others
 * print its number, so the cause appears only once. If a rank has died, the others print the
 * cause. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/rank.h"

int failure_of_job(struct comm *comm, const char *where) {
    struct abort_record failure;
    if (!board_failure(comm->board, &failure)) return OK;
    if (failure.rank == comm->rank && failure.code != ERR_PEER)
        return fail(failure.code, "%s", failure.text);
    char first[BOARD_TEXT];
    snprintf(first, sizeof first, "%s", failure.text);
    /* Mismatched calls are the error of both ranks, and the one that noticed may have returned. */
    if (failure.code != ERR_PEER && failure.rank >= 0 && !strstr(first, "Detected mismatch"))
        snprintf(first, sizeof first, "rank %d, whose error says why", failure.rank);
    return fail(ERR_PEER, "rank %d: %s%sa peer failed first: %s", comm->rank, where,
                where[0] ? ": " : "", first);
}

void comm_abort(struct comm *comm, int code, const char *text) {
    if (!comm || !comm->board || code == OK || code == ERR_PEER) return;
    char prefix[16] = "", line[BOARD_TEXT]; /* a single rank needs no number */
    if (comm->world > 1) snprintf(prefix, sizeof prefix, "rank %d: ", comm->rank);
    /* messages from comm/ already begin with the rank */
    int has_prefix = !strncmp(text, prefix, strlen(prefix));
    snprintf(line, sizeof line, "%s%s", has_prefix ? "" : prefix, text);
    board_abort(comm->board, comm->rank, code, line);
}

void look_for_deaths(struct comm *comm) {
    int64_t now = comm->alone ? now_ns() : 0;
    if (now - __atomic_load_n(&comm->watched_ns, __ATOMIC_RELAXED) < SLICE_NS) return;
    __atomic_store_n(&comm->watched_ns, now, __ATOMIC_RELAXED);
    for (int r = 0; r < comm->world; r++)
        board_look_for_death(comm->board, r);
}

int comm_check(struct comm *comm) {
    if (!comm->board) return OK;
    board_beat(comm->board, comm->rank);
    look_for_deaths(comm);
    return board_aborted(comm->board) ? failure_of_job(comm, "") : OK;
}

int comm_is_aborted(const struct comm *comm) {
    return comm->board && board_aborted(comm->board);
}
