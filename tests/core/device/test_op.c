/* device/: op_check accepts and refuses what the table of op.h says, and flops are right. No kernel
 * runs here, so the addresses are invented. */
#include "tests/core/device/op_args.h"

static void must_refuse(enum op op, const struct op_args *a, const char *why) {
    cr_assert_eq(op_check(op, a), ERR_FAILED, "%s was accepted although %s", op_name(op), why);
    MUST_SAY(op_name(op));
    cr_assert_null(strchr(error_message(), '\n'));
}

static void must_accept(enum op op, const struct op_args *a) {
    cr_assert_eq(op_check(op, a), OK, "%s", error_message());
}

static struct tensor *operand(struct op_args *a, int i) {
    return i < OP_INPUTS ? &a->in[i] : &a->out[i - OP_INPUTS];
}

/* 1: dimension d of operand t may change alone. */
static int is_free(enum op op, int t, int d) {
    switch (op) {
    case OP_FILL:
    case OP_RANDOM:
    case OP_HASH: return 1;
    case OP_PAD:
    case OP_ADAPTIVE_AVG_POOL_FORWARD:
    case OP_ADAPTIVE_AVG_POOL_BACKWARD: return d >= 2;   /* any size from any size */
    case OP_BATCH_NORM_MOMENTS: return t == 0 && d != 1; /* samples and pixels */
    case OP_BATCH_NORM_TOTAL:
    case OP_BATCH_NORM_MERGE: return t == 0 && d == 0; /* parts */
    case OP_GATHER_ROWS: return t == 0 && d == 0;      /* rows of x, however many */
    case OP_CLIP: return 1;
    case OP_SQUARE_SUMS: return t == 0;   /* the gradients, of which pieces are a part */
    case OP_SUM: return t == 0 && d == 1; /* how many are added */
    case OP_SPREAD: return t == OP_INPUTS && d == 1;
    case OP_EMBEDDING_BACKWARD: return t == OP_INPUTS && d == 0; /* rows of the table */
    case OP_TAKE_ALONG: return t == 0 && d == 1;                 /* the number of positions */
    case OP_ADD_ALONG: return t == OP_INPUTS && d == 1;
    case OP_CROSS_ENTROPY_FORWARD: return t == 0 && d == 1; /* the number of classes */
    default: return 0;
    }
}

/* 1: operand t is the only one that may lie in N16. */
static int lies_alone(enum op op, int t) {
    return op == OP_FILL || (op == OP_BATCH_NORM_MOMENTS && t == 0);
}

Test(op, right_arguments_are_accepted_and_any_wrong_one_is_not, .timeout = 30) {
    int refused = 0;
    for (int i = 0; i < 2 * OP_COUNT; i++) {
        enum op op = (enum op)(i / 2);
        const struct op_args good = good_args(op, i % 2 ? LAYOUT_N16 : LAYOUT_PLAIN);
        cr_assert_eq(op_check(op, &good), OK, "%s", error_message());
        for (int t = 0; t < OP_INPUTS + OP_OUTPUTS; t++) {
            struct op_args a = good;
            if (!operand(&a, t)->data) {
                *operand(&a, t) = F(7, 1, 3, 0, 0, 0);
                must_refuse(op, &a, "it was given an operand too many");
                refused++;
                continue;
            }
            operand(&a, t)->data = NULL;
            must_refuse(op, &a, "an operand is missing");
            a = good,
            operand(&a, t)->dtype = operand(&a, t)->dtype == DTYPE_I64 ? DTYPE_I32 : DTYPE_I64;
            must_refuse(op, &a, "a type is wrong");
            a = good, operand(&a, t)->rank = 0;
            must_refuse(op, &a, "rank 0");
            a = good, operand(&a, t)->rank = 5;
            must_refuse(op, &a, "rank 5");
            a = good, operand(&a, t)->groups += 100;
            must_refuse(op, &a, "the groups do not fit");
            if (operand(&a, t)->layout == LAYOUT_PLAIN && !lies_alone(op, t)) {
                a = good, *operand(&a, t) = tensor_in_n16(operand(&a, t), NULL);
                must_refuse(op, &a, "one operand alone lies in N16");
            }
            refused += 5;
            for (int d = 0; d < operand(&a, t)->rank; d++) {
                a = good, operand(&a, t)->dims[d] = -1;
                must_refuse(op, &a, "a dimension is negative");
                if (is_free(op, t, d)) continue;
                a = good, operand(&a, t)->dims[d] += 17;
                if (operand(&a, t)->layout == LAYOUT_N16)
                    operand(&a, t)->groups = (operand(&a, t)->dims[0] + 15) / 16;
                must_refuse(op, &a, "a dimension does not fit the others");
                refused++;
            }
        }
    }
    cr_assert_gt(refused, 500);
    const struct op_args none = good_args(OP_FILL, LAYOUT_PLAIN);
    cr_assert_eq(op_check(OP_COUNT, &none), ERR_FAILED);
}

