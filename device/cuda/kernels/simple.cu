/* CUDA kernels and launches of everything that is no matrix product: elementwise, pools, rows
 * (softmax and losses), logs (loss sum, hash). Each __global__ function is one line around its
 * text in cuda_kernels_*.h.
 *
 * These kernels move bytes or are too small to matter: grids are filled, a thread takes 16 bytes
 * at a time, and launch bounds leave registers for full occupancy. */
#include "device/cuda/kernels/elementwise.h"
#include "device/cuda/kernels/launch.h"
#include "device/cuda/kernels/log.h"
#include "device/cuda/kernels/loss.h"
#include "device/cuda/kernels/pool.h"

static __device__ __forceinline__ struct place here(void) {
    struct place at = {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x};
    return at;
}

/* A kernel whose threads are alone, with its launch bounds, and one whose threads share memory. */
#define LONELY(name, type, ...)                                                                  \
    static __global__ void __launch_bounds__(__VA_ARGS__) name(const __grid_constant__ type p) { \
        k_##name(&p, here());                                                                    \
    }
#define SHARING(name, type, shared_type, threads)                                            \
    static __global__ void __launch_bounds__(threads) name(const __grid_constant__ type p) { \
        __shared__ shared_type shared;                                                       \
        struct place at = here();                                                            \
        DUET_BLOCK_KERNEL(at);                                                               \
        k_##name(&p, &shared, at);                                                           \
    }

/* of a multiprocessor: for the 8 that would fit the compiler spills registers */
enum { POOL_BLOCKS = 6 };

LONELY(relu_forward, struct elementwise, SIMPLE_THREADS)
LONELY(relu_backward, struct elementwise, SIMPLE_THREADS)
LONELY(dropout, struct elementwise, SIMPLE_THREADS)
LONELY(fill, struct elementwise, SIMPLE_THREADS)
LONELY(add, struct elementwise, SIMPLE_THREADS)
LONELY(scale, struct elementwise, SIMPLE_THREADS)
LONELY(sgd, struct elementwise, SIMPLE_THREADS)
LONELY(adadelta, struct elementwise, SIMPLE_THREADS)
LONELY(adam, struct elementwise, SIMPLE_THREADS)
LONELY(avg_pool_forward, struct pool, SIMPLE_THREADS, POOL_BLOCKS)
LONELY(avg_pool_backward, struct pool, SIMPLE_THREADS, POOL_BLOCKS)
LONELY(max_pool_forward, struct pool, SIMPLE_THREADS, POOL_BLOCKS)
LONELY(max_pool_backward, struct pool, SIMPLE_THREADS, POOL_BLOCKS)
LONELY(hash_zero, struct hash, 32)
SHARING(log_softmax_forward, struct row_op, struct row_shared, ROW_THREADS)
SHARING(log_softmax_backward, struct row_op, struct row_shared, ROW_THREADS)
SHARING(nll_forward, struct row_op, struct row_shared, ROW_THREADS)
SHARING(nll_backward, struct row_op, struct row_shared, ROW_THREADS)
SHARING(cross_entropy_forward, struct row_op, struct row_shared, ROW_THREADS)
SHARING(cross_entropy_backward, struct row_op, struct row_shared, ROW_THREADS)
SHARING(loss_sum, struct loss_sum, struct loss_sum_shared, LOG_THREADS)
SHARING(hash, struct hash, struct hash_shared, LOG_THREADS)

/* The kernel that serves an op; NULL: not in this file. */
static const void *kernel_of(enum op op) {
    switch (op) {
    case OP_RELU_FORWARD: return DUET_KERNEL(relu_forward);
    case OP_RELU_BACKWARD: return DUET_KERNEL(relu_backward);
    case OP_DROPOUT_FORWARD:
    case OP_DROPOUT_BACKWARD: return DUET_KERNEL(dropout);
    case OP_FILL: return DUET_KERNEL(fill);
    case OP_ADD: return DUET_KERNEL(add);
    case OP_SCALE: return DUET_KERNEL(scale);
    case OP_SGD: return DUET_KERNEL(sgd);
    case OP_ADADELTA: return DUET_KERNEL(adadelta);
    case OP_ADAM: return DUET_KERNEL(adam);
    case OP_AVG_POOL_FORWARD: return DUET_KERNEL(avg_pool_forward);
    case OP_AVG_POOL_BACKWARD: return DUET_KERNEL(avg_pool_backward);
    case OP_MAX_POOL_FORWARD: return DUET_KERNEL(max_pool_forward);
    case OP_MAX_POOL_BACKWARD: return DUET_KERNEL(max_pool_backward);
    case OP_LOG_SOFTMAX_FORWARD: return DUET_KERNEL(log_softmax_forward);
    case OP_LOG_SOFTMAX_BACKWARD: return DUET_KERNEL(log_softmax_backward);
    case OP_NLL_FORWARD: return DUET_KERNEL(nll_forward);
    case OP_NLL_BACKWARD: return DUET_KERNEL(nll_backward);
    case OP_CROSS_ENTROPY_FORWARD: return DUET_KERNEL(cross_entropy_forward);
    case OP_CROSS_ENTROPY_BACKWARD: return DUET_KERNEL(cross_entropy_backward);
    case OP_LOSS_SUM: return DUET_KERNEL(loss_sum);
    case OP_HASH: return DUET_KERNEL(hash);
    default: return NULL;
    }
}

/* By op number, the ops of other files skipped, hash_zero last. */
const void *simple_kernel(int i) {
    for (int op = 0; op < OP_COUNT; op++)
        if (kernel_of((enum op)op) && i-- == 0) return kernel_of((enum op)op);
    return i == 0 ? DUET_KERNEL(hash_zero) : NULL;
}

int enqueue_elementwise(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    struct elementwise e = elementwise_of(op, args);
    enqueue(stream, kernel_of(op), grid_for(e.count, 4 * SIMPLE_THREADS), SIMPLE_THREADS, &e);
    return OK;
}

int enqueue_pool(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    struct pool p;
    if (!pool_of(op, args, &p))
        return fail(ERR_FAILED, "%s: more than 2^31 elements: give a smaller batch", op_name(op));
    enqueue(stream, kernel_of(op), grid_for(p.count, SIMPLE_THREADS), SIMPLE_THREADS, &p);
    return OK;
}

int enqueue_rows(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    struct row_op r = row_op_of(op, args);
    enqueue(stream, kernel_of(op), grid_for((size_t)r.rows, ROWS_A_BLOCK), ROW_THREADS, &r);
    return OK;
}

/* An empty segment's loss is 0 and an empty tensor's hash too: they are launched all the same. */
int enqueue_log(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    if (op == OP_LOSS_SUM) {
        struct loss_sum s = loss_sum_of(args);
        enqueue(stream, kernel_of(op), 1, LOG_THREADS, &s);
    } else {
        struct hash h = hash_of(args);
        uint32_t blocks = hash_blocks(h.count);
        if (blocks > 1) enqueue(stream, DUET_KERNEL(hash_zero), 1, 32, &h);
        enqueue(stream, kernel_of(op), blocks, LOG_THREADS, &h);
    }
    return OK;
}
