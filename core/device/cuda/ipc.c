/* Maps device memory of another process with CUDA IPC.
 *
 * A handle names a whole slab, and a shared piece is an offset into it. A process opens a slab
 * once, however many pieces of it are imported, and closes it with the last piece. A process
 * reaches its own slab directly, because the driver refuses to open a handle in the process that
 * made it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda/p2p.h"

struct cuda_import {
    cudaIpcMemHandle_t ipc;
    char *base;
    size_t bytes;
    int pieces; /* imported, and not yet given back by cuda_unimport */
    struct cuda_import *next;
};

/* The GPU is found by its UUID. Reading the properties that hold it takes a while, so this is done
 * only for GPUs out of reach. */
int cuda_reaches_gpu(const struct cuda_device *d, const unsigned char uuid[16]) {
    if (!memcmp(uuid, d->uuid, sizeof d->uuid)) return 1;
    if (cuda_p2p_disabled()) return 0;
    int known = cuda_p2p_known(d, uuid);
    if (known >= 0) return known;
    for (int gpu = 0; gpu < d->gpus; gpu++) {
        struct cudaDeviceProp properties;
        int can = 1;
        if (gpu == d->gpu) continue;
        int out_of_reach = cudaDeviceCanAccessPeer(&can, d->gpu, gpu) == cudaSuccess && !can &&
                           cudaGetDeviceProperties(&properties, gpu) == cudaSuccess;
        cudaGetLastError();
        if (out_of_reach && !memcmp(properties.uuid.bytes, uuid, sizeof d->uuid)) return 0;
    }
    return 1;
}

int cuda_reaches(struct device *device, const struct memory_handle *handle) {
    return cuda_reaches_gpu((const struct cuda_device *)device, handle->uuid);
}

int cuda_export(struct device *device, struct memory_handle *handle, int *fd) {
    struct cuda_device *d = (struct cuda_device *)device;
    cudaIpcMemHandle_t ipc;
    _Static_assert(sizeof ipc == GPU_IPC_BYTES, "the driver's handle fits its place");
    CHECK(cuda_use(device));
    CUDA_CHECK(cudaIpcGetMemHandle(&ipc, d->slab), "export of memory by CUDA IPC", device->name);
    memcpy(handle->ipc, &ipc, sizeof ipc);
    memcpy(handle->uuid, d->uuid, sizeof d->uuid);
    *fd = -1;
    return OK;
}

/* Finds the mapping of the handle's slab, or makes it. The caller holds service_lock. A GPU that
 * cannot be reached is remembered: cuda_reaches_gpu does not know of GPUs that are hidden from this
 * process (CUDA_VISIBLE_DEVICES). */
static int open_slab(struct cuda_device *d, const struct memory_handle *handle,
                     struct cuda_import **out) {
    for (*out = d->imports; *out; *out = (*out)->next)
        if (!memcmp(&(*out)->ipc, handle->ipc, GPU_IPC_BYTES)) return OK;
    struct cuda_import *m = calloc(1, sizeof *m);
    if (!m) return fail(ERR_MEMORY, "out of host memory: import of device memory");
    memcpy(&m->ipc, handle->ipc, sizeof m->ipc);
    m->bytes = (size_t)handle->bytes;
    cudaError_t error =
        cudaIpcOpenMemHandle((void **)&m->base, m->ipc, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) {
        cudaGetLastError();
        free(m);
        if (error == cudaErrorPeerAccessUnsupported) cuda_p2p_learn(d, handle->uuid, 0);
        return fail(ERR_FAILED,
                    "import of memory of device %d, process %d, on %s: %s: %s: ranks must belong "
                    "to one user, in one container, on GPUs that reach each other",
                    handle->device, handle->pid, d->head.name, cudaGetErrorName(error),
                    cudaGetErrorString(error));
    }
    m->next = d->imports;
    d->imports = m;
    *out = m;
    return OK;
}

static int import_own(struct cuda_device *d, const struct memory_handle *handle, void **out) {
    struct cudaPointerAttributes attributes;
    void *memory = (char *)(uintptr_t)handle->base + handle->offset;
    CUDA_CHECK(cudaPointerGetAttributes(&attributes, memory), "import of own memory", d->head.name);
    if (attributes.type != cudaMemoryTypeDevice)
        return fail(ERR_FAILED,
                    "import of memory of device %d, this process, on %s: it is no longer there",
                    handle->device, d->head.name);
    cuda_reach(d, attributes.device);
    *out = memory;
    return OK;
}

int cuda_import(struct device *device, const struct memory_handle *handle, int fd, void **out) {
    struct cuda_device *d = (struct cuda_device *)device;
    struct cuda_import *m = NULL;
    (void)fd; /* this kind of device sends no file descriptor */
    CHECK(cuda_use(device));
    if (handle->pid == (int32_t)getpid()) return import_own(d, handle, out);
    pthread_mutex_lock(&d->service_lock);
    int code = open_slab(d, handle, &m);
    if (!code) {
        m->pieces++;
        *out = m->base + handle->offset;
    }
    pthread_mutex_unlock(&d->service_lock);
    return code;
}

/* A piece of this process's own slab has no mapping, so nothing needs to be closed. */
void cuda_unimport(struct device *device, void *memory) {
    struct cuda_device *d = (struct cuda_device *)device;
    if (cudaSetDevice(d->gpu)) return;
    pthread_mutex_lock(&d->service_lock);
    struct cuda_import **link = &d->imports;
    while (*link &&
           !((char *)memory >= (*link)->base && (char *)memory < (*link)->base + (*link)->bytes))
        link = &(*link)->next;
    struct cuda_import *m = *link;
    if (m && --m->pieces == 0) {
        *link = m->next;
        if (cudaIpcCloseMemHandle(m->base)) cudaGetLastError(); /* the next launch starts clean */
        free(m);
    }
    pthread_mutex_unlock(&d->service_lock);
}

void cuda_unimport_all(struct cuda_device *d, int drained) {
    while (d->imports) {
        struct cuda_import *m = d->imports;
        d->imports = m->next;
        if (drained) cudaIpcCloseMemHandle(m->base);
        free(m);
    }
}
