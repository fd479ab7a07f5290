/* The fast path of one instruction set: its kernels and their table. The including file has chosen
 * the instruction set and defined LANES and KERNELS, the name of the table. A kernel that knows
 * only N16 calls the reference when its operands are PLAIN. */
#include "device/host/kernels/vec.inc.h"

#include "device/host/kernels/n16_conv.inc.h"
#include "device/host/kernels/n16_winograd.inc.h"
#include "device/host/kernels/n16_turned.inc.h"
#include "device/host/kernels/n16_winograd_weight.inc.h"
#include "device/host/kernels/n16_conv_forward.inc.h"
#include "device/host/kernels/n16_conv_data.inc.h"
#include "device/host/kernels/n16_conv_weight.inc.h"
#include "device/host/kernels/n16_grouped_conv.inc.h"
#include "device/host/kernels/n16_grouped_conv_weight.inc.h"
#include "device/host/kernels/n16_linear.inc.h"
#include "device/host/kernels/n16_matmul.inc.h"
#include "device/host/kernels/n16_attention.inc.h"
#include "device/host/kernels/n16_linear_plain.inc.h"
#include "device/host/kernels/n16_recurrent.inc.h"
#include "device/host/kernels/n16_pool.inc.h"
#include "device/host/kernels/n16_norm.inc.h"
#include "device/host/kernels/n16_layer_norm.inc.h"
#include "device/host/kernels/n16_dropout.inc.h"
#include "device/host/kernels/n16_elementwise.inc.h"
#include "device/host/kernels/softmax_rows.inc.h"
#include "device/host/kernels/sort_rows.inc.h"

#define CONV2D(pass)                                         \
    static void n16_conv2d_##pass(const struct op_args *a) { \
        if (a->in[0].layout == LAYOUT_PLAIN)                 \
            reference_conv2d_##pass(a);                      \
        else if (a->p.conv.general)                          \
            grouped_conv_##pass(a);                          \
        else                                                 \
            square_conv_##pass(a);                           \
    }
CONV2D(forward)
CONV2D(backward_data)
CONV2D(backward_weight)

host_kernel *const KERNELS[OP_COUNT] = {
    [OP_TO_N16] = n16_to_n16,
    [OP_TO_PLAIN] = n16_to_plain,
    [OP_CONV2D_FORWARD] = n16_conv2d_forward,
    [OP_CONV2D_BACKWARD_DATA] = n16_conv2d_backward_data,
    [OP_CONV2D_BACKWARD_WEIGHT] = n16_conv2d_backward_weight,
    [OP_LINEAR_FORWARD] = n16_linear_forward,
    [OP_LINEAR_BACKWARD_DATA] = n16_linear_backward_data,
    [OP_LINEAR_BACKWARD_WEIGHT] = n16_linear_backward_weight,
    [OP_ADD_FORWARD] = fast_add_forward,
    [OP_SUBTRACT_FORWARD] = fast_subtract_forward,
    [OP_MULTIPLY_FORWARD] = fast_multiply_forward,
    [OP_WHERE] = fast_where,
    [OP_ACTIVATION_FORWARD] = fast_activation_forward,
    [OP_ACTIVATION_BACKWARD] = fast_activation_backward,
    [OP_AVG_POOL_FORWARD] = n16_avg_pool_forward,
    [OP_AVG_POOL_BACKWARD] = n16_avg_pool_backward,
    [OP_MAX_POOL_FORWARD] = n16_max_pool_forward,
    [OP_MAX_POOL_BACKWARD] = n16_max_pool_backward,
    [OP_ADAPTIVE_AVG_POOL_FORWARD] = n16_adaptive_avg_pool_forward,
    [OP_ADAPTIVE_AVG_POOL_BACKWARD] = n16_adaptive_avg_pool_backward,
    [OP_DROPOUT] = n16_dropout,
    [OP_SOFTMAX_FORWARD] = row_softmax_forward,
    [OP_SOFTMAX_BACKWARD] = row_softmax_backward,
    [OP_CROSS_ENTROPY_FORWARD] = row_cross_entropy_forward,
    [OP_CROSS_ENTROPY_BACKWARD] = row_cross_entropy_backward,
    [OP_BATCH_NORM_MOMENTS] = n16_batch_norm_moments,
    [OP_BATCH_NORM_FORWARD] = n16_batch_norm_forward,
    [OP_BATCH_NORM_SUMS] = n16_batch_norm_sums,
    [OP_BATCH_NORM_BACKWARD_DATA] = n16_batch_norm_backward_data,
    [OP_FILL] = fast_fill,
    [OP_SCALE] = fast_scale,
    [OP_SQUARE_SUMS] = fast_square_sums,
    [OP_CLIP] = fast_clip,
    [OP_SGD] = fast_sgd,
    [OP_ADADELTA] = fast_adadelta,
    [OP_ADAM] = fast_adam,
    [OP_HASH] = fast_hash,
    [OP_MATMUL] = fast_matmul,
    [OP_ARGSORT] = row_argsort,
    [OP_LAYER_NORM_FORWARD] = fast_layer_norm_forward,
    [OP_LAYER_NORM_BACKWARD_DATA] = fast_layer_norm_backward_data,
    [OP_RECURRENT_FORWARD] = fast_recurrent_forward,
    [OP_RECURRENT_BACKWARD] = fast_recurrent_backward,
    [OP_ATTENTION_FORWARD] = fast_attention_forward,
    [OP_ATTENTION_BACKWARD] = fast_attention_backward,
};
