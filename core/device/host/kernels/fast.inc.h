/* The table of the fast path for one instruction set. The operands' group size selects an N16
 * kernel; the other kernels do not use groups. */
#include "device/host/kernels/n16_matmul.inc.h"
#include "device/host/kernels/n16_attention.inc.h"
#include "device/host/kernels/n16_linear_plain.inc.h"
#include "device/host/kernels/n16_recurrent.inc.h"
#include "device/host/kernels/n16_layer_norm.inc.h"
#include "device/host/kernels/elementwise.inc.h"
#include "device/host/kernels/softmax_rows.inc.h"

extern host_kernel *const KERNELS_OF(16)[OP_COUNT];
extern host_kernel *const KERNELS_OF(8)[OP_COUNT];
extern host_kernel *const KERNELS_OF(4)[OP_COUNT];
extern host_kernel *const KERNELS_OF(2)[OP_COUNT];
extern host_kernel *const KERNELS_OF(1)[OP_COUNT];

#define OF_ANY_GROUP(NAME, name, plain)                \
    static void fast_##name(const struct op_args *a) { \
        switch (a->in[0].lanes | a->out[0].lanes) {    \
        case 16: KERNELS_OF(16)[OP_##NAME](a); break;  \
        case 8: KERNELS_OF(8)[OP_##NAME](a); break;    \
        case 4: KERNELS_OF(4)[OP_##NAME](a); break;    \
        case 2: KERNELS_OF(2)[OP_##NAME](a); break;    \
        case 1: KERNELS_OF(1)[OP_##NAME](a); break;    \
        default: plain##_##name(a); /* not in N16 */   \
        }                                              \
    }
EACH_OF_N16(OF_ANY_GROUP)

#define ROW_OF_ANY_GROUP(NAME, name, plain) [OP_##NAME] = fast_##name,
host_kernel *const OF_ISA(kernels)[OP_COUNT] = {
    [OP_ADD_FORWARD] = each_add_forward,
    [OP_SUBTRACT_FORWARD] = each_subtract_forward,
    [OP_MULTIPLY_FORWARD] = each_multiply_forward,
    [OP_WHERE] = each_where,
    [OP_ACTIVATION_FORWARD] = each_activation_forward,
    [OP_ACTIVATION_BACKWARD] = each_activation_backward,
    [OP_SOFTMAX_FORWARD] = row_softmax_forward,
    [OP_SOFTMAX_BACKWARD] = row_softmax_backward,
    [OP_CROSS_ENTROPY_FORWARD] = row_cross_entropy_forward,
    [OP_CROSS_ENTROPY_BACKWARD] = row_cross_entropy_backward,
    [OP_FILL] = each_fill,
    [OP_SQUARE_SUMS] = each_square_sums,
    [OP_CLIP] = each_clip,
    [OP_SGD] = each_sgd,
    [OP_ADADELTA] = each_adadelta,
    [OP_ADAM] = each_adam,
    [OP_HASH] = each_hash,
    [OP_MATMUL] = fast_matmul,
    [OP_LAYER_NORM_FORWARD] = fast_layer_norm_forward,
    [OP_LAYER_NORM_BACKWARD_DATA] = fast_layer_norm_backward_data,
    [OP_RECURRENT_FORWARD] = fast_recurrent_forward,
    [OP_RECURRENT_BACKWARD] = fast_recurrent_backward,
    [OP_ATTENTION_FORWARD] = fast_attention_forward,
    [OP_ATTENTION_BACKWARD] = fast_attention_backward,
    // clang-format off
    EACH_OF_N16(ROW_OF_ANY_GROUP)
    // clang-format on
};
