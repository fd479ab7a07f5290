/* Host memory that all ranks map. Each rank contributes one piece and pins it, so that its GPU
 * copies to and from it at full speed. Only the host accesses the peers' pieces. */
#ifndef ALLREDUCE_CUDA_REGION_H
#define ALLREDUCE_CUDA_REGION_H

#include <stddef.h>

#include "allreduce/executor.h"

struct region {
    void *of[MAX_DEVICES]; /* rank r's piece, at the start of a page; NULL if it is not mapped */
    size_t bytes;          /* size of each piece */
    int n, rank;
    int pinned; /* 1: this rank's piece is pinned */
};

/* Collective: every rank contributes `bytes` zeroed bytes, the same on all ranks. ERR_MEMORY: the
 * host has too little memory. On failure *region is zeroed. */
int region_open(struct region *region, const struct executor_ranks *ranks, size_t bytes);

/* It is not collective: a piece exists as long as any rank maps it. Unpinning may wait for the GPU.
 * A zeroed region is fine. */
void region_close(struct region *region);

#endif
