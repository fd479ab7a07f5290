/* Rules about an op's operands that letters cannot express (op_table.c): sums of dimensions,
 * settings that do not fit, layouts. Types, ranks and letters were checked before (op_check.c). */
#include "device/op_wants.h"

/* ---- layouts ---- */

static int must_be_n16(enum op op, const char *name, const struct tensor *t) {
    if (t->layout == LAYOUT_N16 || !t->dims[0]) return OK;
    return fail(ERR_FAILED, "%s: operand %s: must be in N16", op_name(op), name);
}

int rule_to_n16(enum op op, const struct op_args *a) {
    return must_be_n16(op, "y", &a->out[0]);
}

int rule_to_plain(enum op op, const struct op_args *a) {
    return must_be_n16(op, "x", &a->in[0]);
}

/* ---- products ---- */

/* The pixels of a side of y; 0: the window does not fit, or a number is below 1. */
static int conv_side(const struct conv_args *p, int side, int pixels, int taps) {
    if (p->stride[side] < 1 || p->padding[side] < 0 || p->dilation[side] < 1) return 0;
    int64_t rest = (int64_t)pixels + 2 * (int64_t)p->padding[side] -
                   (int64_t)p->dilation[side] * (taps - 1) - 1;
    return rest < 0 || rest > INT32_MAX ? 0 : (int)(rest / p->stride[side]) + 1;
}

int rule_conv(enum op op, const struct op_args *a) {
    int forward = op == OP_CONV2D_FORWARD, weight = op == OP_CONV2D_BACKWARD_WEIGHT;
    const struct tensor *x = forward || weight ? &a->in[0] : &a->out[0],
                        *w = weight ? &a->out[0] : &a->in[1],
                        *y = forward  ? &a->out[0]
                             : weight ? &a->in[1]
                                      : &a->in[0];
    const struct conv_args *p = &a->p.conv;
    int rows = conv_side(p, 0, x->dims[2], w->dims[2]),
        columns = conv_side(p, 1, x->dims[3], w->dims[3]);
    if (p->groups < 1 || x->dims[1] != p->groups * (int64_t)w->dims[1] || w->dims[0] % p->groups)
        return fail(ERR_FAILED, "%s: %d groups, %d channels to %d, %d of a filter: do not divide",
                    op_name(op), p->groups, x->dims[1], w->dims[0], w->dims[1]);
    if (!rows || !columns)
        return fail(ERR_FAILED,
                    "%s: a window of %d x %d does not suit %d x %d pixels: check stride, "
                    "padding and dilation",
                    op_name(op), w->dims[2], w->dims[3], x->dims[2], x->dims[3]);
    if (!p->general &&
        (p->groups != 1 || w->dims[2] != w->dims[3] || p->stride[0] != p->stride[1] ||
         p->padding[0] != p->padding[1] || p->dilation[0] != 1 || p->dilation[1] != 1))
        return fail(ERR_FAILED, "%s: is not a convolution of square windows: it needs `general`",
                    op_name(op));
    return want(op, forward ? "y" : "dy", y, 4, x->dims[0], w->dims[0], rows, columns);
}

int turned_linear(const struct op_args *args, int output, int i) {
    (void)output, (void)i;
    return args->p.linear.weight_is_in_out;
}

int turned_matmul(const struct op_args *args, int output, int i) {
    return !output && (i ? args->p.matmul.turn_b : args->p.matmul.turn_a);
}

int rule_matmul(enum op op, const struct op_args *a) {
    if (!a->p.matmul.turn_a || !a->p.matmul.turn_b) return OK;
    return fail(ERR_FAILED, "%s: both operands are transposed: transpose one at most", op_name(op));
}

int rule_sum(enum op op, const struct op_args *a) {
    if (a->p.sum.divide >= 1) return OK;
    return fail(ERR_FAILED, "%s: a divisor of %d: it must be at least 1", op_name(op),
                a->p.sum.divide);
}

