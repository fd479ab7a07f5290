/* The table of the ops (op_table.c), without kernels. op_check.c reads the operands from it, and
 * op_letters.c reads the flops. */
#ifndef DEVICE_OP_TABLE_H
#define DEVICE_OP_TABLE_H

#include "device/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One operand, in the notation of op_table.c. It is all zero if the op takes no such operand. */
struct operand {
    const char *name, *type, *shape;
};

/* Returns the operand or setting that does not fit, or NULL if all fit. It is called after the
 * operands and their symbolic dimensions have been checked. */
typedef const char *op_rule(enum op op, const struct op_args *args);

typedef double op_cost(const struct op_args *args);

/* The family of an op. The files of that name hold its kernels and launches. */
enum op_family {
    LAYOUT = 1, /* changes between plain and N16 */
    PRODUCT,    /* matrix products: linear and convolution */
    POINTWISE,  /* element by element; updates */
    PICTURE,    /* pools, pad, cat */
    LOSS,       /* rows: softmax and losses */
    NORM,       /* batch norm */
    LAYER_NORM,
    LOG, /* the logs of a step, and sums of squares */
    ALGEBRA,
    ALONG, /* rows selected by an index; elements at computed indices of a dimension; sorting */
    RECURRENT,
    ATTENTION,
};

struct op_row {
    enum op_family family;
    struct operand in[OP_INPUTS], out[OP_OUTPUTS];
    int step;      /* 1: the op always reads the step block */
    int segment;   /* 1: one segment per launch, so an N16 operand holds one segment's groups */
    op_rule *rule; /* NULL: the symbolic dimensions suffice */
    int (*transposed)(const struct op_args *args, int output,
                      int i); /* 1: the second shape applies */
    const char *flops; /* "2 NKM"; NULL: no cost; it moves data, or has a few flops per channel */
    op_cost *cost;
};
extern const struct op_row op_table[OP_COUNT];

enum dtype operand_type(const struct operand *operand);

/* 1: an operand of this kind may be in N16, unless these arguments require PLAIN. */
int operand_may_be_n16(const struct operand *operand);
int operand_may_be_in_place(const struct operand *input); /* 1: it may share the memory of out[0] */
int op_is_plain(enum op op, const struct op_args *args);

/* ---- op_letters.c ---- */

/* The values that a row's symbolic dimensions have in a launch. */
struct op_letters {
    int dim[128];                  /* by letter; -1: not seen yet */
    int rest_rank, rest[MAX_RANK]; /* for the dot; rest_rank -1: not seen yet */
};

/* The shape that operand i of in[] or out[] must have; for `MK|KM` the one that applies. */
const char *op_shape(enum op op, const struct op_args *args, int output, int i);

/* Sets letters of `shape` that were not seen yet from the dimensions of t, and writes the shape
 * that the letters require into *wanted. */
void op_letters_read(struct op_letters *letters, const char *shape, const struct tensor *t,
                     struct tensor *wanted);

/* ---- op_rules.c ---- */

op_rule rule_to_n16, rule_to_plain, rule_conv, rule_pool, rule_pad, rule_cat, rule_dropout,
    rule_loss_forward, rule_loss_backward, rule_column, rule_sgd, rule_two_moments, rule_matmul,
    rule_sum, rule_along, rule_argsort, rule_layer_norm, rule_activation, rule_clip, rule_recurrent,
    rule_attention;
int transposed_linear(const struct op_args *args, int output, int i);
int transposed_matmul(const struct op_args *args, int output, int i);

/* ---- op.c ---- */

op_cost cost_activation, cost_cross_entropy, cost_pool, cost_sgd, cost_adadelta, cost_adam,
    cost_attention;

/* Writes "(256, 1, 28, 28)" into text and returns it. */
enum { SHAPE_TEXT = 104 };
const char *op_shape_text(const struct tensor *t, char text[SHAPE_TEXT]);

#ifdef __cplusplus
}
#endif
#endif
