/* Launches kernels. Each family of kernels has two files: NAME.h has the source of the kernels,
 * which also runs on the host, and NAME.cu makes __global__ functions from them and launches them.
 * ops.cu says which family serves an op.
 *
 * A kernel takes one struct by value, so a launch is a kernel, a grid and that struct. */
#ifndef DEVICE_CUDA_KERNELS_LAUNCH_H
#define DEVICE_CUDA_KERNELS_LAUNCH_H

#include "device/cuda/cuda.h"
#include "device/cuda/kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* SIMPLE_THREADS: threads in a block whose threads work independently. GRID_LIMIT: the most blocks
 * in a grid; with more work, each thread takes several turns. It is a constant, not the GPU's
 * number of multiprocessors, because of rule 4 of "the same bits" (docs/design.md section 2). */
enum { GRID_LIMIT = 132 * 16, SIMPLE_THREADS = 256 };

static inline uint32_t grid_for(size_t items, uint32_t items_a_block) {
    size_t blocks = (items + items_a_block - 1) / items_a_block;
    return blocks < GRID_LIMIT ? (uint32_t)blocks : (uint32_t)GRID_LIMIT;
}

/* Enqueues `kernel`, whose one parameter is *param, unless `blocks` is 0. An error stays in
 * cudaGetLastError, which ops.cu reads once after each op. */
static inline void enqueue(struct cuda_stream *stream, const void *kernel, uint32_t blocks,
                           uint32_t threads, const void *param) {
    void *params[1] = {(void *)param};
    dim3 grid = {blocks, 1, 1}, block = {threads, 1, 1};
    if (!blocks) return;
    (void)cudaLaunchKernel(kernel, grid, block, params, 0, stream->stream);
}

/* The same for a kernel with one thread for each of `count` elements. */
static inline void enqueue_each(struct cuda_stream *stream, const void *kernel, size_t count,
                                const void *param) {
    enqueue(stream, kernel, grid_for(count, SIMPLE_THREADS), SIMPLE_THREADS, param);
}

static inline int refuse_size(enum op op) {
    return fail(ERR_FAILED, "%s: 2^31 elements or more: give a smaller batch", op_name(op));
}

/* ---- the families of device/op_table.h ---- */

#define EACH_FAMILY(ROW)        \
    ROW(PRODUCT, product)       \
    ROW(POINTWISE, elementwise) \
    ROW(PICTURE, pool)          \
    ROW(LOSS, loss)             \
    ROW(NORM, norm)             \
    ROW(LAYER_NORM, layer_norm) \
    ROW(RECURRENT, recurrent)   \
    ROW(ATTENTION, attention)   \
    ROW(LOG, log)               \
    ROW(ALGEBRA, algebra)       \
    ROW(ALONG, gather)

/* Each enqueues one op, or fail()s to refuse it. A second function per family returns its kernel i,
 * or NULL after the last, for cuda_load_kernels. */
#define FAMILY_OF(FAMILY, name)                                                             \
    int enqueue_##name(struct cuda_stream *stream, enum op op, const struct op_args *args); \
    const void *name##_kernel(int i);
EACH_FAMILY(FAMILY_OF)
FAMILY_OF(PRODUCT, grouped_conv)

/* For products that a library computes (library_math.c): y (N, C, ...) += b (C), and for an
 * OP_..._BACKWARD_WEIGHT only the bias's gradient. */
int enqueue_add_bias(struct cuda_stream *stream, const struct tensor *y, const struct tensor *b);
int enqueue_bias_gradient(struct cuda_stream *stream, enum op op, const struct op_args *args);

#ifdef __cplusplus
}

/* ---- for .cu files ---- */

/* The calling thread's index in its grid. */
static __device__ __forceinline__ struct thread_index here(void) {
    return {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x};
}

/* Makes the __global__ function `name` from k_name(const type *, struct thread_index), a kernel
 * whose threads work independently. The other arguments are its launch bounds. */
#define THREAD_KERNEL(name, type, ...)                                                           \
    static __global__ void __launch_bounds__(__VA_ARGS__) name(const __grid_constant__ type p) { \
        k_##name(&p, here());                                                                    \
    }

/* The same for k_name(const type *, shared_type *, struct thread_index), a kernel in phases,
 * whose threads work together through shared memory. */
#define BLOCK_KERNEL(name, type, shared_type, ...)                                               \
    static __global__ void __launch_bounds__(__VA_ARGS__) name(const __grid_constant__ type p) { \
        __shared__ shared_type shared;                                                           \
        struct thread_index at = here();                                                         \
        DUET_BLOCK_KERNEL(at);                                                                   \
        k_##name(&p, &shared, at);                                                               \
    }

/* A row of a family's table: the kernel that serves an op. */
struct op_kernel {
    int op;
    const void *kernel;
};
#define OP_KERNEL_ROW(OP, NAME) {OP, DUET_KERNEL(NAME)},

template <int COUNT>
static inline const void *kernel_of(const struct op_kernel (&table)[COUNT], int op) {
    for (int i = 0; i < COUNT; i++)
        if (table[i].op == op) return table[i].kernel;
    return NULL;
}

/* Defines name##_kernel for a family whose kernels are all in its table `kernels`. */
#define FAMILY_KERNELS(name)                                                           \
    const void *name##_kernel(int i) {                                                 \
        return i < (int)(sizeof kernels / sizeof *kernels) ? kernels[i].kernel : NULL; \
    }
#endif
#endif
