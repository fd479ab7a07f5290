/* Copies and fills. All are items of a stream, and host memory is read or written when the stream
 * reaches them. (From memory that is not pinned CUDA may read earlier, but does not promise to.)
 * The call itself checks that each side is inside one allocation, and that the direction fits the
 * two sides. */
#include "tests/stand_ins/cuda_emulation/emulation.h"

/* 1: device memory; 0: pinned; -1: memory that CUDA does not know; -2: runs over the end of an
 * allocation. */
static int side_of(const void *memory, size_t bytes, struct emulated_allocation *a) {
    if (memory_find(memory, bytes, a)) return is_on_device(a->kind);
    return memory_find(memory, 1, a) ? -2 : -1;
}

static cudaError_t check_copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    struct emulated_allocation a;
    int there = side_of(to, bytes, &a), here = side_of(from, bytes, &a);
    if (!to || !from || there == -2 || here == -2) return cudaErrorInvalidValue;
    switch (kind) {
    case cudaMemcpyHostToHost:
        if (there == 1 || here == 1) return cudaErrorInvalidValue;
        break;
    case cudaMemcpyHostToDevice:
        if (there != 1 || here == 1) return cudaErrorInvalidValue;
        break;
    case cudaMemcpyDeviceToHost:
        if (there == 1 || here != 1) return cudaErrorInvalidValue;
        break;
    case cudaMemcpyDeviceToDevice:
        if (there != 1 || here != 1) return cudaErrorInvalidValue;
        break;
    case cudaMemcpyDefault: break;
    default: return cudaErrorInvalidMemcpyDirection;
    }
    return cudaSuccess;
}

static cudaError_t submit_copy(struct CUstream_st *s, void *to, const void *from, size_t bytes) {
    if (bytes == 0) return cudaSuccess;
    struct item *item = item_new(ITEM_COPY, 0);
    if (!item) return cudaErrorMemoryAllocation;
    item->u.copy.to = to;
    item->u.copy.from = from;
    item->u.copy.bytes = bytes;
    if (p2p_copy(s->gpu, &item->u.copy.to, &item->u.copy.from)) item->fails = 2;
    return stream_submit(s, item);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    ENTER(enter_gpu());
    struct CUstream_st *s = stream_of(stream);
    if (!s) return give(cudaErrorInvalidResourceHandle);
    cudaError_t error = bytes ? check_copy(to, from, bytes, kind) : cudaSuccess;
    if (error != cudaSuccess) return give(error);
    return give(submit_copy(s, to, from, bytes));
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_gpu, const void *from, int from_gpu, size_t bytes,
                                cudaStream_t stream) {
    struct emulated_allocation a;
    ENTER(enter_gpu());
    struct CUstream_st *s = stream_of(stream);
    if (!s) return give(cudaErrorInvalidResourceHandle);
    if (to_gpu < 0 || to_gpu >= emulated.count || from_gpu < 0 || from_gpu >= emulated.count)
        return give(cudaErrorInvalidDevice);
    if (side_of(to, bytes ? bytes : 1, &a) != 1 || side_of(from, bytes ? bytes : 1, &a) != 1)
        return give(cudaErrorInvalidValue);
    return give(submit_copy(s, to, from, bytes));
}

static cudaError_t check_fill(void *memory, size_t bytes) {
    struct emulated_allocation a;
    return side_of(memory, bytes, &a) < 0 ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t stream) {
    ENTER(enter_gpu());
    struct CUstream_st *s = stream_of(stream);
    if (!s) return give(cudaErrorInvalidResourceHandle);
    if (bytes == 0) return cudaSuccess;
    ENTER(check_fill(memory, bytes));
    struct item *item = item_new(ITEM_FILL, 0);
    if (!item) return give(cudaErrorMemoryAllocation);
    item->u.fill.to = memory;
    item->u.fill.byte = byte;
    item->u.fill.bytes = bytes;
    return give(stream_submit(s, item));
}

/* The calls that wait. They use the legacy stream, which does not order non-blocking streams. */
static cudaError_t finish(cudaError_t error) {
    if (error != cudaSuccess) return error;
    stream_drain(stream_of(NULL));
    return give(current_gpu()->fault);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    ENTER(enter_gpu());
    return finish(cudaMemcpyAsync(to, from, bytes, kind, NULL));
}

cudaError_t cudaMemset(void *memory, int byte, size_t bytes) {
    ENTER(enter_gpu());
    return finish(cudaMemsetAsync(memory, byte, bytes, NULL));
}