Test(op, parameters_and_optional_operands, .timeout = 30) {
    struct op_args a;
#define REFUSE(op, change, why) \
    (a = good_args((op), LAYOUT_PLAIN), change, must_refuse((op), &a, (why)))
#define ACCEPT(op, change) (a = good_args((op), LAYOUT_PLAIN), change, must_accept((op), &a))
    REFUSE(OP_CONV2D_FORWARD, a.p.conv.stride[1] = 0, "stride 0");
    REFUSE(OP_CONV2D_FORWARD, a.p.conv.padding[0] = -1, "padding -1");
    REFUSE(OP_CONV2D_FORWARD, (a.p.conv = conv_square(2, 0)), "y is another size without padding");
    REFUSE(OP_CONV2D_FORWARD, (a.in[1].dims[2] = a.in[1].dims[3] = 12),
           "the kernel is larger than the picture");
    REFUSE(OP_CONV2D_FORWARD, a.p.conv.dilation[0] = 0, "dilation 0");
    REFUSE(OP_CONV2D_FORWARD, a.p.conv.groups = 2, "two groups of three channels");
    REFUSE(OP_CONV2D_FORWARD, (a.p.conv.stride[1] = 1, a.out[0] = F(8, 4, N, 5, 5, 8)),
           "steps of two sizes, but not general");
    ACCEPT(OP_CONV2D_FORWARD,
           (a.p.conv.stride[1] = a.p.conv.general = 1, a.out[0] = F(8, 4, N, 5, 5, 8)));
    REFUSE(OP_AVG_POOL_FORWARD, a.p.pool.size[1] = 0, "no columns");
    REFUSE(OP_AVG_POOL_FORWARD, a.p.pool.stride[0] = 0, "stride 0");
    REFUSE(OP_MAX_POOL_FORWARD, a.p.pool.size[0] = 10, "the window is higher than the picture");
    REFUSE(OP_CAT, a.out[0] = F(4, 4, N, 3, 9, 8), "y is as long as a alone");
    REFUSE(OP_PAD, a.p.pad.top = 12, "x lies below y");
    REFUSE(OP_PAD, a.p.pad.top = -9, "x lies above y");
    REFUSE(OP_PAD, a.p.pad.left = 7, "x lies to the right of y");
    REFUSE(OP_PAD, a.p.pad.left = -8, "x lies to the left of y");
    ACCEPT(OP_AVG_POOL_FORWARD, a.p.pool.relu = 1);
    REFUSE(OP_AVG_POOL_BACKWARD, a.p.pool.relu = 1, "the gradient of the relu needs x");
    REFUSE(OP_AVG_POOL_BACKWARD, a.in[1] = F(5, 4, N, 3, 9, 8), "x, and no relu");
    REFUSE(OP_AVG_POOL_BACKWARD, (a.p.pool.relu = 1, a.in[1] = F(5, 4, N, 3, 9, 7)),
           "x is not shaped like dx");
    ACCEPT(OP_AVG_POOL_BACKWARD, (a.p.pool.relu = 1, a.in[1] = F(5, 4, N, 3, 9, 8)));
    for (int op = OP_MAX_POOL_FORWARD; op <= OP_MAX_POOL_BACKWARD; op++) {
        ACCEPT(op, a.p.pool.relu = 1);
        a = good_args((enum op)op, LAYOUT_N16), a.p.pool.relu = 1;
        must_accept((enum op)op, &a);
    }
    REFUSE(OP_LINEAR_FORWARD, a.p.linear.weight_is_in_out = 1, "w lies the other way");
    ACCEPT(OP_LINEAR_FORWARD,
           (a.p.linear.weight_is_in_out = 1, a.in[1].dims[0] = 7, a.in[1].dims[1] = 11));
    REFUSE(OP_DROPOUT, a.p.dropout.p = 1.5f, "p above 1");
    REFUSE(OP_DROPOUT, a.p.dropout.p = NAN, "p is no number");
    REFUSE(OP_DROPOUT, a.p.dropout.v = 64, "virtual device 64");
    REFUSE(OP_DROPOUT, a.step = NULL, "no step block");
    REFUSE(OP_DROPOUT, a.p.dropout.layer = -1, "layer -1");
    ACCEPT(OP_DROPOUT, a.p.dropout.planes = 1);
    REFUSE(OP_DROPOUT, (a.p.dropout.planes = 1, a.in[0].rank = a.out[0].rank = 3), "no planes");
    REFUSE(OP_SGD, a.step = NULL, "no step block");
    REFUSE(OP_SGD, a.out[1].data = NULL, "momentum without its buffer");
    ACCEPT(OP_SGD, (a.out[1].data = NULL, a.p.sgd.momentum = 0));
    for (int op = OP_ADADELTA; op <= OP_ADAM; op++) {
        REFUSE(op, a.step = NULL, "no step block");
        REFUSE(op, a.out[1].data = NULL, "no moments");
        REFUSE(op, a.out[1] = F(5, 2, 6, 7, 0, 0), "one number for each element, not two");
        REFUSE(op, a.out[1] = F(5, 2, 2, 42, 0, 0), "moments one behind the other");
        REFUSE(op, a.in[0].dims[1] = 8, "a gradient of another shape");
        ACCEPT(op, (a.in[0].dims[0] = a.out[0].dims[0] = a.out[1].dims[0] = 0));
    }
    REFUSE(OP_CROSS_ENTROPY_BACKWARD, a.step = NULL, "the mean without 1/B");
    REFUSE(OP_CROSS_ENTROPY_BACKWARD, a.p.loss.reduction = REDUCE_NONE, "no dloss");
    REFUSE(OP_CROSS_ENTROPY_BACKWARD, a.in[2] = F(2, 1, N, 0, 0, 0), "dloss with the mean");
    for (int op = OP_CROSS_ENTROPY_FORWARD; op <= OP_CROSS_ENTROPY_BACKWARD; op++) {
        ACCEPT(op, a.in[3] = F(3, 1, 10, 0, 0, 0));
        REFUSE(op, a.in[3] = F(3, 1, 9, 0, 0, 0), "9 weights of 10 classes");
    }
    ACCEPT(OP_CROSS_ENTROPY_BACKWARD,
           (a.in[2] = F(2, 1, N, 0, 0, 0), a.p.loss.reduction = REDUCE_NONE));
    REFUSE(OP_CROSS_ENTROPY_BACKWARD,
           (a.in[2] = F(2, 1, N - 1, 0, 0, 0), a.p.loss.reduction = REDUCE_NONE), "dloss is short");
    ACCEPT(OP_CROSS_ENTROPY_BACKWARD, (a.step = NULL, a.p.loss.reduction = REDUCE_SUM));
    ACCEPT(OP_MSE_BACKWARD, (a.in[2] = F(2, 1, N, 0, 0, 0), a.p.loss.reduction = REDUCE_NONE));
    REFUSE(OP_MSE_BACKWARD, a.step = NULL, "the mean without 1/B");
    ACCEPT(OP_MATMUL, (a.p.matmul.turn_a = 1, a.in[0].dims[1] = 9, a.in[0].dims[2] = 3));
    ACCEPT(OP_MATMUL, (a.p.matmul.turn_b = 1, a.in[1].dims[1] = 8, a.in[1].dims[2] = 9));
    REFUSE(OP_MATMUL, a.p.matmul.turn_a = 1, "a lies the other way");
    REFUSE(OP_MATMUL, a.p.matmul.turn_b = 1, "b lies the other way");
    REFUSE(OP_MATMUL, (a.p.matmul.turn_a = a.p.matmul.turn_b = 1), "both are transposed");
    ACCEPT(OP_PERMUTE, (a.out[0].strided = 1, a.out[0].stride[0] = 1, a.out[0].stride[2] = 99));
    REFUSE(OP_PERMUTE, a.in[0].stride[1] = -1, "a negative stride");
    REFUSE(OP_PERMUTE, (a.in[0].stride[0] = INT32_MAX, a.in[0].stride[1] = 1), "too far apart");
    REFUSE(OP_SUM, (a.in[0].strided = 1, a.in[0].stride[1] = 1), "a view where none is taken");
    ACCEPT(OP_LAYER_NORM_FORWARD, (a.in[1] = F(1, 1, 6, 0, 0, 0), a.in[2] = F(2, 1, 6, 0, 0, 0)));
    REFUSE(OP_LAYER_NORM_FORWARD, a.in[1] = F(1, 1, 5, 0, 0, 0), "5 weights of 6");
    REFUSE(OP_LAYER_NORM_FORWARD, a.in[2] = F(1, 1, 7, 0, 0, 0), "7 biases of 6");
    ACCEPT(OP_LAYER_NORM_BACKWARD_DATA, a.in[2] = F(2, 1, 6, 0, 0, 0));
    REFUSE(OP_LAYER_NORM_BACKWARD_DATA, a.in[2] = F(2, 1, 5, 0, 0, 0), "5 weights of 6");
    for (int op = OP_ATTENTION_FORWARD; op <= OP_ATTENTION_BACKWARD; op++) {
        ACCEPT(op, a.in[3] = F(3, 3, 7, 1, 6, 0));
        ACCEPT(op, a.in[3] = F(3, 3, 2, 5, 6, 0));
        ACCEPT(op, (a.p.attention = (struct attention_args){.scale = 1}, a.step = NULL));
        REFUSE(op, a.in[3] = F(3, 3, 7, 2, 6, 0), "2 rows of a mask for 5 queries");
        REFUSE(op, (a.in[3] = F(3, 3, 7, 1, 6, 0), a.p.attention.mask_shared = 0),
               "a mask shared by none");
        REFUSE(op, a.p.attention.dropout.p = 1.5f, "a probability of 1.5");
        REFUSE(op, a.step = NULL, "dropout without a step block");
    }
    for (int op = OP_LAYER_NORM_FORWARD; op <= OP_LAYER_NORM_BACKWARD_WEIGHT; op++) {
        REFUSE(op, a.p.layer_norm.groups = 3, "20 rows of 3 groups");
        REFUSE(op, a.p.layer_norm.groups = 0, "no groups");
        REFUSE(op, a.p.layer_norm.inner = 5, "5 neighbours of 12");
        REFUSE(op, a.p.layer_norm.inner = -4, "negative neighbours");
    }
    REFUSE(OP_LAYER_NORM_BACKWARD_WEIGHT, a.p.layer_norm.inner = 2, "more weights than there are");
    REFUSE(OP_ACTIVATION_FORWARD, a.p.activation.kind = ACTIVATION_COUNT, "no such function");
    REFUSE(OP_ACTIVATION_FORWARD,
           (a = good_args(OP_ACTIVATION_FORWARD, LAYOUT_N16), a.p.activation.kind = ACTIVATION_LOG),
           "log in N16");
    REFUSE(OP_SUM, a.p.sum.divide = 0, "a division by 0");
    ACCEPT(OP_TAKE_ALONG, a.in[1].dims[2] = 9);
    REFUSE(OP_TAKE_ALONG, a.in[1].dims[2] = 3, "3 positions for rows of 9 numbers");
    ACCEPT(OP_ADD_ALONG, a.in[1].dims[2] = 1);
    REFUSE(OP_ADD_ALONG, a.in[1].dims[2] = 0, "no positions for rows of 9 numbers");
    REFUSE(OP_SPREAD, a.p.sum.divide = -1, "a negative divisor");
    for (int op = OP_CROSS_ENTROPY_FORWARD; op <= OP_CROSS_ENTROPY_BACKWARD; op++) {
        REFUSE(op, a.p.loss.smoothing = 1.01, "more than the whole target is spread");
        REFUSE(op, a.p.loss.smoothing = NAN, "smoothing is no number");
    }
    REFUSE(OP_CROSS_ENTROPY_FORWARD, (a.p.loss.smoothing = .1, a.p.loss.log_probabilities = 1),
           "nll_loss has no smoothing");
    REFUSE(OP_LOSS_SUM, a.p.loss.column = 4, "column 4 of 4");
    REFUSE(OP_LOSS_SUM, a.out[1].dims[1] = 5, "two logs of different width");
    REFUSE(OP_HASH, a.p.hash.column = -1, "column -1");
}

