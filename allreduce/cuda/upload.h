/* Writes device memory outside the calls' stream: zeroed flags, and plans. It uses the device's
 * service stream, which never waits for another rank, so it works even while the stream of the
 * calls waits. */
#ifndef ALLREDUCE_CUDA_UPLOAD_H
#define ALLREDUCE_CUDA_UPLOAD_H

#include <stddef.h>

#include "device/cuda/cuda.h"

/* Set `bytes` bytes of device memory to one value, or copy them from pinned host memory. The write
 * is complete when they return. ERR_TIMEOUT: it took longer than the device's timeout_s. */
int cuda_fill(struct cuda_device *device, void *memory, int byte, size_t bytes);
int cuda_upload(struct cuda_device *device, void *memory, const void *pinned, size_t bytes);

#endif