/* ---- places ---- */

int rule_along(enum op op, const struct op_args *a) {
    int numbers = (op == OP_TAKE_ALONG ? a->out[0] : a->in[0]).dims[2], places = a->in[1].dims[2];
    if (places == 1 || places == numbers) return OK;
    return fail(ERR_FAILED, "%s: %d indices for %d numbers: give one for all, or one for each",
                op_name(op), places, numbers);
}

int rule_argsort(enum op op, const struct op_args *a) {
    if (a->in[0].dims[1] <= 1 << 24) return OK;
    return fail(ERR_FAILED, "%s: of %d numbers: an index above 2^24 is not exact in float32",
                op_name(op), a->in[0].dims[1]);
}

/* ---- pictures ---- */

int rule_pool(enum op op, const struct op_args *a) {
    int forward = op == OP_AVG_POOL_FORWARD || op == OP_MAX_POOL_FORWARD,
        by_dy = op == OP_AVG_POOL_BACKWARD;
    const struct tensor *x = by_dy ? &a->out[0] : &a->in[0], *y = forward ? &a->out[0]
                                                                  : by_dy ? &a->in[0]
                                                                          : &a->in[1];
    const struct pool_args *p = &a->p.pool;
    if (by_dy && p->relu != (a->in[1].data != NULL))
        return fail(ERR_FAILED, "%s: operand x: is needed with the relu before it, and only then",
                    op_name(op));
    int windows[2];
    for (int i = 0; i < 2; i++) {
        const int pixels = x->dims[2 + i];
        if (p->size[i] < 1 || p->stride[i] < 1 || p->size[i] > pixels)
            return fail(ERR_FAILED, "%s: window %d, stride %d over %d %s: does not fit",
                        op_name(op), p->size[i], p->stride[i], pixels, i ? "columns" : "rows");
        windows[i] = (pixels - p->size[i]) / p->stride[i] + 1;
    }
    return want(op, forward ? "y" : "dy", y, 4, x->dims[0], x->dims[1], windows[0], windows[1]);
}

int rule_pad(enum op op, const struct op_args *a) {
    const int top = a->p.pad.top, left = a->p.pad.left, *from = a->in[0].dims, *to = a->out[0].dims;
    if (top > -from[2] && top < to[2] && left > -from[3] && left < to[3]) return OK;
    return fail(ERR_FAILED, "%s: %d above and %d to the left: leave nothing of %d x %d pixels",
                op_name(op), top, left, from[2], from[3]);
}

int rule_cat(enum op op, const struct op_args *args) {
    const struct tensor *a = &args->in[0], *b = &args->in[1];
    return want(op, "y", &args->out[0], 4, a->dims[0], a->dims[1], a->dims[2] + b->dims[2],
                a->dims[3]);
}

/* ---- settings of elementwise ops ---- */

int rule_activation(enum op op, const struct op_args *a) {
    const struct activation_args *p = &a->p.activation;
    if ((unsigned)p->kind >= ACTIVATION_COUNT)
        return fail(ERR_FAILED, "%s: function %d: there is none of this number", op_name(op),
                    (int)p->kind);
    if (!activation_is_plain(p->kind) || a->in[0].layout == LAYOUT_PLAIN) return OK;
    return fail(ERR_FAILED, "%s: function %d: all operands must be in plain layout", op_name(op),
                (int)p->kind);
}

static int check_dropout(enum op op, const struct dropout_args *p) {
    if (p->p >= 0 && p->p <= 1 && p->layer >= 0 && p->v >= 0 && p->v < MAX_DEVICES) return OK;
    return fail(ERR_FAILED,
                "%s: p %g, layer %d, virtual device %d: p must be in 0..1, the others in range",
                op_name(op), p->p, p->layer, p->v);
}

