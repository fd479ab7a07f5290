/* Stream memory operations: a stream writes a 64-bit word of device memory when it comes to it,
 * or stands still until the word is large enough. No kernel runs meanwhile, so ranks that share
 * a GPU can wait for each other without keeping it busy. The word may lie in another process's
 * memory (device_import), and only grows.
 *
 *     write   behind all that the stream has done so far, which is visible to who sees the word (a release at the
 *             width of the system; CUDA's default, "no memory barrier" not asked for)
 *     wait    until (int64)(word - at_least) >= 0: a cyclic comparison, so a word of all ones is NOT large; what lets
 *             everybody go is CUDA_VALUE_RELEASE
 *
 * A wait that nobody ends holds its stream for ever: there is no deadline in it. Who waits keeps
 * one of his own, and lets his streams go by writing the release from another stream. CUDA does
 * not know of these dependencies; in a recording they are refused. */
#ifndef DEVICE_CUDA_VALUE_H
#define DEVICE_CUDA_VALUE_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Larger than any epoch, by less than 2^63. */
#define CUDA_VALUE_RELEASE ((uint64_t)1 << 62)

/* Once per device, by the thread that made it, before the other two. ERR_FAILED: the driver or
 * the GPU has no such operations. */
int cuda_value_open(struct cuda_device *device);

int cuda_value_write(struct cuda_stream *stream, uint64_t *flag, uint64_t value);
int cuda_value_wait(struct cuda_stream *stream, const uint64_t *flag, uint64_t at_least);

/* A write on any stream of the current GPU, without a word about failures: for a release after
 * one. */
void cuda_value_put(const struct cuda_device *device, cudaStream_t stream, uint64_t *flag,
                    uint64_t value);

#ifdef __cplusplus
}
#endif
#endif
