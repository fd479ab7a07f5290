/* Valid operands for every op, at invented addresses, so no kernel may run on them. */
#ifndef TESTS_DEVICE_OP_ARGS_H
#define TESTS_DEVICE_OP_ARGS_H

#include "tests/core/device/shared.h"

static inline struct tensor at(int place, enum dtype dtype, enum layout layout, int rank, int d0,
                               int d1, int d2, int d3) {
    const int dims[] = {d0, d1, d2, d3};
    struct tensor t = tensor_plain((void *)((uintptr_t)(place + 1) << 32), dtype, rank, dims);
    return layout == LAYOUT_N16 ? tensor_in_n16(&t, NULL) : t;
}

#define F(place, ...) at(place, DTYPE_F32, LAYOUT_PLAIN, __VA_ARGS__)

enum { N = 20 };
static const struct step_block *const a_step = (const struct step_block *)((uintptr_t)9 << 32);

/* Arguments each op must accept: its inputs, then after ">" its outputs. f, d, i, l, b, u are
 * float, double, int32, int64, uint8 and uint64; x is float and lies as the case says, n in N16;
 * "-" is none. */
static const char *const good_operands[OP_COUNT] = {
    [OP_TO_N16] = "f20,3,9 > n20,3,9",
    [OP_TO_PLAIN] = "n20,3,9 > f20,3,9",
    [OP_CONV2D_FORWARD] = "x20,3,9,8 f5,3,3,3 f5 > x20,5,5,4",
    [OP_CONV2D_BACKWARD_DATA] = "x20,5,5,4 f5,3,3,3 > x20,3,9,8",
    [OP_CONV2D_BACKWARD_WEIGHT] = "x20,3,9,8 x20,5,5,4 > f5,3,3,3 f5",
    [OP_LINEAR_FORWARD] = "x20,7 f11,7 f11 > x20,11",
    [OP_LINEAR_BACKWARD_DATA] = "x20,11 f11,7 > x20,7",
    [OP_LINEAR_BACKWARD_WEIGHT] = "x20,7 x20,11 > f11,7 f11",
    [OP_ADD_FORWARD] = "x20,3,9,8 x20,3,9,8 > x20,3,9,8",
    [OP_SUBTRACT_FORWARD] = "x20,3,9,8 x20,3,9,8 > x20,3,9,8",
    [OP_MULTIPLY_FORWARD] = "x20,3,9,8 x20,3,9,8 > x20,3,9,8",
    [OP_WHERE] = "f20,7 > f20,7",
    [OP_ACTIVATION_FORWARD] = "x20,3,9,8 > x20,3,9,8",
    [OP_ACTIVATION_BACKWARD] = "x20,3,9,8 x20,3,9,8 > x20,3,9,8",
    [OP_AVG_POOL_FORWARD] = "x20,3,9,8 > x20,3,4,4",
    [OP_AVG_POOL_BACKWARD] = "x20,3,4,4 > x20,3,9,8",
    [OP_MAX_POOL_FORWARD] = "x20,3,9,8 > x20,3,4,4",
    [OP_MAX_POOL_BACKWARD] = "x20,3,9,8 x20,3,4,4 > x20,3,9,8",
    [OP_ADAPTIVE_AVG_POOL_FORWARD] = "x20,3,9,8 > x20,3,2,11",
    [OP_ADAPTIVE_AVG_POOL_BACKWARD] = "x20,3,2,11 > x20,3,9,8",
    [OP_PAD] = "f20,3,9,8 > f20,3,12,7",
    [OP_CAT] = "f20,3,9,8 f20,3,2,8 > f20,3,11,8",
    [OP_DROPOUT] = "x20,3,9,8 > x20,3,9,8",
    [OP_RANDOM] = "> f20,7",
    [OP_SOFTMAX_FORWARD] = "f20,10 > f20,10",
    [OP_SOFTMAX_BACKWARD] = "f20,10 f20,10 > f20,10",
    [OP_CROSS_ENTROPY_FORWARD] = "f20,10 i20 > d20 i20",
    [OP_CROSS_ENTROPY_BACKWARD] = "f20,10 i20 > f20,10",
    [OP_MSE_FORWARD] = "f20,10 f20,10 > d20 i20",
    [OP_MSE_BACKWARD] = "f20,10 f20,10 > f20,10",
    [OP_LOSS_SUM] = "d20 i20 > d100,4 l100,4",
    [OP_BATCH_NORM_MOMENTS] = "x20,3,9,8 > d3,3",
    [OP_BATCH_NORM_MERGE] = "d4,3,3 > d3,3",
    [OP_BATCH_NORM_OF_RUNNING] = "f2,3 > d3,3",
    [OP_BATCH_NORM_TRACK] = "d3,3 > f2,3 l1",
    [OP_BATCH_NORM_FACTORS] = "d3,3 f3 f3 > f2,3",
    [OP_BATCH_NORM_FORWARD] = "x20,3,9,8 f2,3 > x20,3,9,8",
    [OP_BATCH_NORM_SUMS] = "x20,3,9,8 x20,3,9,8 d3,3 > d2,3",
    [OP_BATCH_NORM_TOTAL] = "d4,2,3 > d2,3",
    [OP_BATCH_NORM_BACKWARD_WEIGHT] = "d2,3 d3,3 > f3 f3",
    [OP_BATCH_NORM_BACKWARD_FACTORS] = "d2,3 d3,3 f3 > f4,3",
    [OP_BATCH_NORM_BACKWARD_DATA] = "x20,3,9,8 x20,3,9,8 f4,3 > x20,3,9,8",
    [OP_FILL] = "> x20,3,9,8",
    [OP_SQUARE_SUMS] = "f42 i5,2 > d5",
    [OP_CLIP] = "d5 > f6,7",
    [OP_SGD] = "f6,7 > f6,7 f6,7",
    [OP_ADADELTA] = "f6,7 > f6,7 f42,2",
    [OP_ADAM] = "f6,7 > f6,7 f42,2",
    [OP_HASH] = "f6,7 > u100,4",
    [OP_GATHER_ROWS] = "f50,3,9 i20 > f20,3,9",
    [OP_MATMUL] = "f20,3,9 f20,9,8 > f20,3,8",
    [OP_SUM] = "f20,3,9 > f20,9",
    [OP_SPREAD] = "f20,9 > f20,3,9",
    [OP_PERMUTE] = "f3,20,9 > f3,20,9",
    [OP_TO_INDEX] = "f20,7 > i20,7",
    [OP_EMBEDDING_BACKWARD] = "f20,9 i20 > f50,9",
    [OP_TAKE_ALONG] = "f20,50,9 f20,6,1 > f20,6,9",
    [OP_ADD_ALONG] = "f20,6,9 f20,6,9 > f20,50,9",
    [OP_ARGSORT] = "f20,3,9 > f20,3,9",
    [OP_LAYER_NORM_FORWARD] = "f20,12 > f20,12 d20,2",
    [OP_LAYER_NORM_BACKWARD_DATA] = "f20,12 f20,12 > f20,12",
    [OP_LAYER_NORM_BACKWARD_WEIGHT] = "f20,12 f20,12 d20,2 > f6 f6",
    [OP_RECURRENT_FORWARD] = "f20,5,12 f12,4 > f20,5,4 f20,5,20",
    [OP_RECURRENT_BACKWARD] = "f20,5,4 f20,5,24 f16,4 > f20,5,16 f20,2,4",
    [OP_ATTENTION_FORWARD] = "f20,2,5,4 f20,2,6,4 f20,2,6,3 > f20,2,5,3 f20,2,5",
    [OP_ATTENTION_BACKWARD] = "f20,2,5,4 f20,2,6,4 f20,2,6,3 - f20,2,5,3 f20,2,5 f20,2,5,3 > "
                              "f20,2,5,4 f20,2,6,4 f20,2,6,3",
};

