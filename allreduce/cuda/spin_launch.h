/* Between the spin kernel (cuda/spin_kernel.cu) and who launches it: cuda/spin.c, a rank on a
 * GPU of its own, and cuda/grid.c, one grid that stands for all ranks. */
#ifndef ALLREDUCE_CUDA_SPIN_LAUNCH_H
#define ALLREDUCE_CUDA_SPIN_LAUNCH_H

#include "allreduce/cuda/spin.h"
#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Loads the kernel, before anything may spin. *resident: blocks of it that the whole GPU holds
 * at once. */
int spin_load(const struct cuda_device *device, int *resident);

/* Enqueues the kernel on the current GPU's stream. cooperative: all blocks together or none (an
 * error). */
cudaError_t spin_launch(cudaStream_t stream, const struct spin_call *call, uint32_t blocks,
                        int cooperative);

/* What is needed for a rank, and to bring things over (cuda/spin.c). `staging`: pinned memory of
 * SPIN_STAGING bytes. */
enum { SPIN_STAGING = 65536 };
size_t spin_plan_bytes(const struct plan *plan);
int spin_write_plan(struct cuda_device *device, void *staging, char *memory,
                    const struct plan *plan);
int spin_write_rank(struct cuda_device *device, void *staging, struct spin_rank *memory,
                    const struct spin_rank *rank);

/* The record on a page as a line of words, for errors: "ring, step 7 of its plan: slice 12, seen
 * 11, channel 3". */
void spin_describe(const struct spin_page *page, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
