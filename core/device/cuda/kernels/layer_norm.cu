/* The kernels of layer_norm.h on the GPU, and their launches. */
#include "device/cuda/kernels/layer_norm.h"
#include "device/cuda/kernels/launch.h"

BLOCK_KERNEL(layer_norm_forward, struct norm_rows, struct norm_rows_shared, ROW_THREADS)
BLOCK_KERNEL(layer_norm_backward_data, struct norm_rows, struct norm_rows_shared, ROW_THREADS)
BLOCK_KERNEL(layer_norm_backward_weight, struct norm_weights, struct norm_weights_shared,
             NORM_WEIGHT_THREADS)

static const struct op_kernel kernels[] = {
    {OP_LAYER_NORM_FORWARD, DUET_KERNEL(layer_norm_forward)},
    {OP_LAYER_NORM_BACKWARD_DATA, DUET_KERNEL(layer_norm_backward_data)},
    {OP_LAYER_NORM_BACKWARD_WEIGHT, DUET_KERNEL(layer_norm_backward_weight)},
};

FAMILY_KERNELS(layer_norm)

int enqueue_layer_norm(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    if (op != OP_LAYER_NORM_BACKWARD_WEIGHT) {
        struct norm_rows rows = norm_rows_of(op, args);
        enqueue(stream, kernel_of(kernels, op), grid_for((size_t)rows.rows, ROWS_A_BLOCK),
                ROW_THREADS, &rows);
        return OK;
    }
    struct norm_weights weights = norm_weights_of(args);
    enqueue(stream, kernel_of(kernels, op), grid_for(weights.tiles, 1), NORM_WEIGHT_THREADS,
            &weights);
    return OK;
}
