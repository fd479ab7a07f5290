/* Rules about an op's operands that symbolic dimensions (op_table.c) cannot express: sums, invalid
 * settings, layouts. op_check.c has checked types, ranks and dimensions before.
 *
 * A layer refuses a program's wrong arguments before it launches anything, and names their values.
 * These rules catch mistakes of the layer itself, so a rule only names the mistake. */
#include "device/op_table.h"

/* 1: t has these sizes. */
static int is_sized(const struct tensor *t, int d0, int d1, int d2, int d3) {
    return t->dims[0] == d0 && t->dims[1] == d1 && t->dims[2] == d2 && t->dims[3] == d3;
}

/* ---- layouts ---- */

const char *rule_to_n16(enum op op, const struct op_args *a) {
    (void)op;
    return a->out[0].layout == LAYOUT_N16 || !a->out[0].dims[0] ? NULL : "y must be in N16";
}

const char *rule_to_plain(enum op op, const struct op_args *a) {
    (void)op;
    return a->in[0].layout == LAYOUT_N16 || !a->in[0].dims[0] ? NULL : "x must be in N16";
}

/* ---- products ---- */

/* The pixels of a side of y; 0: the window does not fit, or a number is below 1. */
static int conv_side(const struct conv_args *p, int side, int pixels, int taps) {
    if (p->stride[side] < 1 || p->padding[side] < 0 || p->dilation[side] < 1) return 0;
    int64_t rest = (int64_t)pixels + 2 * (int64_t)p->padding[side] -
                   (int64_t)p->dilation[side] * (taps - 1) - 1;
    return rest < 0 || rest > INT32_MAX ? 0 : (int)(rest / p->stride[side]) + 1;
}

const char *rule_conv(enum op op, const struct op_args *a) {
    const struct product_operands o = product_operands(op, a);
    const struct tensor *x = o.x, *w = o.w, *y = o.y;
    const struct conv_args *p = &a->p.conv;
    int rows = conv_side(p, 0, x->dims[2], w->dims[2]),
        columns = conv_side(p, 1, x->dims[3], w->dims[3]);
    if (p->groups < 1 || x->dims[1] != p->groups * (int64_t)w->dims[1] || w->dims[0] % p->groups)
        return "the groups do not divide the channels";
    if (!rows || !columns) return "stride, padding, dilation or the window does not suit x";
    if (!p->general &&
        (p->groups != 1 || w->dims[2] != w->dims[3] || p->stride[0] != p->stride[1] ||
         p->padding[0] != p->padding[1] || p->dilation[0] != 1 || p->dilation[1] != 1))
        return "is not a convolution with square windows: it needs `general`";
    return is_sized(y, x->dims[0], w->dims[0], rows, columns) ? NULL : "y has the wrong size";
}

int transposed_linear(const struct op_args *args, int output, int i) {
    (void)output, (void)i;
    return args->p.linear.weight_is_in_out;
}

int transposed_matmul(const struct op_args *args, int output, int i) {
    return !output && (i ? args->p.matmul.turn_b : args->p.matmul.turn_a);
}

const char *rule_matmul(enum op op, const struct op_args *a) {
    (void)op;
    return a->p.matmul.turn_a && a->p.matmul.turn_b ? "both operands are transposed" : NULL;
}

const char *rule_sum(enum op op, const struct op_args *a) {
    (void)op;
    return a->p.sum.divide >= 1 ? NULL : "the divisor must be at least 1";
}

/* ---- computed indices ---- */

const char *rule_along(enum op op, const struct op_args *a) {
    int numbers = (op == OP_TAKE_ALONG ? a->out[0] : a->in[0]).dims[2], indices = a->in[1].dims[2];
    return indices == 1 || indices == numbers ? NULL : "give one index for all, or one for each";
}

const char *rule_argsort(enum op op, const struct op_args *a) {
    (void)op;
    return a->in[0].dims[1] <= 1 << 24 ? NULL : "an index above 2^24 is not exact in float32";
}

/* ---- images ---- */

