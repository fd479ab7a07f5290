/* Which kernel serves an op: the table of the CUDA ops, and the loading of their kernels.
 *
 * No library is called unless one was asked for (library.h). Duet's own kernels give a sample the
 * same bits whichever samples share its launch, which cuBLAS and cuDNN do not promise; so forward
 * and backward data take a whole batch in one launch (docs/design.md section 2, rule 2). */
#include <limits.h>

#include "device/cuda/kernels/launch.h"
#include "device/cuda/library.h"

/* GPUs hold activations in plain layout: neighbouring threads read neighbouring pixels. */
static int refuse_n16(enum op op) {
    return fail(ERR_FAILED, "%s: a GPU has no N16 layout: use plain tensors on cuda", op_name(op));
}

static int enqueue_op(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    switch (op) {
    case OP_CONV2D_FORWARD:
    case OP_CONV2D_BACKWARD_DATA:
    case OP_CONV2D_BACKWARD_WEIGHT:
    case OP_LINEAR_FORWARD:
    case OP_LINEAR_BACKWARD_DATA:
    case OP_LINEAR_BACKWARD_WEIGHT: return enqueue_product(stream, op, args);
    case OP_RELU_FORWARD:
    case OP_RELU_BACKWARD:
    case OP_ADD_FORWARD:
    case OP_SUBTRACT_FORWARD:
    case OP_MULTIPLY_FORWARD:
    case OP_NEGATE:
    case OP_TANH_FORWARD:
    case OP_TANH_BACKWARD:
    case OP_SIGMOID_FORWARD:
    case OP_SIGMOID_BACKWARD:
    case OP_ACTIVATION_FORWARD:
    case OP_ACTIVATION_BACKWARD:
    case OP_DROPOUT_FORWARD:
    case OP_DROPOUT_BACKWARD:
    case OP_DROPOUT2D_FORWARD:
    case OP_DROPOUT2D_BACKWARD:
    case OP_FILL:
    case OP_ADD:
    case OP_SCALE:
    case OP_SGD:
    case OP_ADADELTA:
    case OP_ADAM: return enqueue_elementwise(stream, op, args);
    case OP_AVG_POOL_FORWARD:
    case OP_AVG_POOL_BACKWARD:
    case OP_MAX_POOL_FORWARD:
    case OP_MAX_POOL_BACKWARD:
    case OP_ADAPTIVE_AVG_POOL_FORWARD:
    case OP_ADAPTIVE_AVG_POOL_BACKWARD:
    case OP_ADAPTIVE_MAX_POOL_FORWARD:
    case OP_ADAPTIVE_MAX_POOL_BACKWARD:
    case OP_PAD:
    case OP_CAT: return enqueue_pool(stream, op, args);
    case OP_SOFTMAX_FORWARD:
    case OP_SOFTMAX_BACKWARD:
    case OP_LOG_SOFTMAX_FORWARD:
    case OP_LOG_SOFTMAX_BACKWARD:
    case OP_NLL_FORWARD:
    case OP_NLL_BACKWARD:
    case OP_CROSS_ENTROPY_FORWARD:
    case OP_CROSS_ENTROPY_BACKWARD:
    case OP_MSE_FORWARD:
    case OP_MSE_BACKWARD: return enqueue_loss(stream, op, args);
    case OP_BATCH_NORM_MOMENTS:
    case OP_BATCH_NORM_MERGE:
    case OP_BATCH_NORM_OF_RUNNING:
    case OP_BATCH_NORM_TRACK:
    case OP_BATCH_NORM_FACTORS:
    case OP_BATCH_NORM_FORWARD:
    case OP_BATCH_NORM_SUMS:
    case OP_BATCH_NORM_TOTAL:
    case OP_BATCH_NORM_BACKWARD_WEIGHT:
    case OP_BATCH_NORM_BACKWARD_FACTORS:
    case OP_BATCH_NORM_BACKWARD_DATA: return enqueue_norm(stream, op, args);
    case OP_LAYER_NORM_FORWARD:
    case OP_LAYER_NORM_BACKWARD_DATA:
    case OP_LAYER_NORM_BACKWARD_WEIGHT: return enqueue_layer_norm(stream, op, args);
    case OP_GROUPED_CONV_FORWARD:
    case OP_GROUPED_CONV_BACKWARD_DATA:
    case OP_GROUPED_CONV_BACKWARD_WEIGHT: return enqueue_grouped_conv(stream, op, args);
    case OP_LOSS_SUM:
    case OP_HASH: return enqueue_log(stream, op, args);
    case OP_GATHER_SAMPLES: return enqueue_gather(stream, args);
    case OP_GATHER_ROWS: return enqueue_gather_rows(stream, args);
    case OP_MATMUL:
    case OP_SUM:
    case OP_SPREAD:
    case OP_PERMUTE:
    case OP_TO_INDEX:
    case OP_EMBEDDING_BACKWARD: return enqueue_algebra(stream, op, args);
    case OP_TO_N16:
    case OP_TO_PLAIN:
    case OP_COUNT: break;
    }
    return refuse_n16(op);
}

int cuda_launch_op(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    if (op_takes_n16(args)) return refuse_n16(op);
    CHECK(cuda_library_takes(stream, op) ? cuda_library_enqueue(stream, op, args)
                                         : enqueue_op(stream, op, args));
    CUDA_STREAM_CHECK(stream, cudaGetLastError(), op_name(op));
    return OK;
}

static int load(struct cuda_device *device, const void *kernel) {
    struct cudaFuncAttributes attributes;
    CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel), "loading the kernels",
               device->head.name);
    if (attributes.ptxVersion < device->code_version) device->code_version = attributes.ptxVersion;
    return OK;
}

int cuda_load_kernels(struct cuda_device *device) {
    const void *(*const families[])(int) = {elementwise_kernel, pool_kernel,        loss_kernel,
                                            norm_kernel,        log_kernel,         gather_kernel,
                                            product_kernel,     bias_kernel,        algebra_kernel,
                                            layer_norm_kernel,  grouped_conv_kernel};
    device->code_version = INT_MAX;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (int i = 0; families[f](i); i++)
            CHECK(load(device, families[f](i)));
    return OK;
}
