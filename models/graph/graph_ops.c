/* The ops of a graph: what each is given, and the function of duet.h that it calls. To serve one
 * more, add its row and its function here, and say in python/duet/_export_ops.py or a
 * file beside it what of PyTorch it is. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "models/graph/graph_args.h"
#include "nn/tensor.h"

/* An op of nn/ without settings, as a function of this table. */
#define OF_ONE(NAME)                                                               \
    static duet_var *run_##NAME(struct graph_run *r, const struct graph_node *n) { \
        return duet_##NAME(r->tape, value(r, n, 0));                               \
    }
#define OF_TWO(NAME)                                                               \
    static duet_var *run_##NAME(struct graph_run *r, const struct graph_node *n) { \
        duet_var *a = beside_result(r, n, 0);                                      \
        return duet_##NAME(r->tape, a, beside_result(r, n, 1));                    \
    }
#define OF_NUMBER(NAME)                                                            \
    static duet_var *run_##NAME(struct graph_run *r, const struct graph_node *n) { \
        return duet_##NAME(r->tape, value(r, n, 0), number(n, 0));                 \
    }

OF_ONE(relu)
OF_ONE(tanh)
OF_ONE(sigmoid)
OF_ONE(abs)
OF_ONE(exp)
OF_ONE(log)
OF_ONE(sqrt)
OF_ONE(reciprocal)
OF_ONE(softplus)
OF_ONE(silu)
OF_ONE(hardswish)
OF_ONE(hardsigmoid)
OF_ONE(erf)
OF_ONE(sin)
OF_ONE(cos)
OF_ONE(detach)
OF_ONE(flatten)
OF_ONE(softmax)
OF_ONE(log_softmax)
OF_TWO(add)
OF_TWO(subtract)
OF_TWO(multiply)
OF_NUMBER(leaky_relu)
OF_NUMBER(elu)
OF_NUMBER(multiply_number)
OF_NUMBER(add_number)
OF_NUMBER(above)
OF_NUMBER(equal)
OF_NUMBER(pow)

#define OF_ROUNDING(NAME, TO)                                                      \
    static duet_var *run_##NAME(struct graph_run *r, const struct graph_node *n) { \
        return duet_round(r->tape, value(r, n, 0), TO);                            \
    }

#define OF_MODULO(NAME, HOW)                                                       \
    static duet_var *run_##NAME(struct graph_run *r, const struct graph_node *n) { \
        return duet_modulo(r->tape, value(r, n, 0), number(n, 0), HOW);            \
    }

OF_MODULO(remainder, DUET_REMAINDER)
OF_MODULO(fmod, DUET_FMOD)
OF_MODULO(floor_divide, DUET_FLOOR_DIVIDE)
OF_ROUNDING(round, DUET_NEAREST)
OF_ROUNDING(floor, DUET_FLOOR)
OF_ROUNDING(ceil, DUET_CEIL)
OF_ROUNDING(trunc, DUET_TRUNC)

/* ---- layers with parameters ---- */

static struct duet_conv conv_of(const struct graph_node *n) {
    struct duet_conv how = {.groups = whole(n, 3)};
    windows(n, 0, how.stride, how.padding);
    list(n, 2, 2, how.dilation);
    return how;
}

static duet_var *run_conv(struct graph_run *r, const struct graph_node *n) {
    const struct duet_conv how = conv_of(n);
    return duet_conv2d(r->tape, value(r, n, 0), tensor(r, n, 1), tensor(r, n, 2), &how);
}

static duet_var *run_conv_transpose(struct graph_run *r, const struct graph_node *n) {
    const struct duet_conv how = conv_of(n);
    int output_padding[2];
    list(n, 4, 2, output_padding);
    return duet_conv_transpose(r->tape, value(r, n, 0), tensor(r, n, 1), tensor(r, n, 2), &how,
                               output_padding);
}

static duet_var *run_linear(struct graph_run *r, const struct graph_node *n) {
    return duet_linear(r->tape, value(r, n, 0), tensor(r, n, 1), tensor(r, n, 2));
}

static duet_var *run_embedding(struct graph_run *r, const struct graph_node *n) {
    return duet_embedding_of(r->tape, value(r, n, 0), tensor(r, n, 1), whole(n, 0));
}