const char *rule_pool(enum op op, const struct op_args *a) {
    int forward = op == OP_AVG_POOL_FORWARD || op == OP_MAX_POOL_FORWARD,
        by_dy = op == OP_AVG_POOL_BACKWARD, windows[2];
    const struct tensor *x = by_dy ? &a->out[0] : &a->in[0], *y = forward ? &a->out[0]
                                                                  : by_dy ? &a->in[0]
                                                                          : &a->in[1];
    const struct pool_args *p = &a->p.pool;
    if (by_dy && p->relu != (a->in[1].data != NULL))
        return "x is needed with the relu before it, and only then";
    for (int i = 0; i < 2; i++) {
        if (p->size[i] < 1 || p->stride[i] < 1 || p->size[i] > x->dims[2 + i])
            return "the window or the stride does not suit x";
        windows[i] = (x->dims[2 + i] - p->size[i]) / p->stride[i] + 1;
    }
    return is_sized(y, x->dims[0], x->dims[1], windows[0], windows[1]) ? NULL
                                                                       : "y has the wrong size";
}

const char *rule_pad(enum op op, const struct op_args *a) {
    const int top = a->p.pad.top, left = a->p.pad.left, *from = a->in[0].dims, *to = a->out[0].dims;
    (void)op;
    return top > -from[2] && top < to[2] && left > -from[3] && left < to[3]
               ? NULL
               : "the margins leave no pixel";
}

const char *rule_cat(enum op op, const struct op_args *args) {
    const int *a = args->in[0].dims, *b = args->in[1].dims;
    (void)op;
    return is_sized(&args->out[0], a[0], a[1], a[2] + b[2], a[3]) ? NULL : "y has the wrong size";
}

/* ---- settings of elementwise ops ---- */

const char *rule_activation(enum op op, const struct op_args *a) {
    const enum activation kind = a->p.activation.kind;
    (void)op;
    if ((unsigned)kind >= ACTIVATION_COUNT) return "no function has this number";
    return activation_is_plain(kind) && a->in[0].layout != LAYOUT_PLAIN
               ? "this function takes plain operands only"
               : NULL;
}

static const char *dropout_misfit(const struct dropout_args *p) {
    return p->p >= 0 && p->p <= 1 && p->layer >= 0 && p->v >= 0 && p->v < MAX_DEVICES
               ? NULL
               : "p, the layer or the virtual device is out of range";
}

const char *rule_dropout(enum op op, const struct op_args *a) {
    if (op == OP_DROPOUT && a->p.dropout.planes && a->in[0].rank != 4) return "planes have rank 4";
    return dropout_misfit(&a->p.dropout);
}

/* ---- losses and logs ---- */

/* Only cross entropy of scores has label smoothing. */
const char *rule_loss_forward(enum op op, const struct op_args *a) {
    int known = (op == OP_CROSS_ENTROPY_FORWARD || op == OP_CROSS_ENTROPY_BACKWARD) &&
                !a->p.loss.log_probabilities;
    double smoothing = a->p.loss.smoothing;
    return smoothing >= 0 && smoothing <= (known ? 1 : 0) ? NULL : "no such label smoothing";
}

const char *rule_loss_backward(enum op op, const struct op_args *a) {
    if ((a->p.loss.reduction == REDUCE_NONE) != (a->in[2].data != NULL))
        return "dloss is required with reduction none, and only then";
    if (a->p.loss.reduction == REDUCE_MEAN && !a->step)
        return "the mean needs the step block: it holds 1/B";
    return rule_loss_forward(op, a);
}

/* The column of a log. */
const char *rule_column(enum op op, const struct op_args *a) {
    int column = op == OP_HASH ? a->p.hash.column : a->p.loss.column;
    return column >= 0 && column < a->out[0].dims[1] ? NULL : "the log has no such column";
}

/* ---- optimizers ---- */

const char *rule_clip(enum op op, const struct op_args *a) {
    (void)op;
    return a->p.clip.max_norm >= 0 ? NULL : "the norm must be at least 0";
}

