/* Shared by the files of collective.h, and private to them. */
#ifndef REPORT_COLLECTIVE_COLLECTIVE_REPLAY_H
#define REPORT_COLLECTIVE_COLLECTIVE_REPLAY_H

#include "report/collective/collective.h"

/* The chunks of DATA that a move fills, or, where it writes elsewhere, those that it takes; 0: it
 * touches no DATA. */
int hops_chunks_of(const struct hops *h, const struct hop_move *m, int *first, int *last);

/* A replay that knows the final state. */
struct replay {
    const struct hops *of; /* borrowed */
    struct hops_state *state;
    uint64_t *final; /* [n][chunk_count] the terms at the end; owned */
    char *counts; /* [n][chunk_count] 1: what it holds at the end is a part of the result; owned */
};
int replay_init(struct replay *r, const struct hops *h); /* ERR_FAILED, ERR_MEMORY */
void replay_free(struct replay *r);                      /* zeroed is fine */

/* 1 if the chunk holds its final content, and that is a part of the result: the terms of several
 * ranks, or those of one rank that others have as well. Memory that the call leaves unchanged is
 * not. */
int replay_is_complete(const struct replay *r, int rank, int chunk);

#endif