/* "f20,3,9" */
static inline struct tensor good_tensor(const char *text, int place, enum layout layout) {
    static const char types[] = "fdilbuxn";
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F64, DTYPE_I32, DTYPE_I64,
                                        DTYPE_U8,  DTYPE_U64, DTYPE_F32, DTYPE_F32};
    int dims[4] = {0}, type = (int)(strchr(types, *text) - types);
    int rank = sscanf(text + 1, "%d,%d,%d,%d", &dims[0], &dims[1], &dims[2], &dims[3]);
    return at(place, dtypes[type],
              types[type] == 'n'   ? LAYOUT_N16
              : types[type] == 'x' ? layout
                                   : LAYOUT_PLAIN,
              rank, dims[0], dims[1], dims[2], dims[3]);
}

static inline struct op_args good_args(enum op op, enum layout layout) {
    struct op_args a;
    int place = 0;
    memset(&a, 0, sizeof a);
    a.step = a_step;
    cr_assert(good_operands[op], "%s: it has no row in op_args.h", op_name(op));
    for (const char *text = good_operands[op]; *text; text += strspn(text, " ")) {
        struct tensor *to = place < 20 ? &a.in[place] : &a.out[place - 20];
        if (*text == '>')
            place = 20;
        else if (*text == '-')
            place++;
        else
            *to = good_tensor(text, place++, layout);
        text += strcspn(text, " ");
    }
    if (op >= OP_CONV2D_FORWARD && op <= OP_CONV2D_BACKWARD_WEIGHT) a.p.conv = conv_square(2, 1);
    if (op >= OP_AVG_POOL_FORWARD && op <= OP_MAX_POOL_BACKWARD)
        a.p.pool = (struct pool_args){.size = {2, 2}, .stride = {2, 2}};
    if (op == OP_DROPOUT || op == OP_RANDOM) a.p.dropout = (struct dropout_args){0.5f, 1, 63, 0, 0};
    if (op == OP_SUM || op == OP_SPREAD) a.p.sum.divide = 3;
    if (op >= OP_LAYER_NORM_FORWARD && op <= OP_LAYER_NORM_BACKWARD_WEIGHT)
        a.p.layer_norm = (struct layer_norm_args){1e-5, 2, 4};
    if (op == OP_ATTENTION_FORWARD || op == OP_ATTENTION_BACKWARD)
        a.p.attention = (struct attention_args){0.5, 1, 2, {0.5f, 1, 63, 0, 0}};
    if (op == OP_CLIP) a.p.clip.max_norm = 1;
    if (op == OP_PAD) a.p.pad = (struct pad_args){2, -3, 0.5f};
    /* forward is a GRU and backward an LSTM, each with no more operands than it needs */
    if (op == OP_RECURRENT_FORWARD) a.p.recurrent.kind = RECURRENT_GRU;
    if (op == OP_PERMUTE) {
        a.in[0].strided = 1;
        memcpy(a.in[0].stride, (int[]){9, 27, 1}, 3 * sizeof(int));
    }
    if (op == OP_SGD) a.p.sgd = (struct sgd_args){.momentum = 0.9f};
    return a;
}

#endif
