/* The fast path of one instruction set: its kernels and their table. The including file has chosen
 * the instruction set and defined LANES and KERNELS, the name of the table. */
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

#define CONV2D(pass)                                         \
    static void n16_conv2d_##pass(const struct op_args *a) { \
        if (a->p.conv.general)                               \
            grouped_conv_##pass(a);                          \
        else                                                 \
            square_conv_##pass(a);                           \
    }
CONV2D(forward)
CONV2D(backward_data)
CONV2D(backward_weight)

/* Those that know only N16: of PLAIN operands the reference takes care. */
#define EACH_OF_N16(KERNEL)                                        \
    KERNEL(CONV2D_FORWARD, conv2d_forward)                         \
    KERNEL(CONV2D_BACKWARD_DATA, conv2d_backward_data)             \
    KERNEL(CONV2D_BACKWARD_WEIGHT, conv2d_backward_weight)         \
    KERNEL(AVG_POOL_FORWARD, avg_pool_forward)                     \
    KERNEL(AVG_POOL_BACKWARD, avg_pool_backward)                   \
    KERNEL(MAX_POOL_FORWARD, max_pool_forward)                     \
    KERNEL(MAX_POOL_BACKWARD, max_pool_backward)                   \
    KERNEL(ADAPTIVE_AVG_POOL_FORWARD, adaptive_avg_pool_forward)   \
    KERNEL(ADAPTIVE_AVG_POOL_BACKWARD, adaptive_avg_pool_backward) \
    KERNEL(BATCH_NORM_MOMENTS, batch_norm_moments)                 \
    KERNEL(BATCH_NORM_FORWARD, batch_norm_forward)                 \
    KERNEL(BATCH_NORM_SUMS, batch_norm_sums)                       \
    KERNEL(BATCH_NORM_BACKWARD_DATA, batch_norm_backward_data)
#define IN_EITHER_LAYOUT(NAME, name)                   \
    static void fast_##name(const struct op_args *a) { \
        if (a->in[0].layout == LAYOUT_PLAIN)           \
            reference_##name(a);                       \
        else                                           \
            n16_##name(a);                             \
    }
EACH_OF_N16(IN_EITHER_LAYOUT)

#define ROW_OF_N16(NAME, name) [OP_##NAME] = fast_##name,
host_kernel *const KERNELS[OP_COUNT] = {
    [OP_TO_N16] = n16_to_n16,
    [OP_TO_PLAIN] = n16_to_plain,
    [OP_LINEAR_FORWARD] = n16_linear_forward,
    [OP_LINEAR_BACKWARD_DATA] = n16_linear_backward_data,
    [OP_LINEAR_BACKWARD_WEIGHT] = n16_linear_backward_weight,
    [OP_ADD_FORWARD] = fast_add_forward,
    [OP_SUBTRACT_FORWARD] = fast_subtract_forward,
    [OP_MULTIPLY_FORWARD] = fast_multiply_forward,
    [OP_WHERE] = fast_where,
    [OP_ACTIVATION_FORWARD] = fast_activation_forward,
    [OP_ACTIVATION_BACKWARD] = fast_activation_backward,
    [OP_DROPOUT] = n16_dropout,
    [OP_SOFTMAX_FORWARD] = row_softmax_forward,
    [OP_SOFTMAX_BACKWARD] = row_softmax_backward,
    [OP_CROSS_ENTROPY_FORWARD] = row_cross_entropy_forward,
    [OP_CROSS_ENTROPY_BACKWARD] = row_cross_entropy_backward,
    [OP_FILL] = fast_fill,
    [OP_SQUARE_SUMS] = fast_square_sums,
    [OP_CLIP] = fast_clip,
    [OP_SGD] = fast_sgd,
    [OP_ADADELTA] = fast_adadelta,
    [OP_ADAM] = fast_adam,
    [OP_HASH] = fast_hash,
    [OP_MATMUL] = fast_matmul,
    [OP_LAYER_NORM_FORWARD] = fast_layer_norm_forward,
    [OP_LAYER_NORM_BACKWARD_DATA] = fast_layer_norm_backward_data,
    [OP_RECURRENT_FORWARD] = fast_recurrent_forward,
    [OP_RECURRENT_BACKWARD] = fast_recurrent_backward,
    [OP_ATTENTION_FORWARD] = fast_attention_forward,
    [OP_ATTENTION_BACKWARD] = fast_attention_backward,
    // clang-format off
    EACH_OF_N16(ROW_OF_N16)
    // clang-format on
};
