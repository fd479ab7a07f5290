/* Launches sum.h's kernel for a range that a single stream adds up: a step of an allreduce, or DP's
 * reduce. The caller records spans and traffic (cuda_begin, cuda_end). */
#ifndef DEVICE_CUDA_KERNELS_SUM_LAUNCH_H
#define DEVICE_CUDA_KERNELS_SUM_LAUNCH_H

#include "device/cuda/cuda.h"
#include "device/cuda/kernels/sum.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Loads the kernel. Call it before anything on the GPU may wait for another rank, since loading may
 * wait for the GPU. */
int cuda_sum_load(const struct cuda_device *device);

/* Enqueues the sum. The stream's GPU must reach all memory in the sum. This function sets skew and
 * aligned. A length of 0 enqueues nothing. `what` names the sum in errors. */
int cuda_sum(struct cuda_stream *stream, struct sum *sum, const char *what);

#ifdef __cplusplus
}
#endif
#endif
