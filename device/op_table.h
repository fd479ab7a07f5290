/* The table of the ops (op.h), as far as no kernel is concerned: op_check.c reads the operands from
 * it, op.c the flops. */
#ifndef DEVICE_OP_TABLE_H
#define DEVICE_OP_TABLE_H

#include "device/op.h"

/* One operand. An all-zero one says that the op takes no such operand. */
struct operand {
    const char *name;
    /* f F32, d F64, i I32, l I64, u U64, b U8, w F32 or I32; then n: may lie in N16, ?: may be left
     * out, =: may be the very memory of out[0] */
    const char *type;
    int rank; /* 0: any */
};

/* ERR_FAILED names the op and the operand whose shape or setting does not fit the others. The
 * operands themselves have been checked. */
typedef int op_shapes(enum op op, const struct op_args *args);

typedef double op_cost(const struct op_args *args);

struct op_row {
    struct operand in[3], out[2];
    int step;          /* 1: the op always reads the step block */
    int segment;       /* 1: one segment a launch, so an N16 operand holds one segment's groups */
    op_shapes *shapes; /* NULL: there is nothing to relate */

    /* Flops: a rule, or so many for each element of in[0] or of out[0]. None: the op moves data, or
     * does a few for each channel. */
    op_cost *flops;
    double per_input, per_output;
};
extern const struct op_row op_table[OP_COUNT];

/* 1: an operand of this kind may lie in N16, unless the op is plain with these arguments. */
int operand_may_be_n16(const struct operand *operand);
int operand_may_be_in_place(const struct operand *input); /* in the memory of out[0] */
int op_is_plain(enum op op, const struct op_args *args);

/* Writes "(256, 1, 28, 28)" into text and returns it. */
const char *op_shape_text(const struct tensor *t, char text[64]);

/* ---- op_shapes.c, op_shapes_whole.c ---- */

op_shapes shapes_to_n16, shapes_to_plain, shapes_conv_forward, shapes_conv_backward_data,
    shapes_conv_backward_weight, shapes_linear_forward, shapes_linear_backward_data,
    shapes_linear_backward_weight, shapes_same, shapes_of_y_and_dy, shapes_two_terms,
    shapes_pool_forward, shapes_avg_pool_backward, shapes_max_pool_backward,
    shapes_adaptive_pool_forward, shapes_adaptive_pool_backward, shapes_adaptive_max_pool_backward,
    shapes_pad, shapes_cat, shapes_dropout, shapes_loss_forward, shapes_loss_backward,
    shapes_loss_sum, shapes_norm, shapes_sgd, shapes_two_moments, shapes_hash,
    shapes_gather_samples, shapes_gather_rows, shapes_matmul, shapes_sum, shapes_spread,
    shapes_embedding_backward, shapes_permute, shapes_layer_norm, shapes_activation;

/* ---- op.c ---- */

op_cost flops_conv_forward, flops_conv_backward_data, flops_conv_backward_weight, flops_linear,
    flops_linear_backward_weight, flops_pool_forward, flops_avg_pool_backward,
    flops_max_pool_backward, flops_rows, flops_sgd, flops_adadelta, flops_adam,
    flops_gather_samples, flops_matmul;

#endif
