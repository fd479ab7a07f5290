/* Right operands for every op, at made-up addresses: no kernel may run on them. */
#ifndef TESTS_DEVICE_OP_ARGS_H
#define TESTS_DEVICE_OP_ARGS_H

#include "tests/core/device/shared.h"

static inline struct tensor at(int place, enum dtype dtype, enum layout layout, int rank, int d0,
                               int d1, int d2, int d3) {
    const int dims[] = {d0, d1, d2, d3};
    struct tensor t = tensor_plain((void *)((uintptr_t)(place + 1) << 32), dtype, rank, dims);
    t.layout = layout;
    if (layout == LAYOUT_N16) t.groups = (d0 + GROUP - 1) / GROUP;
    return t;
}

#define F(place, ...) at(place, DTYPE_F32, LAYOUT_PLAIN, __VA_ARGS__)
#define L(place, ...) at(place, DTYPE_F32, layout, __VA_ARGS__) /* lies as the case says */
#define OF(place, type, ...) at(place, type, LAYOUT_PLAIN, __VA_ARGS__)

enum { N = 20 };
static const struct step_block *const a_step = (const struct step_block *)((uintptr_t)9 << 32);

/* Arguments each op must accept: x (20,3,9,8), w (5,3,3,3), stride 2, padding 1 -> y (20,5,5,4),
 * and so on. */
