/* Packs, checks and compares the handles of GPU memory; see gpu_handle.h. */
#include "device/gpu_handle.h"

#include <stddef.h>
#include <string.h>

#include "base/error.h"

/* marks a handle of this kind of device */
static const char MARK[8] = "duet-g1";

_Static_assert(sizeof(struct gpu_handle) <= sizeof((struct memory_handle *)0)->bytes,
               "a GPU's handle fits into a handle of memory");

void gpu_handle_pack(struct memory_handle *handle, const struct gpu_handle *gpu) {
    struct gpu_handle marked = *gpu;
    memcpy(marked.mark, MARK, sizeof MARK);
    memset(handle->bytes, 0, sizeof handle->bytes);
    memcpy(handle->bytes, &marked, sizeof marked);
}

int gpu_handle_unpack(const struct memory_handle *handle, struct gpu_handle *gpu) {
    memcpy(gpu, handle->bytes, sizeof *gpu);
    if (memcmp(gpu->mark, MARK, sizeof MARK))
        return fail(ERR_FAILED, "import of device memory: the handle is of another kind of device");
    if (handle->size == 0 || handle->offset > gpu->slab_bytes ||
        handle->size > gpu->slab_bytes - handle->offset)
        return fail(ERR_FAILED,
                    "import of device memory: %llu bytes at %llu: outside of the %llu bytes of "
                    "device %d, process %d",
                    (unsigned long long)handle->size, (unsigned long long)handle->offset,
                    (unsigned long long)gpu->slab_bytes, handle->device, handle->pid);
    return OK;
}

int gpu_handles_share(const struct memory_handle *a, const struct memory_handle *b) {
    const size_t uuid = offsetof(struct gpu_handle, uuid);
    return !memcmp(a->bytes, MARK, sizeof MARK) && !memcmp(b->bytes, MARK, sizeof MARK) &&
           !memcmp(a->bytes + uuid, b->bytes + uuid, GPU_UUID_BYTES);
}
