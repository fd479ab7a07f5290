/* The bytes of a GPU's memory_handle (device/gpu_handle.h):
 *
 *     0      8     72     88     96           104             112             120    124
 *     | mark | ipc | uuid | slab | slab_bytes | pid_namespace | ipc_namespace | user | */
#include "device/gpu_handle.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

/* marks a handle of this kind of device */
static const char MARK[8] = "duet-g1";

enum {
    AT_IPC = 8,
    AT_UUID = 72,
    AT_SLAB = 88,
    AT_BYTES = 96,
    AT_NAMESPACE = 104,
    AT_IPC_NAMESPACE = 112,
    AT_USER = 120
};

void gpu_handle_pack(struct memory_handle *handle, const struct gpu_handle *gpu) {
    unsigned char *to = handle->bytes;
    memset(to, 0, sizeof handle->bytes);
    memcpy(to, MARK, sizeof MARK);
    memcpy(to + AT_IPC, gpu->ipc, GPU_IPC_BYTES);
    memcpy(to + AT_UUID, gpu->uuid, GPU_UUID_BYTES);
    memcpy(to + AT_SLAB, &gpu->slab, sizeof gpu->slab);
    memcpy(to + AT_BYTES, &gpu->slab_bytes, sizeof gpu->slab_bytes);
    memcpy(to + AT_NAMESPACE, &gpu->pid_namespace, sizeof gpu->pid_namespace);
    memcpy(to + AT_IPC_NAMESPACE, &gpu->ipc_namespace, sizeof gpu->ipc_namespace);
    memcpy(to + AT_USER, &gpu->user, sizeof gpu->user);
}

int gpu_handle_unpack(const struct memory_handle *handle, struct gpu_handle *gpu) {
    const unsigned char *from = handle->bytes;
    if (memcmp(from, MARK, sizeof MARK))
        return fail(ERR_FAILED, "import of device memory: the handle is of another kind of device");
    memcpy(gpu->ipc, from + AT_IPC, GPU_IPC_BYTES);
    memcpy(gpu->uuid, from + AT_UUID, GPU_UUID_BYTES);
    memcpy(&gpu->slab, from + AT_SLAB, sizeof gpu->slab);
    memcpy(&gpu->slab_bytes, from + AT_BYTES, sizeof gpu->slab_bytes);
    memcpy(&gpu->pid_namespace, from + AT_NAMESPACE, sizeof gpu->pid_namespace);
    memcpy(&gpu->ipc_namespace, from + AT_IPC_NAMESPACE, sizeof gpu->ipc_namespace);
    memcpy(&gpu->user, from + AT_USER, sizeof gpu->user);
    if (handle->size == 0 || handle->offset > gpu->slab_bytes ||
        handle->size > gpu->slab_bytes - handle->offset)
        return fail(ERR_FAILED,
                    "import of device memory: %llu bytes at %llu: outside of the %llu bytes of "
                    "device %d, process %d",
                    (unsigned long long)handle->size, (unsigned long long)handle->offset,
                    (unsigned long long)gpu->slab_bytes, handle->device, handle->pid);
    return OK;
}

static uint64_t number_of(const char *path) {
    struct stat s;
    return stat(path, &s) ? 0 : (uint64_t)s.st_ino;
}

uint64_t gpu_pid_namespace(void) {
    return number_of("/proc/self/ns/pid");
}

void gpu_handle_sign(struct gpu_handle *gpu) {
    gpu->pid_namespace = gpu_pid_namespace();
    gpu->ipc_namespace = number_of("/proc/self/ns/ipc");
    gpu->user = (uint32_t)geteuid();
}

void gpu_handle_apart(const struct gpu_handle *gpu, char *text, size_t bytes) {
    struct gpu_handle own;
    gpu_handle_sign(&own);
    if (gpu->user != own.user)
        snprintf(text, bytes,
                 "it belongs to user %u, this process to user %u: start all ranks as "
                 "one user",
                 gpu->user, own.user);
    else if (gpu->ipc_namespace != own.ipc_namespace)
        snprintf(text, bytes,
                 "the two are in different IPC namespaces: start containers with "
                 "--ipc=host, or all ranks in one container");
    else if (gpu->pid_namespace != own.pid_namespace)
        snprintf(text, bytes,
                 "the two are in different PID namespaces: start containers with "
                 "--pid=host, or all ranks in one container");
    else
        snprintf(text, bytes,
                 "ranks must be one user's, in one container or with a common IPC "
                 "namespace, on GPUs that reach each other");
}

int gpu_handle_is_own(const struct memory_handle *handle, const struct gpu_handle *gpu) {
    return handle->pid == (int32_t)getpid() && gpu->pid_namespace == gpu_pid_namespace();
}

int gpu_handles_share(const struct memory_handle *a, const struct memory_handle *b) {
    return !memcmp(a->bytes, MARK, sizeof MARK) && !memcmp(b->bytes, MARK, sizeof MARK) &&
           !memcmp(a->bytes + AT_UUID, b->bytes + AT_UUID, GPU_UUID_BYTES);
}