/* With cell=1 the last c of an LSTM follows as one more step of the result. */
static duet_var *recurrent(struct graph_run *r, const struct graph_node *n,
                           enum duet_recurrent_kind kind) {
    const struct duet_recurrent layer = {.kind = kind,
                                         .w_ih = tensor(r, n, 1),
                                         .w_hh = tensor(r, n, 2),
                                         .b_ih = tensor(r, n, 3),
                                         .b_hh = tensor(r, n, 4),
                                         .reverse = whole(n, 0)};
    const int lstm = kind == DUET_LSTM, cell = lstm && whole(n, 1);
    duet_var *h = value(r, n, 5), *c = lstm ? value(r, n, 6) : NULL, *both[2] = {NULL};
    both[0] = duet_recurrent(r->tape, value(r, n, 0), &layer, h ? &h : NULL, c || cell ? &c : NULL);
    if (!cell || !both[0]) return both[0];
    both[1] = duet_reshape(r->tape, c, 3, (int[]){c->value.dims[0], 1, c->value.dims[1]});
    return both[1] ? duet_cat(r->tape, both, 2, 1) : NULL;
}

#define OF_RECURRENT(NAME, KIND)                                                   \
    static duet_var *run_##NAME(struct graph_run *r, const struct graph_node *n) { \
        return recurrent(r, n, KIND);                                              \
    }
OF_RECURRENT(lstm, DUET_LSTM)
OF_RECURRENT(gru, DUET_GRU)
OF_RECURRENT(rnn_tanh, DUET_RNN_TANH)
OF_RECURRENT(rnn_relu, DUET_RNN_RELU)

static duet_var *run_matmul_add(struct graph_run *r, const struct graph_node *n) {
    return duet_matmul_add(r->tape, value(r, n, 0), tensor(r, n, 1), tensor(r, n, 2));
}

/* ---- pools and pads ---- */

/* Returns the height of the window. */
static int pool_settings(const struct graph_node *n, struct duet_pool *how) {
    int size[2];
    list(n, 0, 2, size);
    windows(n, 1, how->stride, how->padding);
    how->width = size[1];
    return size[0];
}

static duet_var *run_max_pool2d(struct graph_run *r, const struct graph_node *n) {
    struct duet_pool how = {.ceil_mode = whole(n, 3)};
    int height = pool_settings(n, &how);
    return duet_max_pool2d(r->tape, value(r, n, 0), height, &how);
}

static duet_var *run_avg_pool2d(struct graph_run *r, const struct graph_node *n) {
    struct duet_pool how = {.ceil_mode = 0};
    int height = pool_settings(n, &how);
    return duet_avg_pool2d(r->tape, value(r, n, 0), height, &how);
}

#define OF_ADAPTIVE(NAME)                                                          \
    static duet_var *run_##NAME(struct graph_run *r, const struct graph_node *n) { \
        int size[2];                                                               \
        list(n, 0, 2, size);                                                       \
        return duet_##NAME(r->tape, value(r, n, 0), size[0], size[1]);             \
    }
OF_ADAPTIVE(adaptive_avg_pool2d)
OF_ADAPTIVE(adaptive_max_pool2d)

static duet_var *run_pad2d(struct graph_run *r, const struct graph_node *n) {
    int side[4];
    list(n, 0, 4, side);
    return duet_pad2d(r->tape, value(r, n, 0), side[0], side[1], side[2], side[3], number(n, 1));
}

/* ---- shapes ---- */

static duet_var *run_reshape(struct graph_run *r, const struct graph_node *n) {
    int dims[GRAPH_RANK + 1], rank = result_shape(r, n, dims);
    return duet_reshape(r->tape, value(r, n, 0), rank, dims);
}

static duet_var *run_narrow(struct graph_run *r, const struct graph_node *n) {
    return duet_narrow(r->tape, value(r, n, 0), whole_dim(r, n, 0), whole(n, 1), whole(n, 2));
}

static duet_var *run_cat(struct graph_run *r, const struct graph_node *n) {
    duet_var *vars[GRAPH_OPERANDS];
    for (int i = 0; i < n->operand_count; i++)
        vars[i] = value(r, n, i);
    return duet_cat(r->tape, vars, n->operand_count, whole_dim(r, n, 0));
}

static duet_var *run_transpose(struct graph_run *r, const struct graph_node *n) {
    return duet_transpose(r->tape, value(r, n, 0), whole_dim(r, n, 0), whole_dim(r, n, 1));
}

static duet_var *run_permute(struct graph_run *r, const struct graph_node *n) {
    int order[GRAPH_RANK + 1] = {0}, count = list_dims(r, n, 0, order + r->in_rows);
    duet_var *x = value(r, n, 0);
    if (tape_failed(r->tape, x)) return NULL;
    if (count + r->in_rows != x->value.rank) {
        tape_fail(r->tape, fail(ERR_USAGE, "permute: an order of %d dimensions for %d of them",
                                count, x->value.rank - r->in_rows));
        return NULL;
    }
    return duet_permute(r->tape, x, order);
}

/* What is without N as a value of the samples: each has it. Of a value, what has size 1 is
 * repeated. */
