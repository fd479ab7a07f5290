/* Kernels: what a launch checks and copies, and how a grid runs. Blocks run one after another, and
 * so do the threads of a block; a kernel in phases runs once per block (launch.h).
 *
 * If cudaFuncGetAttributes has not loaded a kernel, its first launch does. As with CUDA's lazy
 * loading, that launch waits until all work of this process on the GPU is done. */
#include "tests/stand_ins/cuda_emulation/emulation.h"

#include <stdio.h>
#include <unistd.h>

__thread struct emulated_place emulated_here;

enum {
    THREADS_A_BLOCK = 1024,
    THREADS_A_MULTIPROCESSOR = 2048,
    BLOCKS_A_MULTIPROCESSOR = 32,
    SHARED_BYTES = 227 << 10
};

static const struct emulated_kernel *kernel_of(const void *kernel) {
    uint64_t magic;
    if (!kernel) return NULL;
    /* The address of a function can be read as well; it does not hold the magic number. */
    memcpy(&magic, kernel, sizeof magic);
    if (magic == EMULATED_KERNEL_MAGIC) return kernel;
    fprintf(stderr, "emulated CUDA: a kernel by its address alone: name it with "
                    "DUET_KERNEL(kernel) of device/cuda/kernels/kernel.h\n");
    return NULL;
}

/* ---- on the stream's thread ---- */

static void run_block(const struct item *item, unsigned x, unsigned y, unsigned z) {
    const struct emulated_index threads = item->u.launch.threads;
    struct emulated_place *here = &emulated_here;
    here->grid = item->u.launch.grid;
    here->threads = threads;
    here->block = (struct emulated_index){x, y, z};
    here->block_kernel = 0;
    for (unsigned k = 0; k < threads.z; k++)
        for (unsigned j = 0; j < threads.y; j++)
            for (unsigned i = 0; i < threads.x; i++) {
                here->thread = (struct emulated_index){i, j, k};
                item->u.launch.kernel->call(item->param);
                if (here->block_kernel) return;
            }
}

static atomic_int hangs; /* 1: a kernel that never ends has started */

/* EMULATED_CUDA_EXIT=waits: exit waits as a driver may that ends its context in an orderly way. */
__attribute__((destructor)) static void wait_at_exit(void) {
    const char *value = getenv("EMULATED_CUDA_EXIT");
    while (value && !strcmp(value, "waits") && atomic_load(&hangs))
        pause();
}

void item_hang(void) {
    atomic_store(&hangs, 1);
    for (;;)
        pause();
}

void kernel_run(const struct item *item, struct gpu *gpu) {
    const struct emulated_index grid = item->u.launch.grid;
    if (item->fails == 1) {
        gpu->fault = cudaErrorIllegalAddress;
        return;
    }
    if (item->fails == 2) item_hang();
    unsigned x = 0, y = 0, z = 0;
    while (z < grid.z) {
        run_block(item, x, y, z);
        if (++x < grid.x) continue;
        x = 0;
        if (++y < grid.y) continue;
        y = 0;
        z++;
    }
}

/* ---- on the caller's ---- */

static void load(const struct emulated_kernel *kernel, const struct CUstream_st *s) {
    unsigned bit = 1u << (s->gpu - emulated.gpus);
    if (__atomic_load_n(kernel->loaded, __ATOMIC_RELAXED) & bit) return;
    gpu_drain(s->gpu);
    __atomic_fetch_or(kernel->loaded, bit, __ATOMIC_RELAXED);
}

/* The blocks that a multiprocessor holds at once, if registers and shared memory allow it. */
static int resident(unsigned threads) {
    unsigned fit = THREADS_A_MULTIPROCESSOR / ((threads + 31) / 32 * 32);
    return (int)(fit < BLOCKS_A_MULTIPROCESSOR ? fit : BLOCKS_A_MULTIPROCESSOR);
}

static cudaError_t check_sizes(dim3 grid, dim3 block, size_t shared) {
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (!threads || threads > THREADS_A_BLOCK || block.z > 64) return cudaErrorInvalidConfiguration;
    if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (shared > SHARED_BYTES) return cudaErrorInvalidValue;
    return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *address, dim3 grid, dim3 block, void **params,
                             size_t shared, cudaStream_t stream) {
    ENTER(enter_gpu());
    const struct emulated_kernel *kernel = kernel_of(address);
    struct CUstream_st *s = stream_of(stream);
    if (!kernel) return give(cudaErrorInvalidDeviceFunction);
    if (!s || s->gpu != current_gpu()) return give(cudaErrorInvalidResourceHandle);
    ENTER(check_sizes(grid, block, shared));
    if (!params || !params[0]) return give(cudaErrorInvalidValue);
    load(kernel, s);
    struct item *item = item_new(ITEM_KERNEL, kernel->bytes);
    if (!item) return give(cudaErrorMemoryAllocation);
    item->u.launch.kernel = kernel;
    item->u.launch.grid = (struct emulated_index){grid.x, grid.y, grid.z};
    item->u.launch.threads = (struct emulated_index){block.x, block.y, block.z};
    memcpy(item->param, params[0], kernel->bytes);
    item->fails = fault_now("launch") ? 1 : fault_now("hang") ? 2 : 0;
    if (p2p_kernel(s->gpu, item->param, kernel->bytes)) item->fails = 2;
    int waits = emulated.blocking;
    cudaError_t error = stream_submit(s, item);
    if (error == cudaSuccess && waits) stream_drain(s);
    return give(error);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *address) {
    ENTER(enter_gpu());
    const struct emulated_kernel *kernel = kernel_of(address);
    if (!kernel) return give(cudaErrorInvalidDeviceFunction);
    __atomic_fetch_or(kernel->loaded, 1u << emulated_self.gpu, __ATOMIC_RELAXED);
    memset(out, 0, sizeof *out);
    out->maxThreadsPerBlock = THREADS_A_BLOCK;
    out->numRegs = 32;
    out->binaryVersion = out->ptxVersion = emulated.capability < 90 ? 80 : 90;
    out->maxDynamicSharedSizeBytes = SHARED_BYTES;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *address,
                                                          int threads, size_t shared) {
    ENTER(enter_gpu());
    if (!kernel_of(address)) return give(cudaErrorInvalidDeviceFunction);
    if (threads < 1) return give(cudaErrorInvalidValue);
    *blocks = threads > THREADS_A_BLOCK || shared > SHARED_BYTES ? 0 : resident((unsigned)threads);
    if (shared && *blocks > (int)(SHARED_BYTES / shared)) *blocks = (int)(SHARED_BYTES / shared);
    return cudaSuccess;
}