const char *rule_sgd(enum op op, const struct op_args *a) {
    (void)op;
    return a->p.sgd.momentum == 0 || a->out[1].data ? NULL : "operand momentum is missing";
}

const char *rule_two_moments(enum op op, const struct op_args *a) {
    const struct tensor *m = &a->out[1];
    (void)op;
    return (size_t)m->dims[0] == tensor_count(&a->out[0]) && m->dims[1] == 2
               ? NULL
               : "two moments for each element";
}

/* ---- rows, and their order ---- */

static int has_rows(const struct tensor *t) {
    return !t->data || !t->strided || t->stride[t->rank - 1] == 1;
}

const char *rule_attention(enum op op, const struct op_args *a) {
    const struct attention_args *p = &a->p.attention;
    const struct tensor *mask = &a->in[3];
    int rows = 1;
    (void)op;
    for (int i = 0; i < OP_INPUTS; i++)
        rows &= has_rows(&a->in[i]);
    for (int i = 0; i < OP_OUTPUTS; i++)
        rows &= has_rows(&a->out[i]);
    if (!rows) return "the elements of a row must be neighbours";
    if (p->dropout.p != 0 && !a->step) return "dropout needs the step block: it holds the seed";
    if (mask->data && (p->mask_shared < 1 || mask->dims[0] < 1 ||
                       (mask->dims[1] != 1 && mask->dims[1] != a->in[0].dims[2])))
        return "a mask has one row, or one for each query";
    return dropout_misfit(&p->dropout);
}

const char *rule_layer_norm(enum op op, const struct op_args *a) {
    const struct layer_norm_args *p = &a->p.layer_norm;
    int rows = a->in[0].dims[0], length = a->in[0].dims[1];
    if (p->groups < 1 || p->inner < 1 || length % p->inner || rows % p->groups ||
        (int64_t)p->groups * (length / p->inner) > INT32_MAX)
        return "groups must divide the rows, and inner the length of a row";
    int forward = op == OP_LAYER_NORM_FORWARD, data = op == OP_LAYER_NORM_BACKWARD_DATA;
    const struct tensor *w = forward ? &a->in[1]
                             : data  ? &a->in[2]
                                     : &a->out[0],
                        *b = forward ? &a->in[2]
                             : data  ? w
                                     : &a->out[1];
    int weights = p->groups * (length / p->inner); /* K */
    return (!w->data || w->dims[0] == weights) && (!b->data || b->dims[0] == weights)
               ? NULL
               : "the number of weights is wrong";
}

/* Which operands each kind has, and how wide they are. */
const char *rule_recurrent(enum op op, const struct op_args *a) {
    static const int gates[RECURRENT_COUNT] = {4, 3, 1, 1}, saved[RECURRENT_COUNT] = {6, 5, 1, 1};
    enum recurrent kind = a->p.recurrent.kind;
    if ((unsigned)kind >= RECURRENT_COUNT) return "this kind does not exist";
    int forward = op == OP_RECURRENT_FORWARD, lstm = kind == RECURRENT_LSTM,
        gru = kind == RECURRENT_GRU;
    const struct tensor *w = &a->in[forward ? 1 : 2], *kept = forward ? &a->out[1] : &a->in[1],
                        *first = forward ? &a->in[3] : &a->out[1],
                        *last = forward ? &a->out[2] : &a->in[3];
    if (w->dims[0] != gates[kind] * (int64_t)w->dims[1])
        return "w does not have the rows that its gates need";
    if (kept->data && kept->dims[2] != saved[kind] * (int64_t)w->dims[1])
        return "the rows of saved have the wrong length";
    if (first->data && first->dims[1] != 1 + lstm)
        return "an LSTM has two initial states, others one";
    if (forward && (!kept->data) != !(lstm || gru))
        return "saved is required for LSTM and GRU, and only for them";
    if ((last->data && !lstm) || (forward && lstm && !last->data))
        return "the last c is required for LSTM, and only for it";
    return !forward && (!a->out[2].data) != !gru ? "dhidden is required for GRU, and only for it"
                                                 : NULL;
}