static inline struct op_args good_args(enum op op, enum layout layout) {
    struct op_args a;
    memset(&a, 0, sizeof a);
    a.step = a_step;
    const struct tensor x4 = L(0, 4, N, 3, 9, 8), conv_y = L(1, 4, N, 5, 5, 4),
                        pool_y = L(1, 4, N, 3, 4, 4);
    const struct tensor x2 = L(0, 2, N, 7, 0, 0), scores = F(0, 2, N, 10, 0, 0);
    const struct tensor moments = OF(6, DTYPE_F64, 2, 3, 3, 0, 0);
    const struct tensor labels = OF(1, DTYPE_I32, 1, N, 0, 0, 0);
    switch (op) {
    case OP_TO_N16:
        a.in[0] = F(0, 3, N, 3, 9, 0), a.out[0] = at(4, DTYPE_F32, LAYOUT_N16, 3, N, 3, 9, 0);
        break;
    case OP_TO_PLAIN:
        a.in[0] = at(0, DTYPE_F32, LAYOUT_N16, 3, N, 3, 9, 0), a.out[0] = F(4, 3, N, 3, 9, 0);
        break;
    case OP_CONV2D_FORWARD:
        a.in[0] = x4, a.in[1] = F(2, 4, 5, 3, 3, 3), a.in[2] = F(3, 1, 5, 0, 0, 0),
        a.out[0] = conv_y;
        break;
    case OP_CONV2D_BACKWARD_DATA:
        a.in[0] = conv_y, a.in[1] = F(2, 4, 5, 3, 3, 3), a.out[0] = x4;
        break;
    case OP_CONV2D_BACKWARD_WEIGHT:
        a.in[0] = x4, a.in[1] = conv_y, a.out[0] = F(2, 4, 5, 3, 3, 3),
        a.out[1] = F(3, 1, 5, 0, 0, 0);
        break;
    case OP_GROUPED_CONV_FORWARD:
        a.in[0] = x4, a.in[1] = F(2, 4, 6, 1, 3, 2), a.in[2] = F(3, 1, 6, 0, 0, 0),
        a.out[0] = L(1, 4, N, 6, 5, 6);
        break;
    case OP_GROUPED_CONV_BACKWARD_DATA:
        a.in[0] = L(1, 4, N, 6, 5, 6), a.in[1] = F(2, 4, 6, 1, 3, 2), a.out[0] = x4;
        break;
    case OP_GROUPED_CONV_BACKWARD_WEIGHT:
        a.in[0] = x4, a.in[1] = L(1, 4, N, 6, 5, 6), a.out[0] = F(2, 4, 6, 1, 3, 2),
        a.out[1] = F(3, 1, 6, 0, 0, 0);
        break;
    case OP_LINEAR_FORWARD:
        a.in[0] = x2, a.in[1] = F(2, 2, 11, 7, 0, 0), a.in[2] = F(3, 1, 11, 0, 0, 0),
        a.out[0] = L(1, 2, N, 11, 0, 0);
        break;
    case OP_LINEAR_BACKWARD_DATA:
        a.in[0] = L(1, 2, N, 11, 0, 0), a.in[1] = F(2, 2, 11, 7, 0, 0), a.out[0] = x2;
        break;
    case OP_LINEAR_BACKWARD_WEIGHT:
        a.in[0] = x2, a.in[1] = L(1, 2, N, 11, 0, 0), a.out[0] = F(2, 2, 11, 7, 0, 0),
        a.out[1] = F(3, 1, 11, 0, 0, 0);
        break;
    case OP_AVG_POOL_FORWARD:
    case OP_MAX_POOL_FORWARD: a.in[0] = x4, a.out[0] = pool_y; break;
    case OP_AVG_POOL_BACKWARD: a.in[0] = pool_y, a.out[0] = x4; break;
    case OP_MAX_POOL_BACKWARD:
        a.in[0] = x4, a.in[1] = pool_y, a.out[0] = L(2, 4, N, 3, 9, 8);
        break;
    case OP_ACTIVATION_FORWARD:
    case OP_TANH_FORWARD:
    case OP_SIGMOID_FORWARD:
    case OP_RELU_FORWARD:
    case OP_DROPOUT: a.in[0] = x4, a.out[0] = L(4, 4, N, 3, 9, 8); break;
    case OP_ADAPTIVE_AVG_POOL_FORWARD: a.in[0] = x4, a.out[0] = L(1, 4, N, 3, 2, 11); break;
    case OP_ADAPTIVE_AVG_POOL_BACKWARD: a.in[0] = L(1, 4, N, 3, 2, 11), a.out[0] = x4; break;
    case OP_ACTIVATION_BACKWARD:
    case OP_SUBTRACT_FORWARD:
    case OP_MULTIPLY_FORWARD:
    case OP_TANH_BACKWARD:
    case OP_SIGMOID_BACKWARD:
    case OP_ADD_FORWARD:
    case OP_RELU_BACKWARD:
        a.in[0] = x4, a.in[1] = L(2, 4, N, 3, 9, 8), a.out[0] = L(4, 4, N, 3, 9, 8);
        break;
    case OP_SOFTMAX_FORWARD: a.in[0] = scores, a.out[0] = F(4, 2, N, 10, 0, 0); break;
    case OP_SOFTMAX_BACKWARD:
        a.in[0] = scores, a.in[1] = F(2, 2, N, 10, 0, 0), a.out[0] = F(4, 2, N, 10, 0, 0);
        break;
    case OP_NLL_FORWARD:
    case OP_CROSS_ENTROPY_FORWARD:
        a.in[0] = scores, a.in[1] = labels;
        a.out[0] = OF(4, DTYPE_F64, 1, N, 0, 0, 0), a.out[1] = OF(5, DTYPE_I32, 1, N, 0, 0, 0);
        break;
    case OP_NLL_BACKWARD:
    case OP_CROSS_ENTROPY_BACKWARD:
        a.in[0] = scores, a.in[1] = labels, a.out[0] = F(4, 2, N, 10, 0, 0);
        break;
    case OP_MSE_FORWARD:
        a.in[0] = scores, a.in[1] = F(1, 2, N, 10, 0, 0);
        a.out[0] = OF(4, DTYPE_F64, 1, N, 0, 0, 0), a.out[1] = OF(5, DTYPE_I32, 1, N, 0, 0, 0);
        break;
    case OP_MSE_BACKWARD:
        a.in[0] = scores, a.in[1] = F(1, 2, N, 10, 0, 0), a.out[0] = F(4, 2, N, 10, 0, 0);
        break;
    case OP_LOSS_SUM:
        a.in[0] = OF(0, DTYPE_F64, 1, N, 0, 0, 0), a.in[1] = OF(1, DTYPE_I32, 1, N, 0, 0, 0);
        a.out[0] = OF(4, DTYPE_F64, 2, 100, 4, 0, 0), a.out[1] = OF(5, DTYPE_I64, 2, 100, 4, 0, 0);
        break;
    case OP_BATCH_NORM_MOMENTS: a.in[0] = x4, a.out[0] = moments; break;
    case OP_BATCH_NORM_MERGE: a.in[0] = OF(0, DTYPE_F64, 3, 4, 3, 3, 0), a.out[0] = moments; break;
    case OP_BATCH_NORM_OF_RUNNING: a.in[0] = F(0, 2, 2, 3, 0, 0), a.out[0] = moments; break;
    case OP_BATCH_NORM_TRACK:
        a.in[0] = moments, a.out[0] = F(4, 2, 2, 3, 0, 0),
        a.out[1] = OF(5, DTYPE_I64, 1, 1, 0, 0, 0);
        break;
    case OP_BATCH_NORM_FACTORS:
        a.in[0] = moments, a.in[1] = F(1, 1, 3, 0, 0, 0), a.in[2] = F(2, 1, 3, 0, 0, 0);
        a.out[0] = F(4, 2, 2, 3, 0, 0);
        break;
    case OP_BATCH_NORM_FORWARD:
        a.in[0] = x4, a.in[1] = F(1, 2, 2, 3, 0, 0), a.out[0] = L(4, 4, N, 3, 9, 8);
        break;
    case OP_BATCH_NORM_SUMS:
        a.in[0] = x4, a.in[1] = L(2, 4, N, 3, 9, 8), a.in[2] = moments;
        a.out[0] = OF(4, DTYPE_F64, 2, 2, 3, 0, 0);
        break;
    case OP_BATCH_NORM_TOTAL:
        a.in[0] = OF(0, DTYPE_F64, 3, 4, 2, 3, 0), a.out[0] = OF(4, DTYPE_F64, 2, 2, 3, 0, 0);
        break;
    case OP_BATCH_NORM_BACKWARD_WEIGHT:
        a.in[0] = OF(0, DTYPE_F64, 2, 2, 3, 0, 0), a.in[1] = moments;
        a.out[0] = F(4, 1, 3, 0, 0, 0), a.out[1] = F(5, 1, 3, 0, 0, 0);
        break;
    case OP_BATCH_NORM_BACKWARD_FACTORS:
        a.in[0] = OF(0, DTYPE_F64, 2, 2, 3, 0, 0), a.in[1] = moments, a.in[2] = F(2, 1, 3, 0, 0, 0);
        a.out[0] = F(4, 2, 4, 3, 0, 0);
        break;
    case OP_BATCH_NORM_BACKWARD_DATA:
        a.in[0] = x4, a.in[1] = L(2, 4, N, 3, 9, 8), a.in[2] = F(3, 2, 4, 3, 0, 0);
        a.out[0] = L(4, 4, N, 3, 9, 8);
        break;
    case OP_FILL:
    case OP_SCALE: a.out[0] = L(4, 4, N, 3, 9, 8); break;
    case OP_SQUARE_SUMS:
        a.in[0] = F(0, 1, 42, 0, 0, 0), a.in[1] = OF(1, DTYPE_I32, 2, 5, 2, 0, 0);
        a.out[0] = OF(4, DTYPE_F64, 1, 5, 0, 0, 0);
        break;
    case OP_CLIP:
        a.in[0] = OF(0, DTYPE_F64, 1, 5, 0, 0, 0), a.out[0] = F(4, 2, 6, 7, 0, 0);
        a.p.clip.max_norm = 1;
        break;
    case OP_SGD:
        a.in[0] = F(0, 2, 6, 7, 0, 0), a.out[0] = F(4, 2, 6, 7, 0, 0),
        a.out[1] = F(5, 2, 6, 7, 0, 0);
        break;
    case OP_ADADELTA:
    case OP_ADAM:
        a.in[0] = F(0, 2, 6, 7, 0, 0), a.out[0] = F(4, 2, 6, 7, 0, 0),
        a.out[1] = F(5, 2, 42, 2, 0, 0);
        break;
    case OP_HASH:
        a.in[0] = F(0, 2, 6, 7, 0, 0), a.out[0] = OF(4, DTYPE_U64, 2, 100, 4, 0, 0);
        break;
    case OP_GATHER_SAMPLES:
        a.step = NULL;
        a.in[0] = OF(0, DTYPE_U8, 4, 50, 3, 9, 8), a.in[1] = OF(1, DTYPE_U8, 1, 50, 0, 0, 0);
        a.in[2] = OF(2, DTYPE_I32, 1, N, 0, 0, 0);
        a.out[0] = F(4, 4, N, 3, 9, 8), a.out[1] = OF(5, DTYPE_I32, 1, N, 0, 0, 0);
        break;
    case OP_GATHER_ROWS:
        a.step = NULL;
        a.in[0] = F(0, 3, 50, 3, 9, 0), a.in[1] = OF(1, DTYPE_I32, 1, N, 0, 0, 0);
        a.out[0] = F(4, 3, N, 3, 9, 0);
        break;
    case OP_MATMUL:
        a.in[0] = F(0, 3, N, 3, 9, 0), a.in[1] = F(1, 3, N, 9, 8, 0),
        a.out[0] = F(4, 3, N, 3, 8, 0);
        break;
    case OP_SUM: a.in[0] = F(0, 3, N, 3, 9, 0), a.out[0] = F(4, 2, N, 9, 0, 0); break;
    case OP_SPREAD: a.in[0] = F(0, 2, N, 9, 0, 0), a.out[0] = F(4, 3, N, 3, 9, 0); break;
    case OP_RANDOM: a.out[0] = F(4, 2, N, 7, 0, 0); break;
    case OP_WHERE: a.in[0] = F(0, 2, N, 7, 0, 0), a.out[0] = F(4, 2, N, 7, 0, 0); break;
    case OP_PERMUTE:
        a.in[0] = F(0, 3, 3, N, 9, 0), a.out[0] = F(4, 3, 3, N, 9, 0);
        a.in[0].strided = 1;
        memcpy(a.in[0].stride, (int[]){9, 27, 1}, 3 * sizeof(int));
        break;
    case OP_TO_INDEX:
        a.in[0] = F(0, 2, N, 7, 0, 0), a.out[0] = OF(1, DTYPE_I32, 2, N, 7, 0, 0);
        break;
    case OP_EMBEDDING_BACKWARD:
        a.in[0] = F(0, 2, N, 9, 0, 0), a.in[1] = OF(1, DTYPE_I32, 1, N, 0, 0, 0);
        a.out[0] = F(4, 2, 50, 9, 0, 0);
        break;
    case OP_TAKE_ALONG:
        a.in[0] = F(0, 3, N, 50, 9, 0), a.in[1] = F(1, 3, N, 6, 1, 0),
        a.out[0] = F(4, 3, N, 6, 9, 0);
        break;
    case OP_ADD_ALONG:
        a.in[0] = F(0, 3, N, 6, 9, 0), a.in[1] = F(1, 3, N, 6, 9, 0),
        a.out[0] = F(4, 3, N, 50, 9, 0);
        break;
    case OP_ARGSORT: a.in[0] = F(0, 3, N, 3, 9, 0), a.out[0] = F(4, 3, N, 3, 9, 0); break;
    case OP_CAT:
        a.in[0] = F(0, 4, N, 3, 9, 8), a.in[1] = F(1, 4, N, 3, 2, 8);
        a.out[0] = F(4, 4, N, 3, 11, 8);
        break;
    case OP_PAD:
        a.in[0] = F(0, 4, N, 3, 9, 8), a.out[0] = F(4, 4, N, 3, 12, 7);
        a.p.pad = (struct pad_args){2, -3, 0.5f};
        break;
    case OP_LAYER_NORM_FORWARD:
        a.in[0] = F(0, 2, N, 12, 0, 0), a.out[0] = F(4, 2, N, 12, 0, 0);
        a.out[1] = OF(5, DTYPE_F64, 2, N, 2, 0, 0);
        break;
    case OP_LAYER_NORM_BACKWARD_DATA:
        a.in[0] = F(0, 2, N, 12, 0, 0), a.in[1] = F(1, 2, N, 12, 0, 0);
        a.out[0] = F(4, 2, N, 12, 0, 0);
        break;
    case OP_LAYER_NORM_BACKWARD_WEIGHT:
        a.in[0] = F(0, 2, N, 12, 0, 0), a.in[1] = F(1, 2, N, 12, 0, 0);
        a.in[2] = OF(2, DTYPE_F64, 2, N, 2, 0, 0);
        a.out[0] = F(4, 1, 6, 0, 0, 0), a.out[1] = F(5, 1, 6, 0, 0, 0);
        break;
    case OP_RECURRENT_FORWARD: /* a GRU in one, an LSTM in the other: no operand more than needed */
        a.in[0] = F(0, 3, N, 5, 12, 0), a.in[1] = F(1, 2, 12, 4, 0, 0);
        a.out[0] = F(4, 3, N, 5, 4, 0), a.out[1] = F(5, 3, N, 5, 20, 0);
        a.p.recurrent.kind = RECURRENT_GRU;
        break;
    case OP_RECURRENT_BACKWARD:
        a.in[0] = F(0, 3, N, 5, 4, 0), a.in[1] = F(1, 3, N, 5, 24, 0);
        a.in[2] = F(2, 2, 16, 4, 0, 0);
        a.out[0] = F(4, 3, N, 5, 16, 0), a.out[1] = F(5, 3, N, 2, 4, 0);
        break;
    case OP_ATTENTION_BACKWARD:
        a.in[4] = F(4, 4, N, 2, 5, 3), a.in[5] = F(5, 3, N, 2, 5, 0);
        a.in[6] = F(6, 4, N, 2, 5, 3), a.out[0] = F(7, 4, N, 2, 5, 4);
        a.out[1] = F(8, 4, N, 2, 6, 4), a.out[2] = F(10, 4, N, 2, 6, 3);
        break;
    case OP_ATTENTION_FORWARD:
        a.out[0] = F(4, 4, N, 2, 5, 3), a.out[1] = F(5, 3, N, 2, 5, 0);
        break;
    case OP_COUNT: break;
    }
    if (op >= OP_CONV2D_FORWARD && op <= OP_CONV2D_BACKWARD_WEIGHT)
        a.p.conv = (struct conv_args){2, 1};
    if (op >= OP_GROUPED_CONV_FORWARD && op <= OP_GROUPED_CONV_BACKWARD_WEIGHT)
        a.p.grouped_conv = (struct grouped_conv_args){{2, 1}, {1, 0}, {1, 2}, 3};
    if (op >= OP_AVG_POOL_FORWARD && op <= OP_MAX_POOL_BACKWARD)
        a.p.pool = (struct pool_args){.size = {2, 2}, .stride = {2, 2}};
    if (op == OP_DROPOUT || op == OP_RANDOM) a.p.dropout = (struct dropout_args){0.5f, 1, 63, 0, 0};
    if (op == OP_SUM || op == OP_SPREAD) a.p.sum.divide = 3;
    if (op >= OP_LAYER_NORM_FORWARD && op <= OP_LAYER_NORM_BACKWARD_WEIGHT)
        a.p.layer_norm = (struct layer_norm_args){1e-5, 2, 4};
    if (op == OP_ATTENTION_FORWARD || op == OP_ATTENTION_BACKWARD) {
        a.in[0] = F(0, 4, N, 2, 5, 4), a.in[1] = F(1, 4, N, 2, 6, 4);
        a.in[2] = F(2, 4, N, 2, 6, 3);
        a.p.attention = (struct attention_args){0.5, 1, 2, {0.5f, 1, 63, 0, 0}};
    }
    if (op == OP_SGD) a.p.sgd = (struct sgd_args){.momentum = 0.9f};
    return a;
}

#endif
