/* Host memory that all ranks map: each rank brings one piece, and has its own piece pinned, so that
 * its GPU copies to and from it at full speed. Peers' pieces are touched by the host only. */
#ifndef ALLREDUCE_CUDA_REGION_H
#define ALLREDUCE_CUDA_REGION_H

#include <stddef.h>

#include "allreduce/executor.h"

struct region {
    void *of[MAX_DEVICES]; /* rank r's piece, at the start of a page; NULL if it is not mapped */
    size_t bytes;          /* of each piece */
    int n, rank;
    int pinned; /* 1: this rank's piece is pinned */
};

/* Collective: every rank brings `bytes` zeroed bytes, the same on all ranks. ERR_MEMORY: the host
 * has too little. On failure *region is zeroed. */
int region_open(struct region *region, const struct executor_ranks *ranks, size_t bytes);

/* Not collective: a piece lives as long as any rank maps it. Unpinning may wait for the GPU. A
 * zeroed region is fine. */
void region_close(struct region *region);

#endif
