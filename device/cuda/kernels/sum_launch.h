/* The launch of kernels/sum.h for a range that one stream adds up: allreduce's steps, and
 * whoever else adds arenas. Not in it: spans and traffic, which are the caller's (cuda_begin,
 * cuda_end). */
#ifndef DEVICE_CUDA_SUM_H
#define DEVICE_CUDA_SUM_H

#include "device/cuda/cuda.h"
#include "device/cuda/kernels/sum.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Once for each GPU, when it is opened or an executor is: the kernel is loaded before anything
 * may wait on the GPU. */
int cuda_sum_load(const struct cuda_device *device);

/* Enqueues the sum: all its memory is reached by the stream's GPU; skew and aligned are set
 * here. A length of 0 is nothing. `what` names it in errors: static storage. */
int cuda_sum(struct cuda_stream *stream, struct sum *sum, const char *what);

#ifdef __cplusplus
}
#endif
#endif
