/* The bytes of a GPU's memory_handle (device/gpu_handle.h):
 *
 *     0       8        72        88        96              104                112
 *     | mark  |  ipc   |  uuid   |  slab   |  slab_bytes   |  pid_namespace   | */
#include "device/gpu_handle.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

/* marks a handle of this kind of device */
static const char MARK[8] = "duet-g1";

enum { AT_IPC = 8, AT_UUID = 72, AT_SLAB = 88, AT_BYTES = 96, AT_NAMESPACE = 104 };

void gpu_handle_pack(struct memory_handle *handle, const struct gpu_handle *gpu) {
    unsigned char *to = handle->bytes;
    memset(to, 0, sizeof handle->bytes);
    memcpy(to, MARK, sizeof MARK);
    memcpy(to + AT_IPC, gpu->ipc, GPU_IPC_BYTES);
    memcpy(to + AT_UUID, gpu->uuid, GPU_UUID_BYTES);
    memcpy(to + AT_SLAB, &gpu->slab, sizeof gpu->slab);
    memcpy(to + AT_BYTES, &gpu->slab_bytes, sizeof gpu->slab_bytes);
    memcpy(to + AT_NAMESPACE, &gpu->pid_namespace, sizeof gpu->pid_namespace);
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
    if (handle->size == 0 || handle->offset > gpu->slab_bytes ||
        handle->size > gpu->slab_bytes - handle->offset)
        return fail(ERR_FAILED,
                    "import of device memory: %llu bytes at %llu: outside of the %llu bytes of "
                    "device %d, process %d",
                    (unsigned long long)handle->size, (unsigned long long)handle->offset,
                    (unsigned long long)gpu->slab_bytes, handle->device, handle->pid);
    return OK;
}

uint64_t gpu_pid_namespace(void) {
    struct stat s;
    return stat("/proc/self/ns/pid", &s) ? 0 : (uint64_t)s.st_ino;
}

int gpu_handle_is_own(const struct memory_handle *handle, const struct gpu_handle *gpu) {
    return handle->pid == (int32_t)getpid() && gpu->pid_namespace == gpu_pid_namespace();
}

int gpu_handles_share(const struct memory_handle *a, const struct memory_handle *b) {
    return !memcmp(a->bytes, MARK, sizeof MARK) && !memcmp(b->bytes, MARK, sizeof MARK) &&
           !memcmp(a->bytes + AT_UUID, b->bytes + AT_UUID, GPU_UUID_BYTES);
}
