/* What stands in a memory_handle of a GPU: everything a peer needs to reach a slab, or to see
 * that it is its own, or that both ranks sit on one GPU. Packed by hand, byte for byte, since it
 * travels between processes. No CUDA in here: built and tested everywhere. */
#ifndef DEVICE_GPU_HANDLE_H
#define DEVICE_GPU_HANDLE_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GPU_IPC_BYTES = 64, GPU_UUID_BYTES = 16 };

struct gpu_handle {
    unsigned char ipc[GPU_IPC_BYTES]; /* the driver's handle of the slab */
    unsigned char uuid[GPU_UUID_BYTES];
    /* where the slab lies in the exporting process, and its size */
    uint64_t slab, slab_bytes;
    /* of the exporter: a pid means something in its namespace alone */
    uint64_t pid_namespace;
};

/* Fills handle->bytes; offset, size, pid and device are the caller's. */
void gpu_handle_pack(struct memory_handle *handle, const struct gpu_handle *gpu);

/* ERR_FAILED, one line: another kind's handle, a size of 0, a range outside of the slab. */
int gpu_handle_unpack(const struct memory_handle *handle, struct gpu_handle *gpu);

/* Does the handle come from this very process? Then its memory is reached at slab + offset: a
 * driver refuses to open a handle in the process that made it. Equal pids are not enough: each
 * container counts anew. */
int gpu_handle_is_own(const struct memory_handle *handle, const struct gpu_handle *gpu);

uint64_t gpu_pid_namespace(void); /* of this process; 0 where /proc does not tell */

/* Do two ranks' handles lie on one GPU? Chooses the executor, collectively, at init. Not of
 * other kinds: 0. */
int gpu_handles_share(const struct memory_handle *a, const struct memory_handle *b);

#ifdef __cplusplus
}
#endif
#endif