static duet_var *run_expand(struct graph_run *r, const struct graph_node *n) {
    int dims[GRAPH_RANK + 1], rank = result_shape(r, n, dims);
    duet_var *x = beside_result(r, n, 0);
    return x && x->common ? tape_expand(r->tape, &x->value, x->param, rank, dims)
                          : duet_expand(r->tape, x, rank, dims);
}

/* ---- the rest ---- */

static duet_var *run_relu6(struct graph_run *r, const struct graph_node *n) {
    return duet_clamp(r->tape, value(r, n, 0), 0, 6);
}

static duet_var *run_clamp(struct graph_run *r, const struct graph_node *n) {
    return duet_clamp(r->tape, value(r, n, 0), number(n, 0), number(n, 1));
}

/* Of the last two operands the one that is left out is the number. */
static duet_var *run_where(struct graph_run *r, const struct graph_node *n) {
    return tape_where(r->tape, beside_result(r, n, 0), beside_result(r, n, 1),
                      beside_result(r, n, 2), number(n, 0));
}

static duet_var *run_gather(struct graph_run *r, const struct graph_node *n) {
    return duet_take_along_dim(r->tape, value(r, n, 0), value(r, n, 1), whole_dim(r, n, 0));
}

static duet_var *run_scatter_add(struct graph_run *r, const struct graph_node *n) {
    return duet_scatter_add(r->tape, value(r, n, 0), value(r, n, 1), whole_dim(r, n, 0),
                            whole(n, 1));
}

static duet_var *run_argsort(struct graph_run *r, const struct graph_node *n) {
    return duet_argsort(r->tape, value(r, n, 0), whole_dim(r, n, 0), whole(n, 1));
}

static duet_var *run_gelu(struct graph_run *r, const struct graph_node *n) {
    return duet_gelu(r->tape, value(r, n, 0), whole(n, 0) ? DUET_GELU_TANH : DUET_GELU);
}

static duet_var *run_dropout(struct graph_run *r, const struct graph_node *n) {
    double given = r->tape->dropout;
    if (draws(r, n)) return NULL;
    return duet_dropout(r->tape, value(r, n, 0), given < 0 ? number(n, 0) : given);
}

static duet_var *run_dropout2d(struct graph_run *r, const struct graph_node *n) {
    double given = r->tape->dropout;
    if (draws(r, n)) return NULL;
    return duet_dropout2d(r->tape, value(r, n, 0), given < 0 ? number(n, 0) : given);
}

static duet_var *run_attention(struct graph_run *r, const struct graph_node *n) {
    struct duet_attention_options how = {.attn_mask = value(r, n, 3),
                                         .scale = number(n, 0),
                                         .is_causal = whole(n, 1),
                                         .dropout_p = number(n, 2)};
    if (how.dropout_p > 0 && draws(r, n)) return NULL;
    if (how.dropout_p > 0 && r->tape->dropout >= 0) how.dropout_p = r->tape->dropout;
    return duet_scaled_dot_product_attention(r->tape, value(r, n, 0), value(r, n, 1),
                                             value(r, n, 2), &how);
}

static duet_var *drawn(struct graph_run *r, const struct graph_node *n, enum duet_draw how) {
    int dims[GRAPH_RANK + 1], rank = result_shape(r, n, dims);
    return draws(r, n) ? NULL : duet_random(r->tape, rank, dims, how);
}

static duet_var *run_rand(struct graph_run *r, const struct graph_node *n) {
    return drawn(r, n, DUET_RAND);
}

static duet_var *run_randn(struct graph_run *r, const struct graph_node *n) {
    return drawn(r, n, DUET_RANDN);
}

static duet_var *run_sum(struct graph_run *r, const struct graph_node *n) {
    int dims[GRAPH_RANK], count = list_dims(r, n, 0, dims);
    return duet_sum(r->tape, value(r, n, 0), dims, count, whole(n, 1));
}

static duet_var *run_mean(struct graph_run *r, const struct graph_node *n) {
    int dims[GRAPH_RANK], count = list_dims(r, n, 0, dims);
    return duet_mean(r->tape, value(r, n, 0), dims, count, whole(n, 1));
}

/* ---- the table ---- */