Test(op, overlaps_are_allowed_where_the_table_says_so, .timeout = 30) {
    for (int i = 0; i < OP_COUNT; i++) {
        enum op op = (enum op)i;
        for (int in = 0; in < OP_INPUTS; in++) {
            struct op_args a = good_args(op, LAYOUT_PLAIN);
            if (!a.in[in].data) continue;
            int allowed =
                ((op == OP_ACTIVATION_FORWARD || op == OP_DROPOUT || op == OP_ADD_FORWARD ||
                  op == OP_BATCH_NORM_FORWARD) &&
                 in == 0) ||
                ((op == OP_ACTIVATION_BACKWARD || op == OP_BATCH_NORM_BACKWARD_DATA) && in == 1);
            a.out[0].data = a.in[in].data;
            if (allowed)
                cr_assert_eq(op_check(op, &a), OK, "%s", error_message());
            else
                must_refuse(op, &a, "output and input overlap");
            a.out[0].data = (char *)a.in[in].data + 8;
            must_refuse(op, &a, "output and input overlap in part");
        }
    }
    struct op_args a = good_args(OP_SGD, LAYOUT_PLAIN);
    a.out[1].data = a.out[0].data;
    must_refuse(OP_SGD, &a, "two outputs overlap");
}

Test(op, segments_empty_or_many, .timeout = 30) {
    /* Two segments of 17 and 3 samples: 3 groups, not 2. Fine for a forward, not for a sum over
     * samples. */
    struct op_args a = good_args(OP_CONV2D_FORWARD, LAYOUT_N16);
    a.in[0].groups = a.out[0].groups = 3;
    cr_assert_eq(op_check(OP_CONV2D_FORWARD, &a), OK, "%s", error_message());
    a.out[0].groups = 2;
    must_refuse(OP_CONV2D_FORWARD, &a, "x and y are cut differently");
    a = good_args(OP_CONV2D_BACKWARD_WEIGHT, LAYOUT_N16);
    a.in[0].groups = a.in[1].groups = 3;
    must_refuse(OP_CONV2D_BACKWARD_WEIGHT, &a, "two segments in one launch");
    a = good_args(OP_CONV2D_BACKWARD_WEIGHT, LAYOUT_N16);
    a.in[0].groups = a.in[1].groups = a.in[0].dims[0] = a.in[1].dims[0] = 0;
    cr_assert_eq(op_check(OP_CONV2D_BACKWARD_WEIGHT, &a), OK, "an empty segment: %s",
                 error_message());
}

