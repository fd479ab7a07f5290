/* The ops of a graph: the arguments of each, and the function of duet.h that it calls. To add one,
 * add its row and its function here, and map PyTorch's op to it in python/duet/export/lower/. */
#include <string.h>

#include "base/error.h"
#include "base/text/nearest.h"
#include "device/scheduled.h"
#include "models/graph/graph_args.h"
#include "nn/tensor.h"

/* Functions of one number, some with a setting. */
static duet_var *run_function(struct graph_run *r, const struct graph_node *n) {
    return tape_function(r->tape, value(r, n, 0), (enum activation)n->op->kind,
                         *n->op->settings ? number(n, 0) : 0);
}

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
    return tape_conv_transpose(r->tape, value(r, n, 0), tensor(r, n, 1), tensor(r, n, 2), &how,
                               output_padding);
}

static duet_var *run_layer_norm(struct graph_run *r, const struct graph_node *n) {
    int dims[GRAPH_RANK], rank = n->settings[0].count;
    list(n, 0, rank < 1 ? 1 : rank, dims);
    return duet_layer_norm(r->tape, value(r, n, 0), rank < 1 ? 1 : rank, dims, tensor(r, n, 1),
                           tensor(r, n, 2), number(n, 1));
}

static duet_var *run_group_norm(struct graph_run *r, const struct graph_node *n) {
    return duet_group_norm(r->tape, value(r, n, 0), whole(n, 0), tensor(r, n, 1), tensor(r, n, 2),
                           number(n, 1));
}

static duet_var *run_linear(struct graph_run *r, const struct graph_node *n) {
    return duet_linear(r->tape, value(r, n, 0), tensor(r, n, 1), tensor(r, n, 2));
}

static duet_var *run_embedding(struct graph_run *r, const struct graph_node *n) {
    return duet_embedding_of(r->tape, value(r, n, 0), tensor(r, n, 1), whole(n, 0));
}

/* With cell=1 the last c of an LSTM follows as one more step of the result. */
static duet_var *run_recurrent(struct graph_run *r, const struct graph_node *n) {
    const struct duet_recurrent layer = {.kind = n->op->kind,
                                         .w_ih = tensor(r, n, 1),
                                         .w_hh = tensor(r, n, 2),
                                         .b_ih = tensor(r, n, 3),
                                         .b_hh = tensor(r, n, 4),
                                         .reverse = whole(n, 0)};
    const int lstm = n->op->kind == DUET_LSTM, cell = lstm && whole(n, 1);
    duet_var *h = value(r, n, 5), *c = lstm ? value(r, n, 6) : NULL, *both[2] = {NULL};
    both[0] = duet_recurrent(r->tape, value(r, n, 0), &layer, h ? &h : NULL, c || cell ? &c : NULL);
    if (!cell || !both[0]) return both[0];
    both[1] = duet_reshape(r->tape, c, 3, (int[]){c->value.dims[0], 1, c->value.dims[1]});
    return both[1] ? duet_cat(r->tape, both, 2, 1) : NULL;
}

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

static duet_var *run_adaptive_avg_pool2d(struct graph_run *r, const struct graph_node *n) {
    int size[2];
    list(n, 0, 2, size);
    return duet_adaptive_avg_pool2d(r->tape, value(r, n, 0), size[0], size[1]);
}

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
    if (count + r->in_rows != x->value.rank)
        return tape_refuse(r->tape, "permute: an order of %d dimensions for a tensor of %d", count,
                           x->value.rank - r->in_rows);
    return duet_permute(r->tape, x, order);
}

/* Gives each sample a value without N. Dimensions of size 1 are repeated. */
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

/* One of the last two operands may be left out; the setting replaces it. */
static duet_var *run_where(struct graph_run *r, const struct graph_node *n) {
    return tape_where(r->tape, beside_result(r, n, 0), beside_result(r, n, 1),
                      beside_result(r, n, 2), number(n, 0));
}

static duet_var *run_gather(struct graph_run *r, const struct graph_node *n) {
    return tape_take_along_dim(r->tape, value(r, n, 0), value(r, n, 1), whole_dim(r, n, 0));
}

static duet_var *run_scatter_add(struct graph_run *r, const struct graph_node *n) {
    return tape_scatter_add(r->tape, value(r, n, 0), value(r, n, 1), whole_dim(r, n, 0),
                            whole(n, 1));
}

