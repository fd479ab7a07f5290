/* All ranks of an allreduce in one grid on one GPU: n ranks in one process, one launch, and each
 * block is a (rank, channel).
 *
 * It runs the very kernel that a rank with a GPU of its own runs (spin.h): the same flags, epochs,
 * waits, deadline. So a machine with a single GPU can check them, and measure what the plans cost
 * where all ranks share one memory. The launch is cooperative: the GPU runs all blocks at once, or
 * refuses. There is no communicator and no other process.
 *
 * For `duet doctor`, tests and benchmarks. In a build without CUDA, open fails and says so. */
#ifndef ALLREDUCE_CUDA_GRID_H
#define ALLREDUCE_CUDA_GRID_H

#include "allreduce/plan.h"
#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct allreduce_grid;

struct allreduce_grid_config {
    enum allreduce_algorithm algorithm; /* one that has a plan (allreduce_has_plan) */
    int n;                              /* ranks, 1 .. MAX_DEVICES */
    struct plan_config plan;
    /* the most blocks of a rank; 0: as many as the GPU has room for, up to those of a real rank */
    int channels;
    double timeout_s; /* of each wait in the kernel */
    int silent;       /* a rank that runs no step, to see what the others do; -1: none */
};
struct allreduce_grid_config allreduce_grid_config_default(enum allreduce_algorithm algorithm,
                                                           int n);

/* Allocates flags and scratch for n ranks on the device (cause "comm"), which must outlive the
 * grid. ERR_USAGE: not a GPU, or a setting that makes no sense; ERR_FAILED: the GPU cannot hold n
 * blocks at once; ERR_MEMORY. On failure *out is NULL. */
int allreduce_grid_open(struct allreduce_grid **out, struct device *device,
                        const struct allreduce_grid_config *config);

/* Enqueues one allreduce, in place: data[r], count elements in this device's memory, is rank r's
 * buffer; afterwards each holds the sum over all ranks, every term times scale. All calls of one
 * grid go on one stream. A call whose count differs from the last one's waits for the stream. A
 * rank whose wait passed its deadline fails the next sync with ERR_TIMEOUT, naming rank, peer, step
 * of the plan and epochs; after that the grid can only be closed. */
int allreduce_grid_run(struct allreduce_grid *grid, struct stream *stream, float *const *data,
                       size_t count, float scale);

/* Channels of each rank in a call of `count` elements. */
int allreduce_grid_channels(const struct allreduce_grid *grid, size_t count);

/* The stream must have been synced. NULL is fine. */
void allreduce_grid_close(struct allreduce_grid *grid);

#ifdef __cplusplus
}
#endif
#endif
