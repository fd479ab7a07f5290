/* A GPU's memory is one slab, which core/device/device.c divides.
 *
 * It is one slab because IPC shares whole allocations: a handle names the result of cudaMalloc,
 * which the driver rounds to 2 MiB, with everything in it. With one slab per device, a multiple of
 * 2 MiB, a peer maps exactly that device's memory, once, and each import is an offset. Also,
 * cudaMalloc waits for the GPU, and with a slab a steady step does not call it. */
#include <string.h>

#include "base/advice.h"
#include "device/cuda/cuda.h"

static const size_t STEP = (size_t)2 << 20;
/* The default is at most this much, since other programs may need the GPU, too: more must be
 * requested. */
static const size_t DEFAULT_CAP = (size_t)4 << 30;
/* An estimate of the GPU memory that one process's context and libraries take. */
static const size_t CONTEXT_BYTES = (size_t)512 << 20;

/* config.memory_bytes, or else the default share. The share depends on the size of the GPU and not
 * on its free memory, because the ranks that share a GPU start at the same time. */
static size_t slab_size(const struct cuda_device *d, size_t total) {
    size_t sharers = (size_t)d->sharers, asked = (size_t)d->head.config.memory_bytes;
    if (asked) return asked;
    size_t contexts = sharers * CONTEXT_BYTES;
    size_t share = total > contexts ? (total - contexts) / sharers / 10 * 8 : 0;
    if (share > DEFAULT_CAP) share = DEFAULT_CAP;
    return share < STEP ? STEP : share / STEP * STEP;
}

int cuda_memory_open(struct cuda_device *d) {
    size_t free_now = 0, total = 0;
    char wanted[32], available[32], workspace[32];
    if (d->head.config.memory_bytes > (uint64_t)INT64_MAX - STEP)
        return fail(ERR_USAGE, "memory of %s: %llu bytes: " ADVICE_MEMORY_SIZE, d->head.name,
                    (unsigned long long)d->head.config.memory_bytes);
    CUDA_CHECK(cudaMemGetInfo(&free_now, &total), "size of the memory", d->head.name);
    size_t bytes = slab_size(d, total);
    if (bytes < CUDA_WORKSPACE_BYTES + STEP) /* refuse here, where the cause is known */
        return fail(ERR_MEMORY,
                    "out of memory on device %d: %s for it on GPU %d (%s, %s for %d device%s), and "
                    "the workspace of its kernels alone takes %s: " ADVICE_FEWER_DEVICES
                    ", or " ADVICE_MORE_MEMORY,
                    d->head.config.index, format_bytes(bytes, wanted, sizeof wanted), d->gpu,
                    d->gpu_name, format_bytes(total, available, sizeof available), d->sharers,
                    d->sharers > 1 ? "s" : "",
                    format_bytes(CUDA_WORKSPACE_BYTES, workspace, sizeof workspace));
    cudaError_t error = cudaMalloc(&d->slab, (bytes + STEP - 1) / STEP * STEP);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        d->slab = NULL;
        return fail(ERR_MEMORY,
                    "out of memory on device %d: its memory of %s: GPU %d (%s) has %s free for %d "
                    "device%s: " ADVICE_LESS_MEMORY ", or " ADVICE_FEWER_DEVICES,
                    d->head.config.index, format_bytes(bytes, wanted, sizeof wanted), d->gpu,
                    d->gpu_name, format_bytes(free_now, available, sizeof available), d->sharers,
                    d->sharers > 1 ? "s" : "");
    }
    CUDA_CHECK(error, "memory", d->head.name);
    d->head.memory = d->slab;
    d->head.ledger.capacity = bytes;
    return OK;
}

void cuda_memory_close(struct cuda_device *d, int drained) {
    if (d->slab && drained) cudaFree(d->slab);
    d->slab = NULL;
}

/* It is complete before anybody can use the memory. A failure here is one of the context, so the
 * next call on a stream returns it. */
void cuda_memory_spoil(struct device *device, void *memory, size_t bytes) {
    struct cuda_device *d = (struct cuda_device *)device;
    if (cudaSetDevice(d->gpu)) return;
    pthread_mutex_lock(&d->service_lock);
    cudaError_t state = cudaMemsetAsync(memory, 0xff, bytes, d->service);
    if (state == cudaSuccess) (void)cuda_poll(&d->head, NULL, d->service, &state);
    pthread_mutex_unlock(&d->service_lock);
}

/* Pinned: the GPU's copy engine reads it while the program goes on. Portable: pinned for every GPU
 * of the process. */
int cuda_host_alloc(struct device *device, void **out, size_t bytes) {
    char size[32];
    CHECK(cuda_use(device));
    cudaError_t error = cudaHostAlloc(out, bytes ? bytes : 1, cudaHostAllocPortable);
    if (error == cudaSuccess) return OK;
    *out = NULL;
    cudaGetLastError();
    return fail(ERR_MEMORY,
                "out of pinned host memory: %s asked for %s's transfers: %s: use a smaller batch",
                format_bytes(bytes, size, sizeof size), device->name, cudaGetErrorString(error));
}

/* cudaFreeHost waits for the GPU and knows no deadline. If a stream does not drain, a copy may
 * still read the memory, so it stays until the process ends. */
void cuda_host_free(struct device *device, void *memory) {
    struct cuda_device *d = (struct cuda_device *)device;
    if (cudaSetDevice(d->gpu) != cudaSuccess || !cuda_drain(&d->compute) || !cuda_drain(&d->comm) ||
        !cuda_drain(&d->copy))
        return;
    if (cudaFreeHost(memory)) cudaGetLastError(); /* the next launch starts clean */
}
