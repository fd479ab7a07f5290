/* Cuts memory into stretches for the files of hops. Private to this folder. */
#ifndef ALLREDUCE_CUTS_H
#define ALLREDUCE_CUTS_H

#include "allreduce/hops.h"

/* The ends of ranges in one buffer. Once sorted, the offsets [i] and [i + 1] bound stretch i, which
 * every range contains completely or not at all. */
struct cuts {
    uint64_t *at; /* owned */
    int count, capacity;
};
int cuts_add(struct cuts *cuts, uint64_t offset, uint64_t length); /* ERR_MEMORY */
void cuts_sort(struct cuts *cuts);                                 /* keeps each offset once */
size_t cuts_find(const struct cuts *cuts, uint64_t offset); /* the index of an existing offset */
void cuts_free(struct cuts *cuts);

/* Sorts the moves into the order of a replay, joins slices, and cuts DATA into chunks. */
int hops_join(struct hops *hops);

#endif
