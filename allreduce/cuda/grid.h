/* All ranks of an allreduce in one grid on one GPU: n ranks in one process, blocks that are
 * (rank, channel), one launch.
 *
 * What runs is the very kernel that ranks with a GPU each run (cuda/spin.h): flags, epochs,
 * waits, deadline. So a machine with a single GPU can show that they are right, and what the
 * plans cost where all ranks share one memory. The launch is cooperative: all blocks stand on
 * the GPU at once, or it is refused. No communicator, no other process.
 *
 * For `duet doctor`, tests and bench/allreduce_perf. Without CUDA in the build, open says so. */
#ifndef ALLREDUCE_GRID_H
#define ALLREDUCE_GRID_H

#include "allreduce/plan.h"
#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct allreduce_grid;

struct allreduce_grid_config {
    enum allreduce_algorithm algorithm; /* one that has a plan */
    int n;                              /* ranks, 1 .. MAX_DEVICES */
    struct plan_config plan;
    /* blocks of a rank at most; 0: as many as there is room for, up to those of a real rank */
    int channels;
    double timeout_s; /* of each wait in the kernel */
    int silent;       /* a rank that never comes, to see what the others do; -1: none */
};
struct allreduce_grid_config allreduce_grid_config_default(enum allreduce_algorithm algorithm,
                                                           int n);

/* Takes flags and scratch for n ranks on the device (cause "comm"). ERR_FAILED: the GPU cannot
 * hold n blocks at once; ERR_USAGE: not a GPU, or a setting that makes no sense; ERR_MEMORY. */
int allreduce_grid_open(struct allreduce_grid **out, struct device *device,
                        const struct allreduce_grid_config *config);

/* Enqueues one allreduce: data[r], count elements in this device's memory, is rank r's buffer;
 * afterwards each holds the sum of all, every term times scale. Calls of one object go on one
 * stream. The first call of another count waits for the stream. A rank that missed a word fails
 * the next sync: ERR_TIMEOUT, naming rank, peer, step of the plan, epochs; then only close is
 * left. */
int allreduce_grid_run(struct allreduce_grid *grid, struct stream *stream, float *const *data,
                       size_t count, float scale);

int allreduce_grid_channels(const struct allreduce_grid *grid, size_t count); /* of a call */

/* the stream has been synced; NULL is fine */
void allreduce_grid_close(struct allreduce_grid *grid);

#ifdef __cplusplus
}
#endif
#endif
