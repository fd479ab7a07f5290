/* The spin kernel on the GPU and its launch, for a rank with its own GPU (spin_executor.c). */
#ifndef ALLREDUCE_CUDA_SPIN_KERNEL_H
#define ALLREDUCE_CUDA_SPIN_KERNEL_H

#include "allreduce/cuda/spin.h"
#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Loads the kernel. Call it before anything may spin, since loading may wait for the GPU. *resident
 * is the number of its blocks that the whole GPU holds at once. */
int spin_load(const struct cuda_device *device, int *resident);

/* Enqueues the kernel on the current GPU's stream, a block for each channel; `call` is copied. */
cudaError_t spin_launch(cudaStream_t stream, const struct spin_call *call);

#ifdef __cplusplus
}
#endif
#endif
