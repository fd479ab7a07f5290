/* The spin kernel on the GPU and its launch, for two callers: spin_executor.c for a rank on a
 * GPU of its own, and grid.c for one grid that runs for all ranks. */
#ifndef ALLREDUCE_CUDA_SPIN_KERNEL_H
#define ALLREDUCE_CUDA_SPIN_KERNEL_H

#include "allreduce/cuda/spin.h"
#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Loads the kernel; it comes before anything may spin, since loading may wait for the GPU.
 * *resident: how many of its blocks the whole GPU holds at once. */
int spin_load(const struct cuda_device *device, int *resident);

/* Enqueues the kernel on the current GPU's stream; `call` is copied. cooperative: the GPU runs all
 * blocks at once, or refuses the launch. */
cudaError_t spin_launch(cudaStream_t stream, const struct spin_call *call, uint32_t blocks,
                        int cooperative);

#ifdef __cplusplus
}
#endif
#endif