int rule_dropout(enum op op, const struct op_args *a) {
    if (a->p.dropout.planes && a->in[0].rank != 4)
        return fail(ERR_FAILED, "%s: operand x: rank %d: planes have rank 4", op_name(op),
                    a->in[0].rank);
    return check_dropout(op, &a->p.dropout);
}

int rule_random(enum op op, const struct op_args *a) {
    return check_dropout(op, &a->p.dropout);
}

/* ---- losses and logs ---- */

/* Only cross entropy of scores has label smoothing. */
int rule_loss_forward(enum op op, const struct op_args *a) {
    int known = (op == OP_CROSS_ENTROPY_FORWARD || op == OP_CROSS_ENTROPY_BACKWARD) &&
                !a->p.loss.log_probabilities;
    double smoothing = a->p.loss.smoothing;
    if (smoothing >= 0 && smoothing <= (known ? 1 : 0)) return OK;
    return fail(ERR_FAILED, "%s: label smoothing %g: it must be between 0 and %d", op_name(op),
                smoothing, known);
}

int rule_loss_backward(enum op op, const struct op_args *a) {
    int none = a->p.loss.reduction == REDUCE_NONE;
    if (none != !!a->in[2].data)
        return fail(ERR_FAILED,
                    "%s: operand dloss is %s: it goes with reduction none, and only there",
                    op_name(op), none ? "missing" : "given");
    if (a->p.loss.reduction == REDUCE_MEAN && !a->step)
        return fail(ERR_FAILED, "%s: the mean needs the step block: it holds 1/B", op_name(op));
    return rule_loss_forward(op, a);
}

static int check_column(enum op op, int column, const struct tensor *log) {
    if (column >= 0 && column < log->dims[1]) return OK;
    return fail(ERR_FAILED, "%s: column %d: the log has %d", op_name(op), column, log->dims[1]);
}

int rule_loss_sum(enum op op, const struct op_args *a) {
    return check_column(op, a->p.loss.column, &a->out[0]);
}

int rule_hash(enum op op, const struct op_args *a) {
    return check_column(op, a->p.hash.column, &a->out[0]);
}

/* ---- optimizers ---- */

int rule_clip(enum op op, const struct op_args *a) {
    if (a->p.clip.max_norm >= 0) return OK;
    return fail(ERR_FAILED, "%s: a norm of at most %g: it must be at least 0", op_name(op),
                a->p.clip.max_norm);
}

int rule_sgd(enum op op, const struct op_args *a) {
    if (a->p.sgd.momentum == 0 || a->out[1].data) return OK;
    return fail(ERR_FAILED, "%s: momentum %g: operand momentum is missing", op_name(op),
                a->p.sgd.momentum);
}

int rule_two_moments(enum op op, const struct op_args *a) {
    return want(op, "moments", &a->out[1], 2, (int)tensor_count(&a->out[0]), 2, 0, 0);
}

/* ---- rows, and their order ---- */

static int check_rows(enum op op, const char *name, const struct tensor *t) {
    if (!t->data || !t->strided || t->stride[t->rank - 1] == 1) return OK;
    return fail(ERR_FAILED, "%s: operand %s: the elements of a row lie %d apart: must be 1",
                op_name(op), name, t->stride[t->rank - 1]);
}

int rule_attention(enum op op, const struct op_args *a) {
    const struct attention_args *p = &a->p.attention;
    const struct tensor *mask = &a->in[3];
    if (p->dropout.p != 0 && !a->step)
        return fail(ERR_FAILED, "%s: dropout needs the step block: it holds the seed", op_name(op));
    CHECK(check_dropout(op, &p->dropout));
    for (int i = 0; i < OP_INPUTS; i++)
        CHECK(check_rows(op, op_table[op].in[i].name, &a->in[i]));
    for (int i = 0; i < OP_OUTPUTS; i++)
        CHECK(check_rows(op, op_table[op].out[i].name, &a->out[i]));
    if (!mask->data) return OK;
    if (p->mask_shared < 1 || mask->dims[0] < 1)
        return fail(ERR_FAILED, "%s: %d masks, shared by %d: must be at least 1", op_name(op),
                    mask->dims[0], p->mask_shared);
    if (mask->dims[1] == 1 || mask->dims[1] == a->in[0].dims[2]) return OK;
    return fail(ERR_FAILED, "%s: a mask of %d rows for %d queries: give 1, or one for each",
                op_name(op), mask->dims[1], a->in[0].dims[2]);
}

