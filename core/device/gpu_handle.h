/* The contents of a GPU's memory_handle: all that a peer needs to map the slab, to recognise its
 * own slab, or to see that both ranks use the same GPU. It travels as bytes between processes of
 * one program. This file needs no CUDA, so it is built and tested everywhere. */
#ifndef DEVICE_GPU_HANDLE_H
#define DEVICE_GPU_HANDLE_H

#include "device/device.h"

enum { GPU_IPC_BYTES = 64, GPU_UUID_BYTES = 16 };

struct gpu_handle {
    char mark[8];                       /* names this kind of device; written by gpu_handle_pack */
    unsigned char ipc[GPU_IPC_BYTES];   /* the driver's handle of the slab */
    unsigned char uuid[GPU_UUID_BYTES]; /* the GPU's UUID */
    uint64_t slab, slab_bytes; /* the slab's address in the exporting process, and its size */
};

/* Fills handle->bytes; the caller sets offset, size, pid and device. */
void gpu_handle_pack(struct memory_handle *handle, const struct gpu_handle *gpu);

/* ERR_FAILED: a handle of another kind, a size of 0, or a range outside the slab. */
int gpu_handle_unpack(const struct memory_handle *handle, struct gpu_handle *gpu);

/* 1 if the memory of both handles is on the same GPU. All ranks choose their executor by this
 * result at init. 0 for handles of other kinds. */
int gpu_handles_share(const struct memory_handle *a, const struct memory_handle *b);

#endif
