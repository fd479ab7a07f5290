/* Flags on streams: a stream posts a 64-bit flag, or waits until a flag has reached an epoch
 * (CUDA's stream memory operations). No kernel runs meanwhile, so ranks that share a GPU can wait
 * for each other without keeping it busy. The flag is in device memory of this process or another
 * (device_import), and only grows.
 *
 *     post   is ordered after all earlier work of the stream, so a thread that sees the flag
 *            also sees that work. It is a release at system scope, CUDA's default unless a call
 *            requests "no memory barrier".
 *     wait   ends when (int64)(flag - epoch) >= 0. The comparison is cyclic, so a flag of all ones
 *            does NOT satisfy it; CUDA_FLAG_RELEASED does, whatever the epoch.
 *
 * A wait has no deadline: a flag that nobody posts blocks its stream for ever. The caller keeps its
 * own deadline, and releases its streams by writing CUDA_FLAG_RELEASED from another stream. */
#ifndef DEVICE_CUDA_FLAG_H
#define DEVICE_CUDA_FLAG_H

#include "device/cuda/cuda.h"

/* Larger than any epoch, but by less than 2^63. */
#define CUDA_FLAG_RELEASED ((uint64_t)1 << 62)

/* Finds the driver's functions. The thread that opened the device calls it once, before any of the
 * others. ERR_FAILED: the driver or the GPU has no such operations. */
int cuda_flag_open(struct cuda_device *device);

/* Enqueues `count` operations, at most CUDA_FLAGS_AT_ONCE, in one driver call. The stream runs them
 * in the order of the array. */
struct cuda_flag_op {
    uint64_t *flag;
    uint64_t epoch;
    int wait; /* 0: a post */
};
enum { CUDA_FLAGS_AT_ONCE = 128 };
int cuda_flags(struct cuda_stream *stream, const struct cuda_flag_op *all, int count);

/* Writes CUDA_FLAG_RELEASED on any stream of the current GPU. It is for the time after a failure,
 * so its own failures are not reported. */
void cuda_flag_release(const struct cuda_device *device, cudaStream_t stream, uint64_t *flag);

#endif