static duet_var *run_argsort(struct graph_run *r, const struct graph_node *n) {
    return tape_argsort(r->tape, value(r, n, 0), whole_dim(r, n, 0), whole(n, 1));
}

static duet_var *run_gelu(struct graph_run *r, const struct graph_node *n) {
    return duet_gelu(r->tape, value(r, n, 0), whole(n, 0) ? DUET_GELU_TANH : DUET_GELU);
}

#define OF_DROPOUT(NAME)                                                               \
    static duet_var *run_##NAME(struct graph_run *r, const struct graph_node *n) {     \
        double given = r->tape->dropout;                                               \
        return duet_##NAME(r->tape, value(r, n, 0), given < 0 ? number(n, 0) : given); \
    }
OF_DROPOUT(dropout)
OF_DROPOUT(dropout2d)

static duet_var *run_attention(struct graph_run *r, const struct graph_node *n) {
    struct duet_attention_options how = {.attn_mask = value(r, n, 3),
                                         .scale = number(n, 0),
                                         .is_causal = whole(n, 1),
                                         .dropout_p = number(n, 2)};
    if (how.dropout_p > 0 && r->tape->dropout >= 0) how.dropout_p = r->tape->dropout;
    return duet_scaled_dot_product_attention(r->tape, value(r, n, 0), value(r, n, 1),
                                             value(r, n, 2), &how);
}

static duet_var *run_random(struct graph_run *r, const struct graph_node *n) {
    int dims[GRAPH_RANK + 1], rank = result_shape(r, n, dims);
    return tape_random(r->tape, rank, dims, n->op->kind);
}

#define OF_DIMS(NAME)                                                              \
    static duet_var *run_##NAME(struct graph_run *r, const struct graph_node *n) { \
        int dims[GRAPH_RANK], count = list_dims(r, n, 0, dims);                    \
        return duet_##NAME(r->tape, value(r, n, 0), dims, count, whole(n, 1));     \
    }
OF_DIMS(sum)
OF_DIMS(mean)

/* ---- the table ---- */

