/* The contents of a GPU's memory_handle: all that a peer needs to map the slab, to recognise its
 * own slab, or to see that both ranks use the same GPU. It travels as bytes between processes of
 * one program. No CUDA in here: built and tested everywhere. */
#ifndef DEVICE_GPU_HANDLE_H
#define DEVICE_GPU_HANDLE_H

#include "device/device.h"

enum { GPU_IPC_BYTES = 64, GPU_UUID_BYTES = 16 };

struct gpu_handle {
    char mark[8];                       /* of this kind of device; written by gpu_handle_pack */
    unsigned char ipc[GPU_IPC_BYTES];   /* the driver's handle of the slab */
    unsigned char uuid[GPU_UUID_BYTES]; /* of the GPU */
    uint64_t slab, slab_bytes; /* the slab's address in the exporting process, and its size */
    uint64_t pid_namespace;    /* of the exporter: pids of other namespaces mean nothing here */
    uint64_t ipc_namespace;    /* of the exporter; 0 where /proc does not say */
    uint32_t user;             /* the exporter's effective user */
};

/* Fills in the last three for this process. */
void gpu_handle_sign(struct gpu_handle *gpu);

/* Why a driver may have refused to open the handle here, and what to do about it: the exporter is
 * another user's, or in another namespace; or in general words. */
void gpu_handle_apart(const struct gpu_handle *gpu, char *text, size_t bytes);

/* Fills handle->bytes; the caller sets offset, size, pid and device. */
void gpu_handle_pack(struct memory_handle *handle, const struct gpu_handle *gpu);

/* ERR_FAILED: a handle of another kind, a size of 0, or a range outside the slab. */
int gpu_handle_unpack(const struct memory_handle *handle, struct gpu_handle *gpu);

/* 1: the handle comes from this very process. Its memory then is at slab + offset, since a
 * driver refuses to open a handle in the process that made it. Equal pids are not enough: each
 * container counts its own. */
int gpu_handle_is_own(const struct memory_handle *handle, const struct gpu_handle *gpu);

/* The number of this process's pid namespace; 0 where /proc does not say. */
uint64_t gpu_pid_namespace(void);

/* 1: the memory of both handles is on the same GPU. All ranks choose their executor by it at
 * init. 0 for handles of other kinds. */
int gpu_handles_share(const struct memory_handle *a, const struct memory_handle *b);

#endif
