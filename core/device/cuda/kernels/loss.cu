/* The kernels of loss.h and mse.h on the GPU, and their launches: softmax and the losses, 32
 * threads a row. */
#include "device/cuda/kernels/mse.h"
#include "device/cuda/kernels/launch.h"

BLOCK_KERNEL(softmax_forward, struct row_op, struct row_shared, ROW_THREADS)
BLOCK_KERNEL(softmax_backward, struct row_op, struct row_shared, ROW_THREADS)
BLOCK_KERNEL(nll_forward, struct row_op, struct row_shared, ROW_THREADS)
BLOCK_KERNEL(nll_backward, struct row_op, struct row_shared, ROW_THREADS)
BLOCK_KERNEL(cross_entropy_forward, struct row_op, struct row_shared, ROW_THREADS)
BLOCK_KERNEL(cross_entropy_backward, struct row_op, struct row_shared, ROW_THREADS)
BLOCK_KERNEL(mse_forward, struct row_op, struct row_shared, ROW_THREADS)
BLOCK_KERNEL(mse_backward, struct row_op, struct row_shared, ROW_THREADS)

static const struct op_kernel kernels[] = {
    {OP_SOFTMAX_FORWARD, DUET_KERNEL(softmax_forward)},
    {OP_SOFTMAX_BACKWARD, DUET_KERNEL(softmax_backward)},
    {OP_NLL_FORWARD, DUET_KERNEL(nll_forward)},
    {OP_NLL_BACKWARD, DUET_KERNEL(nll_backward)},
    {OP_CROSS_ENTROPY_FORWARD, DUET_KERNEL(cross_entropy_forward)},
    {OP_CROSS_ENTROPY_BACKWARD, DUET_KERNEL(cross_entropy_backward)},
    {OP_MSE_FORWARD, DUET_KERNEL(mse_forward)},
    {OP_MSE_BACKWARD, DUET_KERNEL(mse_backward)},
};

const void *loss_kernel(int i) {
    return kernel_at(kernels, i);
}

int enqueue_loss(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    struct row_op r = row_op_of(op, args);
    enqueue(stream, kernel_of(kernels, op), grid_for((size_t)r.rows, ROWS_A_BLOCK), ROW_THREADS,
            &r);
    return OK;
}