Test(op, names_and_flops, .timeout = 30) {
    for (int i = 0; i < OP_COUNT; i++) {
        for (int j = 0; j < i; j++)
            cr_assert_str_neq(op_name((enum op)i), op_name((enum op)j));
        struct op_args a = good_args((enum op)i, LAYOUT_PLAIN);
        cr_assert_geq(op_flops((enum op)i, &a), 0);
        cr_assert_lt(strlen(op_name((enum op)i)), sizeof((struct span *)0)->name);
    }
    cr_assert_str_eq(op_name(OP_CONV2D_FORWARD), "conv2d forward");
    for (int op = OP_ADAPTIVE_AVG_POOL_FORWARD; op <= OP_ADAPTIVE_AVG_POOL_BACKWARD; op++) {
        struct op_args pool = good_args((enum op)op, LAYOUT_PLAIN);
        cr_assert_eq(op_flops((enum op)op, &pool), N * 3 * 9 * 8);
    }
    const double conv = 2.0 * N * 5 * 5 * 4 * 3 * 3 * 3, linear = 2.0 * N * 7 * 11;
    for (int op = OP_CONV2D_FORWARD; op <= OP_LINEAR_BACKWARD_WEIGHT; op++)
        for (int layout = 0; layout < 2; layout++) { /* padding does not count */
            struct op_args a = good_args((enum op)op, (enum layout)layout);
            cr_assert_eq(op_flops((enum op)op, &a), op <= OP_CONV2D_BACKWARD_WEIGHT ? conv : linear,
                         "%s", op_name((enum op)op));
        }
    struct op_args a = good_args(OP_SGD, LAYOUT_PLAIN);
    cr_assert_eq(op_flops(OP_SGD, &a), 42 * 4);
    a = good_args(OP_ADAM, LAYOUT_PLAIN);
    cr_assert_eq(op_flops(OP_ADAM, &a), 42 * 13);
    cr_assert_eq(op_flops(OP_ADADELTA, &a), 42 * 16);
    a.p.adam = (struct adam_args){.weight_decay = 1, .decoupled = 1};
    cr_assert_eq(op_flops(OP_ADAM, &a), 42 * 14);
    a = good_args(OP_SGD, LAYOUT_PLAIN);
    a.p.sgd = (struct sgd_args){.9f, .weight_decay = 1, .dampening = .5, .nesterov = 1};
    cr_assert_eq(op_flops(OP_SGD, &a), 42 * 9);
    a = good_args(OP_TO_N16, LAYOUT_PLAIN);
    cr_assert_eq(op_flops(OP_TO_N16, &a), 0);
    cr_assert_eq(op_flops(OP_GATHER_ROWS, &a), 0);
    const struct op_args product = good_args(OP_MATMUL, LAYOUT_PLAIN);
    cr_assert_eq(op_flops(OP_MATMUL, &product), 2.0 * N * 3 * 9 * 8);
}