#define FUNCTION(KIND) .run = run_function, .kind = ACTIVATION_##KIND
static const struct graph_op ops[] = {
    {"conv2d", "vpp?", "stride=1 padding=0 dilation=1 groups=1", .run = run_conv},
    {"conv", "vpp?", "stride=1 padding=0 dilation=1 groups=1", .run = run_conv},
    {"linear", "vpp?", "", .run = run_linear},
    {"matmul_add", "vpp?", "", .run = run_matmul_add},
    {"lstm", "vppp?p?v?v?", "reverse=0 cell=0", .run = run_recurrent, .kind = DUET_LSTM},
    {"gru", "vppp?p?v?", "reverse=0", .run = run_recurrent, .kind = DUET_GRU},
    {"rnn_tanh", "vppp?p?v?", "reverse=0", .run = run_recurrent, .kind = DUET_RNN_TANH},
    {"rnn_relu", "vppp?p?v?", "reverse=0", .run = run_recurrent, .kind = DUET_RNN_RELU},
    {"conv_transpose", "vpp?", "stride=1 padding=0 dilation=1 groups=1 output_padding=0",
     .run = run_conv_transpose},
    {"embedding", "vp", "padding_idx=-1", .run = run_embedding},
    {"batch_norm", "sppb?b?b?", "eps=1e-5 momentum=0.1 training=1", .run = run_batch_norm},
    {"layer_norm", "vp?p?", "shape eps=1e-5", .run = run_layer_norm},
    {"group_norm", "vp?p?", "groups eps=1e-5", .run = run_group_norm},
    {"relu", "v", "", .one = duet_relu},
    {"tanh", "v", "", .one = duet_tanh},
    {"sigmoid", "v", "", .one = duet_sigmoid},
    {"leaky_relu", "v", "slope=0.01", .number = duet_leaky_relu},
    {"elu", "v", "alpha=1", FUNCTION(ELU)},
    {"hardtanh", "v", "min=-1 max=1", .run = run_clamp},
    {"relu6", "v", "inplace=0", .run = run_relu6, .in_place = 1},
    {"gelu", "v", "tanh=0", .run = run_gelu},
    {"silu", "v", "inplace=0", .one = duet_silu, .in_place = 1},
    {"hardswish", "v", "", FUNCTION(HARDSWISH)},
    {"hardsigmoid", "v", "", FUNCTION(HARDSIGMOID)},
    {"erf", "v", "", FUNCTION(ERF)},
    {"sin", "v", "", FUNCTION(SIN)},
    {"cos", "v", "", FUNCTION(COS)},
    {"remainder", "v", "number", FUNCTION(REMAINDER)},
    {"fmod", "v", "number", FUNCTION(FMOD)},
    {"floor_divide", "v", "number", FUNCTION(FLOOR_DIVIDE)},
    {"round", "v", "", FUNCTION(ROUND)},
    {"floor", "v", "", FUNCTION(FLOOR)},
    {"ceil", "v", "", FUNCTION(CEIL)},
    {"trunc", "v", "", FUNCTION(TRUNC)},
    {"clamp", "v", "min=-inf max=inf", .run = run_clamp},
    {"pow", "v", "exponent", .number = duet_pow},
    {"above", "v", "number=0", FUNCTION(ABOVE)},
    {"equal", "v", "number=0", FUNCTION(EQUAL)},
    {"where", "aa?a?", "value=0", .run = run_where},
    {"gather", "vv", "dim", .run = run_gather},
    {"scatter_add", "vv", "dim size", .run = run_scatter_add},
    {"argsort", "v", "dim descending=0", .run = run_argsort},
    {"softplus", "v", "", FUNCTION(SOFTPLUS)},
    {"abs", "v", "", .one = duet_abs},
    {"exp", "v", "", .one = duet_exp},
    {"log", "v", "", .one = duet_log},
    {"sqrt", "v", "", .one = duet_sqrt},
    {"reciprocal", "v", "", .one = duet_reciprocal},
    {"softmax", "v", "", .one = duet_softmax},
    {"log_softmax", "v", "", .one = duet_log_softmax},
    {"dropout", "v", "p=0.5", .run = run_dropout},
    {"dropout2d", "s", "p=0.5", .run = run_dropout2d},
    {"rand", "", "", .run = run_random, .kind = RANDOM_UNIFORM},
    {"randn", "", "", .run = run_random, .kind = RANDOM_NORMAL},
    {"add", "aa", "", .two = duet_add},
    {"subtract", "aa", "", .two = duet_subtract},
    {"multiply", "aa", "", .two = duet_multiply},
    {"multiply_number", "v", "number", .number = duet_multiply_number},
    {"add_number", "v", "number", .number = duet_add_number},
    {"matmul", "aa", "", .run = run_matmul},
    {"scaled_dot_product_attention", "svva?", "scale=0 is_causal=0 dropout_p=0",
     .run = run_attention},
    {"sum", "v", "dims keepdim=0", .run = run_sum},
    {"mean", "v", "dims keepdim=0", .run = run_mean},
    {"max_pool2d", "v", "size stride padding=0 ceil_mode=0", .run = run_max_pool2d},
    {"avg_pool2d", "v", "size stride padding=0", .run = run_avg_pool2d},
    {"adaptive_avg_pool2d", "v", "size", .run = run_adaptive_avg_pool2d},
    {"pad2d", "v", "sides value=0", .run = run_pad2d},
    {"detach", "v", "", .one = duet_detach},
    {"flatten", "v", "", .one = duet_flatten},
    {"reshape", "v", "", .run = run_reshape},
    {"narrow", "v", "dim start length", .run = run_narrow},
    {"cat", "v*", "dim", .run = run_cat},
    {"transpose", "v", "dim0 dim1", .run = run_transpose},
    {"permute", "v", "order", .run = run_permute},
    {"expand", "a", "", .run = run_expand},
};
enum { OPS = sizeof ops / sizeof *ops };

duet_var *graph_run_op(struct graph_run *r, const struct graph_node *n) {
    const struct graph_op *op = n->op;
    if (op->in_place && whole(n, 0)) scheduled_copies_input(r->tape->stream);
    if (op->run) return op->run(r, n);
    if (op->one) return op->one(r->tape, value(r, n, 0));
    if (op->number) return op->number(r->tape, value(r, n, 0), number(n, 0));
    duet_var *a = beside_result(r, n, 0);
    return op->two(r->tape, a, beside_result(r, n, 1));
}

const struct graph_op *graph_find_op(const char *name) {
    for (int i = 0; i < OPS; i++)
        if (!strcmp(ops[i].name, name)) return &ops[i];
    return NULL;
}

int graph_unknown_op(const char *where, const char *name) {
    const char *names[OPS];
    for (int i = 0; i < OPS; i++)
        names[i] = ops[i].name;
    return unknown_value(where, name, names, OPS);
}
