/* The N16 kernels for one instruction set and one group size, and their table. The including file
 * has chosen the instruction set and defined WIDE, GROUP and OF_ISA. With ALL_GROUPS it wants the
 * table over those of all group sizes instead (fast.inc.h). */
#include "device/host/kernels/vec.inc.h"

/* The third word is the prefix of the kernels for PLAIN operands. */
#define EACH_OF_N16(KERNEL)                                                   \
    KERNEL(TO_N16, to_n16, reference)                                         \
    KERNEL(TO_PLAIN, to_plain, reference)                                     \
    KERNEL(CONV2D_FORWARD, conv2d_forward, reference)                         \
    KERNEL(CONV2D_BACKWARD_DATA, conv2d_backward_data, reference)             \
    KERNEL(CONV2D_BACKWARD_WEIGHT, conv2d_backward_weight, reference)         \
    KERNEL(LINEAR_FORWARD, linear_forward, plain)                             \
    KERNEL(LINEAR_BACKWARD_DATA, linear_backward_data, plain)                 \
    KERNEL(LINEAR_BACKWARD_WEIGHT, linear_backward_weight, plain)             \
    KERNEL(AVG_POOL_FORWARD, avg_pool_forward, reference)                     \
    KERNEL(AVG_POOL_BACKWARD, avg_pool_backward, reference)                   \
    KERNEL(MAX_POOL_FORWARD, max_pool_forward, reference)                     \
    KERNEL(MAX_POOL_BACKWARD, max_pool_backward, reference)                   \
    KERNEL(ADAPTIVE_AVG_POOL_FORWARD, adaptive_avg_pool_forward, reference)   \
    KERNEL(ADAPTIVE_AVG_POOL_BACKWARD, adaptive_avg_pool_backward, reference) \
    KERNEL(BATCH_NORM_MOMENTS, batch_norm_moments, reference)                 \
    KERNEL(BATCH_NORM_FORWARD, batch_norm_forward, reference)                 \
    KERNEL(BATCH_NORM_SUMS, batch_norm_sums, reference)                       \
    KERNEL(BATCH_NORM_BACKWARD_DATA, batch_norm_backward_data, reference)     \
    KERNEL(DROPOUT, dropout, reference)

#define TABLE_OF(group) OF_ISA(kernels_of_##group)
#define KERNELS_OF(group) TABLE_OF(group)

#ifdef ALL_GROUPS
#include "device/host/kernels/fast.inc.h"
#else
#include "device/host/kernels/n16_conv.inc.h"
#include "device/host/kernels/n16_product.inc.h"
#include "device/host/kernels/n16_winograd_transform.inc.h"
#include "device/host/kernels/n16_winograd.inc.h"
#include "device/host/kernels/n16_transposed.inc.h"
#include "device/host/kernels/n16_winograd_weight.inc.h"
#include "device/host/kernels/n16_conv_forward.inc.h"
#include "device/host/kernels/n16_conv_data.inc.h"
#include "device/host/kernels/n16_conv_weight.inc.h"
#include "device/host/kernels/n16_grouped_conv.inc.h"
#include "device/host/kernels/n16_grouped_conv_weight.inc.h"
#include "device/host/kernels/n16_linear.inc.h"
#include "device/host/kernels/n16_pool.inc.h"
#include "device/host/kernels/n16_norm.inc.h"
#include "device/host/kernels/n16_dropout.inc.h"
#include "device/host/kernels/n16_layout.inc.h"

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

#define ROW_OF_N16(NAME, name, plain) [OP_##NAME] = n16_##name,
host_kernel *const KERNELS_OF(GROUP)[OP_COUNT] = {EACH_OF_N16(ROW_OF_N16)};
#endif