static const struct graph_op ops[] = {
    {"conv2d", "vpp?", "stride=1 padding=0 dilation=1 groups=1", run_conv},
    {"conv", "vpp?", "stride=1 padding=0 dilation=1 groups=1", run_conv},
    {"linear", "vpp?", "", run_linear},
    {"matmul_add", "vpp?", "", run_matmul_add},
    {"lstm", "vppp?p?v?v?", "reverse=0 cell=0", run_lstm},
    {"gru", "vppp?p?v?", "reverse=0", run_gru},
    {"rnn_tanh", "vppp?p?v?", "reverse=0", run_rnn_tanh},
    {"rnn_relu", "vppp?p?v?", "reverse=0", run_rnn_relu},
    {"conv_transpose", "vpp?", "stride=1 padding=0 dilation=1 groups=1 output_padding=0",
     run_conv_transpose},
    {"embedding", "vp", "padding_idx=-1", run_embedding},
    {"batch_norm", "vppb?b?b?", "eps=1e-5 momentum=0.1 training=1", run_batch_norm},
    {"layer_norm", "vp?p?", "shape eps=1e-5", run_layer_norm},
    {"group_norm", "vp?p?", "groups eps=1e-5", run_group_norm},
    {"relu", "v", "", run_relu},
    {"tanh", "v", "", run_tanh},
    {"sigmoid", "v", "", run_sigmoid},
    {"leaky_relu", "v", "slope=0.01", run_leaky_relu},
    {"elu", "v", "alpha=1", run_elu},
    {"hardtanh", "v", "min=-1 max=1", run_clamp},
    {"relu6", "v", "", run_relu6},
    {"gelu", "v", "tanh=0", run_gelu},
    {"silu", "v", "", run_silu},
    {"hardswish", "v", "", run_hardswish},
    {"hardsigmoid", "v", "", run_hardsigmoid},
    {"erf", "v", "", run_erf},
    {"sin", "v", "", run_sin},
    {"cos", "v", "", run_cos},
    {"remainder", "v", "number", run_remainder},
    {"fmod", "v", "number", run_fmod},
    {"floor_divide", "v", "number", run_floor_divide},
    {"round", "v", "", run_round},
    {"floor", "v", "", run_floor},
    {"ceil", "v", "", run_ceil},
    {"trunc", "v", "", run_trunc},
    {"clamp", "v", "min=-inf max=inf", run_clamp},
    {"pow", "v", "exponent", run_pow},
    {"above", "v", "number=0", run_above},
    {"equal", "v", "number=0", run_equal},
    {"where", "aa?a?", "value=0", run_where},
    {"gather", "vv", "dim", run_gather},
    {"scatter_add", "vv", "dim size", run_scatter_add},
    {"argsort", "v", "dim descending=0", run_argsort},
    {"softplus", "v", "", run_softplus},
    {"abs", "v", "", run_abs},
    {"exp", "v", "", run_exp},
    {"log", "v", "", run_log},
    {"sqrt", "v", "", run_sqrt},
    {"reciprocal", "v", "", run_reciprocal},
    {"softmax", "v", "", run_softmax},
    {"log_softmax", "v", "", run_log_softmax},
    {"dropout", "v", "p=0.5", run_dropout},
    {"dropout2d", "v", "p=0.5", run_dropout2d},
    {"rand", "", "", run_rand},
    {"randn", "", "", run_randn},
    {"add", "aa", "", run_add},
    {"subtract", "aa", "", run_subtract},
    {"multiply", "aa", "", run_multiply},
    {"multiply_number", "v", "number", run_multiply_number},
    {"add_number", "v", "number", run_add_number},
    {"matmul", "aa", "", run_matmul},
    {"scaled_dot_product_attention", "vvva?", "scale=0 is_causal=0 dropout_p=0", run_attention},
    {"sum", "v", "dims keepdim=0", run_sum},
    {"mean", "v", "dims keepdim=0", run_mean},
    {"max_pool2d", "v", "size stride padding=0 ceil_mode=0", run_max_pool2d},
    {"avg_pool2d", "v", "size stride padding=0", run_avg_pool2d},
    {"adaptive_avg_pool2d", "v", "size", run_adaptive_avg_pool2d},
    {"adaptive_max_pool2d", "v", "size", run_adaptive_max_pool2d},
    {"pad2d", "v", "sides value=0", run_pad2d},
    {"detach", "v", "", run_detach},
    {"flatten", "v", "", run_flatten},
    {"reshape", "v", "", run_reshape},
    {"narrow", "v", "dim start length", run_narrow},
    {"cat", "v*", "dim", run_cat},
    {"transpose", "v", "dim0 dim1", run_transpose},
    {"permute", "v", "order", run_permute},
    {"expand", "a", "", run_expand},
};
enum { OPS = sizeof ops / sizeof *ops };

const struct graph_op *graph_find_op(const char *name) {
    for (int i = 0; i < OPS; i++)
        if (!strcmp(ops[i].name, name)) return &ops[i];
    return NULL;
}

void graph_op_names(char *text, size_t bytes) {
    size_t used = 0;
    for (int i = 0; i < OPS && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, i ? ", %s" : "%s", ops[i].name);
}
