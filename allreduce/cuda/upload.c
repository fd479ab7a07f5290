/* Writes on the service stream, and waits for the writes with the device's deadline. */
#include "allreduce/cuda/upload.h"

/* Waits for what was enqueued, which gave `error`. The caller holds service_lock; it is unlocked
 * here. */
static int finish(struct cuda_device *d, cudaError_t error) {
    int code = OK;
    if (error == cudaSuccess) code = cuda_poll(&d->head, NULL, d->service, &error);
    pthread_mutex_unlock(&d->service_lock);
    if (code) return code;
    if (error == cudaErrorNotReady)
        return fail(ERR_TIMEOUT,
                    "allreduce: memory of %s: not written after %g s: the GPU may be stuck",
                    d->head.name, d->head.config.timeout_s);
    CUDA_CHECK(error, "allreduce: writing memory", d->head.name);
    return OK;
}

int cuda_fill(struct cuda_device *d, void *memory, int byte, size_t bytes) {
    CHECK(cuda_use(&d->head));
    pthread_mutex_lock(&d->service_lock);
    return finish(d, cudaMemsetAsync(memory, byte, bytes, d->service));
}

int cuda_upload(struct cuda_device *d, void *memory, const void *pinned, size_t bytes) {
    CHECK(cuda_use(&d->head));
    pthread_mutex_lock(&d->service_lock);
    return finish(d, cudaMemcpyAsync(memory, pinned, bytes, cudaMemcpyHostToDevice, d->service));
}
