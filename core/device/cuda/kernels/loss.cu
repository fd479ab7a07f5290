/* The kernels of loss.h and mse.h on the GPU, and their launches: softmax and the losses, with 32
 * threads per row. */
#include "device/cuda/kernels/mse.h"
#include "device/cuda/kernels/launch.h"

#define EACH_KERNEL(ROW)                                   \
    ROW(OP_SOFTMAX_FORWARD, softmax_forward)               \
    ROW(OP_SOFTMAX_BACKWARD, softmax_backward)             \
    ROW(OP_CROSS_ENTROPY_FORWARD, cross_entropy_forward)   \
    ROW(OP_CROSS_ENTROPY_BACKWARD, cross_entropy_backward) \
    ROW(OP_MSE_FORWARD, mse_forward)                       \
    ROW(OP_MSE_BACKWARD, mse_backward)

#define KERNEL(OP, NAME) BLOCK_KERNEL(NAME, struct row_op, struct row_shared, ROW_THREADS)
EACH_KERNEL(KERNEL)

static const struct op_kernel kernels[] = {EACH_KERNEL(OP_KERNEL_ROW)};

FAMILY_KERNELS(loss)

int enqueue_loss(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    struct row_op r = row_op_of(op, args);
    enqueue(stream, kernel_of(kernels, op), grid_for((size_t)r.rows, ROWS_A_BLOCK), ROW_THREADS,
            &r);
    return OK;
}
