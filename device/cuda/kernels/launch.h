/* Between the files of the CUDA ops: kernels/ops.cu chooses the family, kernels/simple.cu and
 * kernels/product.cu launch its kernels. A kernel takes one struct by value, so a launch is a
 * pointer, a grid and that struct, and a family's kernels are a table that can be walked to load
 * them. */
#ifndef DEVICE_CUDA_KERNELS_LAUNCH_H
#define DEVICE_CUDA_KERNELS_LAUNCH_H

#include "device/cuda/cuda.h"
#include "device/cuda/kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Grids are filled up to this many blocks; beyond, threads take more turns. A constant: see rule
 * 4 of "the same bits" (docs/design.md 2). */
enum { GRID_LIMIT = 132 * 16, SIMPLE_THREADS = 256 };

static inline uint32_t grid_for(size_t items, uint32_t items_a_block) {
    size_t blocks = (items + items_a_block - 1) / items_a_block;
    return blocks < GRID_LIMIT ? (uint32_t)blocks : (uint32_t)GRID_LIMIT;
}

/* Enqueues `kernel`, whose one parameter is *param; nothing if there are no blocks. An error
 * shows in cudaGetLastError, which kernels/ops.cu reads once behind an op. */
static inline void enqueue(struct cuda_stream *stream, const void *kernel, uint32_t blocks,
                           uint32_t threads, const void *param) {
    void *params[1] = {(void *)param};
    dim3 grid = {blocks, 1, 1}, block = {threads, 1, 1};
    if (blocks) (void)cudaLaunchKernel(kernel, grid, block, params, 0, stream->stream);
}

/* One op each; a refusal is a fail(), a failed launch is left in cudaGetLastError. */
int enqueue_elementwise(struct cuda_stream *stream, enum op op, const struct op_args *args);
int enqueue_pool(struct cuda_stream *stream, enum op op, const struct op_args *args);
int enqueue_rows(struct cuda_stream *stream, enum op op, const struct op_args *args);
int enqueue_log(struct cuda_stream *stream, enum op op, const struct op_args *args);
int enqueue_product(struct cuda_stream *stream, enum op op, const struct op_args *args);
int enqueue_gather(struct cuda_stream *stream, const struct op_args *args);
/* Of an OP_..._BACKWARD_WEIGHT the bias's gradient alone, for who gets the rest from a library. */
int enqueue_bias_gradient(struct cuda_stream *stream, enum op op, const struct op_args *args);

/* Every kernel of the two files, one after another; NULL after the last. */
const void *simple_kernel(int i);
const void *product_kernel(int i);
const void *gather_kernel(void); /* kernels/gather.cu has this one */

#ifdef __cplusplus
}
#endif
#endif