static int want_weights(enum op op, const char *name, const struct tensor *t, int weights) {
    return t->data ? want(op, name, t, 1, weights, 0, 0, 0) : OK;
}

int rule_layer_norm(enum op op, const struct op_args *a) {
    const struct layer_norm_args *p = &a->p.layer_norm;
    int rows = a->in[0].dims[0], length = a->in[0].dims[1];
    if (p->groups < 1 || p->inner < 1 || length % p->inner || rows % p->groups ||
        (int64_t)p->groups * (length / p->inner) > INT32_MAX)
        return fail(ERR_FAILED, "%s: %d groups, %d neighbours a weight: %d rows of %d must divide",
                    op_name(op), p->groups, p->inner, rows, length);
    int weights = p->groups * (length / p->inner); /* K */
    if (op == OP_LAYER_NORM_BACKWARD_DATA) return want_weights(op, "w", &a->in[2], weights);
    if (op == OP_LAYER_NORM_FORWARD) {
        CHECK(want_weights(op, "w", &a->in[1], weights));
        return want_weights(op, "b", &a->in[2], weights);
    }
    CHECK(want_weights(op, "dw", &a->out[0], weights));
    return want_weights(op, "db", &a->out[1], weights);
}

/* Which operands each kind has, and how wide they are. */
int rule_recurrent(enum op op, const struct op_args *a) {
    static const int gates[RECURRENT_COUNT] = {4, 3, 1, 1}, saved[RECURRENT_COUNT] = {6, 5, 1, 1};
    enum recurrent kind = a->p.recurrent.kind;
    if ((unsigned)kind >= RECURRENT_COUNT)
        return fail(ERR_FAILED, "%s: kind %d: there is none of this number", op_name(op),
                    (int)kind);
    int forward = op == OP_RECURRENT_FORWARD, lstm = kind == RECURRENT_LSTM,
        gru = kind == RECURRENT_GRU;
    const struct tensor *w = &a->in[forward ? 1 : 2], *kept = forward ? &a->out[1] : &a->in[1],
                        *first = forward ? &a->in[3] : &a->out[1],
                        *last = forward ? &a->out[2] : &a->in[3];
    if (w->dims[0] != gates[kind] * (int64_t)w->dims[1])
        return fail(ERR_FAILED, "%s: a weight of %d rows and %d columns: kind %d has %d gates",
                    op_name(op), w->dims[0], w->dims[1], (int)kind, gates[kind]);
    if (kept->data && kept->dims[2] != saved[kind] * (int64_t)w->dims[1])
        return fail(ERR_FAILED, "%s: operand saved has rows of %d: must be %d of %d", op_name(op),
                    kept->dims[2], saved[kind], w->dims[1]);
    if (first->data && first->dims[1] != 1 + lstm)
        return fail(ERR_FAILED, "%s: %d states at first: kind %d has %d", op_name(op),
                    first->dims[1], (int)kind, 1 + lstm);
    if (forward && (!kept->data) != !(lstm || gru))
        return fail(ERR_FAILED, "%s: operand saved: is of an LSTM or GRU, and of these always",
                    op_name(op));
    if ((last->data && !lstm) || (forward && lstm && !last->data))
        return fail(ERR_FAILED, "%s: operand %s: is of an LSTM", op_name(op),
                    forward ? "last" : "dlast");
    if (!forward && (!a->out[2].data) != !gru)
        return fail(ERR_FAILED, "%s: operand dhidden: is of a GRU, and of it always", op_name(op));
    return OK;
}
