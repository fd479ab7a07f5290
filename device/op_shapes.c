/* How the shapes of an op's operands relate: the table of op.h, op by op. The types, ranks and
 * layouts of the operands were checked before (op_check.c). */
#include "device/op_wants.h"

#include <stdio.h>

const char *op_shape_text(const struct tensor *t, char text[64]) {
    int used = snprintf(text, 64, "(");
    for (int d = 0; d < t->rank && d < MAX_RANK; d++)
        used += snprintf(text + used, (size_t)(64 - used), d ? ", %d" : "%d", t->dims[d]);
    snprintf(text + used, (size_t)(64 - used), ")");
    return text;
}

/* ---- elementwise, and layouts ---- */

static int want_x(enum op op, const struct op_args *a) {
    const struct tensor *x = &a->in[0];
    return want(op, "y", &a->out[0], x->rank, x->dims[0], x->dims[1], x->dims[2], x->dims[3]);
}

int shapes_to_n16(enum op op, const struct op_args *a) {
    if (a->out[0].layout != LAYOUT_N16 && a->out[0].dims[0])
        return fail(ERR_FAILED, "%s: operand y: must be in N16", op_name(op));
    return want_x(op, a);
}

int shapes_to_plain(enum op op, const struct op_args *a) {
    if (a->in[0].layout != LAYOUT_N16 && a->in[0].dims[0])
        return fail(ERR_FAILED, "%s: operand x: must be in N16", op_name(op));
    return want_x(op, a);
}

int shapes_same(enum op op, const struct op_args *a) {
    return want_same(op, "y", &a->out[0], &a->in[0]);
}

int shapes_two_terms(enum op op, const struct op_args *a) {
    CHECK(want_same(op, "b", &a->in[1], &a->in[0]));
    return want_same(op, "y", &a->out[0], &a->in[0]);
}

int shapes_of_y_and_dy(enum op op, const struct op_args *a) {
    CHECK(want_same(op, "dy", &a->in[1], &a->in[0]));
    return want_same(op, "dx", &a->out[0], &a->in[0]);
}

/* ---- products ---- */

static int check_conv(enum op op, const struct tensor *x, const struct tensor *w,
                      const struct tensor *b, const struct tensor *y, const struct conv_args *p) {
    int k = w->dims[2];
    int backward = op != OP_CONV2D_FORWARD;
    if (p->stride < 1 || p->padding < 0)
        return fail(ERR_FAILED, "%s: stride %d, padding %d: must be at least 1 and 0", op_name(op),
                    p->stride, p->padding);
    CHECK(
        want(op, op == OP_CONV2D_BACKWARD_WEIGHT ? "dw" : "w", w, 4, w->dims[0], x->dims[1], k, k));
    int height = x->dims[2] + 2 * p->padding - k, width = x->dims[3] + 2 * p->padding - k;
    if (height < 0 || width < 0)
        return fail(ERR_FAILED,
                    "%s: a kernel of %d x %d over %d x %d pixels, padding %d: kernel too large",
                    op_name(op), k, k, x->dims[2], x->dims[3], p->padding);
    CHECK(want(op, backward ? "dy" : "y", y, 4, x->dims[0], w->dims[0], height / p->stride + 1,
               width / p->stride + 1));
    if (b) CHECK(want_vector(op, backward ? "db" : "b", b, w->dims[0]));
    return want_layout(op, backward ? "dy" : "y", y, x);
}

int shapes_conv_forward(enum op op, const struct op_args *a) {
    return check_conv(op, &a->in[0], &a->in[1], &a->in[2], &a->out[0], &a->p.conv);
}

int shapes_conv_backward_data(enum op op, const struct op_args *a) {
    return check_conv(op, &a->out[0], &a->in[1], NULL, &a->in[0], &a->p.conv);
}

int shapes_conv_backward_weight(enum op op, const struct op_args *a) {
    return check_conv(op, &a->in[0], &a->out[0], &a->out[1], &a->in[1], &a->p.conv);
}

static int check_linear(enum op op, const struct tensor *x, const struct tensor *w,
                        const struct tensor *b, const struct tensor *y,
                        const struct linear_args *p) {
    int k = x->dims[1], m = y->dims[1], backward = op != OP_LINEAR_FORWARD;
    CHECK(want(op, op == OP_LINEAR_BACKWARD_WEIGHT ? "dw" : "w", w, 2, p->weight_is_in_out ? k : m,
               p->weight_is_in_out ? m : k, 0, 0));
    CHECK(want(op, backward ? "dy" : "y", y, 2, x->dims[0], m, 0, 0));
    if (b) CHECK(want_vector(op, backward ? "db" : "b", b, m));
    return want_layout(op, backward ? "dy" : "y", y, x);
}

int shapes_linear_forward(enum op op, const struct op_args *a) {
    return check_linear(op, &a->in[0], &a->in[1], &a->in[2], &a->out[0], &a->p.linear);
}

int shapes_linear_backward_data(enum op op, const struct op_args *a) {
    return check_linear(op, &a->out[0], &a->in[1], NULL, &a->in[0], &a->p.linear);
}

int shapes_linear_backward_weight(enum op op, const struct op_args *a) {
    return check_linear(op, &a->in[0], &a->out[0], &a->out[1], &a->in[1], &a->p.linear);
}

/* ---- pools, dropout ---- */

static int check_pool(enum op op, const struct tensor *x, const struct tensor *y, const char *name,
                      const struct pool_args *p) {
    if (p->size < 1 || p->stride < 1 || p->size > x->dims[2] || p->size > x->dims[3])
        return fail(ERR_FAILED, "%s: window %d, stride %d over %d x %d pixels: does not fit",
                    op_name(op), p->size, p->stride, x->dims[2], x->dims[3]);
    CHECK(want(op, name, y, 4, x->dims[0], x->dims[1], (x->dims[2] - p->size) / p->stride + 1,
               (x->dims[3] - p->size) / p->stride + 1));
    return want_layout(op, name, y, x);
}

int shapes_pool_forward(enum op op, const struct op_args *a) {
    return check_pool(op, &a->in[0], &a->out[0], "y", &a->p.pool);
}

int shapes_avg_pool_backward(enum op op, const struct op_args *a) {
    if (a->p.pool.relu != (a->in[1].data != NULL))
        return fail(ERR_FAILED, "%s: operand x: is needed with the relu before it, and only then",
                    op_name(op));
    if (a->p.pool.relu) CHECK(want_same(op, "dx", &a->out[0], &a->in[1]));
    return check_pool(op, &a->out[0], &a->in[0], "dy", &a->p.pool);
}

int shapes_max_pool_backward(enum op op, const struct op_args *a) {
    CHECK(want_same(op, "dx", &a->out[0], &a->in[0]));
    return check_pool(op, &a->in[0], &a->in[1], "dy", &a->p.pool);
}

static int check_adaptive_pool(enum op op, const struct tensor *in, const struct tensor *out,
                               const char *name) {
    CHECK(want(op, name, out, 4, in->dims[0], in->dims[1], out->dims[2], out->dims[3]));
    return want_layout(op, name, out, in);
}

int shapes_adaptive_pool_forward(enum op op, const struct op_args *a) {
    return check_adaptive_pool(op, &a->in[0], &a->out[0], "y");
}

int shapes_adaptive_pool_backward(enum op op, const struct op_args *a) {
    return check_adaptive_pool(op, &a->in[0], &a->out[0], "dx");
}

int shapes_adaptive_max_pool_backward(enum op op, const struct op_args *a) {
    CHECK(want_same(op, "dx", &a->out[0], &a->in[0]));
    return check_adaptive_pool(op, &a->in[0], &a->in[1], "dy");
}

int shapes_pad(enum op op, const struct op_args *a) {
    const struct tensor *x = &a->in[0], *y = &a->out[0];
    const int top = a->p.pad.top, left = a->p.pad.left, *from = x->dims, *to = y->dims;
    CHECK(want(op, "y", y, 4, from[0], from[1], to[2], to[3]));
    if (top > -from[2] && top < to[2] && left > -from[3] && left < to[3])
        return want_layout(op, "y", y, x);
    return fail(ERR_FAILED, "%s: %d above and %d to the left: leave nothing of %d x %d pixels",
                op_name(op), top, left, from[2], from[3]);
}

int shapes_cat(enum op op, const struct op_args *args) {
    const struct tensor *a = &args->in[0], *b = &args->in[1], *y = &args->out[0];
    CHECK(want(op, "b", b, 4, a->dims[0], a->dims[1], b->dims[2], a->dims[3]));
    CHECK(want(op, "y", y, 4, a->dims[0], a->dims[1], a->dims[2] + b->dims[2], a->dims[3]));
    CHECK(want_layout(op, "b", b, a));
    return want_layout(op, "y", y, a);
}

int shapes_dropout(enum op op, const struct op_args *a) {
    const struct dropout_args *p = &a->p.dropout;
    if (p->p >= 0 && p->p <= 1 && p->layer >= 0 && p->v >= 0 && p->v < MAX_DEVICES)
        return want_same(op, "out[0]", &a->out[0], &a->in[0]);
    return fail(ERR_FAILED,
                "%s: p %g, layer %d, virtual device %d: p must lie in 0..1, the others fit",
                op_name(op), p->p, p->layer, p->v);
}

/* ---- losses ---- */

/* What the outputs are compared with: a label or a row of targets for each row. */
static int check_answers(enum op op, const struct op_args *a) {
    if (op == OP_MSE_FORWARD || op == OP_MSE_BACKWARD)
        return want_same(op, "targets", &a->in[1], &a->in[0]);
    return want_vector(op, "labels", &a->in[1], a->in[0].dims[0]);
}

/* Cross entropy alone knows it. */
static int check_smoothing(enum op op, const struct op_args *a) {
    int known = op == OP_CROSS_ENTROPY_FORWARD || op == OP_CROSS_ENTROPY_BACKWARD;
    double smoothing = a->p.loss.smoothing;
    if (smoothing >= 0 && smoothing <= (known ? 1 : 0)) return OK;
    return fail(ERR_FAILED, "%s: label smoothing %g: it must be between 0 and %d", op_name(op),
                smoothing, known);
}

int shapes_loss_backward(enum op op, const struct op_args *a) {
    int n = a->in[0].dims[0], none = a->p.loss.reduction == REDUCE_NONE;
    if (none != !!a->in[2].data)
        return fail(ERR_FAILED,
                    "%s: operand dloss is %s: it goes with reduction none, and only there",
                    op_name(op), none ? "missing" : "given");
    if (a->p.loss.reduction == REDUCE_MEAN && !a->step)
        return fail(ERR_FAILED, "%s: the mean needs the step block: it holds 1/B", op_name(op));
    CHECK(check_smoothing(op, a));
    CHECK(check_answers(op, a));
    if (none) CHECK(want_vector(op, "dloss", &a->in[2], n));
    return want_same(op, "out[0]", &a->out[0], &a->in[0]);
}

int shapes_loss_forward(enum op op, const struct op_args *a) {
    int n = a->in[0].dims[0];
    CHECK(check_smoothing(op, a));
    CHECK(check_answers(op, a));
    CHECK(want_vector(op, "loss", &a->out[0], n));
    return want_vector(op, "hits", &a->out[1], n);
}

/* ---- batch normalisation ---- */

static int rows(enum op op, const char *name, const struct tensor *t, int rows, int channels) {
    return want(op, name, t, 2, rows, channels, 0, 0);
}

/* An activation of channels: (N, C) or (N, C, ...). */
static int check_channels(enum op op, const struct op_args *a) {
    if (a->in[0].rank >= 2) return OK;
    return fail(ERR_FAILED, "%s: operand x of rank %d: must have samples and channels", op_name(op),
                a->in[0].rank);
}

int shapes_norm(enum op op, const struct op_args *a) {
    const struct tensor *in = a->in, *out = a->out;
    int channels = in[0].dims[op == OP_BATCH_NORM_MERGE || op == OP_BATCH_NORM_TOTAL ? 2 : 1];
    CHECK(check_channels(op, a));
    switch (op) {
    case OP_BATCH_NORM_MERGE:
        CHECK(want(op, "parts", &in[0], 3, in[0].dims[0], 3, channels, 0)); /* fall through */
    case OP_BATCH_NORM_MOMENTS: return rows(op, "moments", &out[0], 3, channels);
    case OP_BATCH_NORM_OF_RUNNING:
        CHECK(rows(op, "running", &in[0], 2, channels));
        return rows(op, "moments", &out[0], 3, channels);
    case OP_BATCH_NORM_TRACK:
        CHECK(rows(op, "moments", &in[0], 3, channels));
        CHECK(rows(op, "running", &out[0], 2, channels));
        return want(op, "batches", &out[1], 1, 1, 0, 0, 0);
    case OP_BATCH_NORM_FACTORS:
        CHECK(rows(op, "moments", &in[0], 3, channels));
        CHECK(want(op, "w", &in[1], 1, channels, 0, 0, 0));
        CHECK(want(op, "b", &in[2], 1, channels, 0, 0, 0));
        return rows(op, "factors", &out[0], 2, channels);
    case OP_BATCH_NORM_FORWARD:
        CHECK(rows(op, "factors", &in[1], 2, channels));
        if (in[2].data) CHECK(want_same(op, "residual", &in[2], &in[0]));
        return want_same(op, "y", &out[0], &in[0]);
    case OP_BATCH_NORM_SUMS:
        CHECK(want_same(op, "dy", &in[1], &in[0]));
        CHECK(rows(op, "moments", &in[2], 3, channels));
        return rows(op, "sums", &out[0], 2, channels);
    case OP_BATCH_NORM_TOTAL:
        CHECK(want(op, "sums", &in[0], 3, in[0].dims[0], 2, channels, 0));
        return rows(op, "total", &out[0], 2, channels);
    case OP_BATCH_NORM_BACKWARD_WEIGHT:
        CHECK(rows(op, "sums", &in[0], 2, channels));
        CHECK(rows(op, "moments", &in[1], 3, channels));
        CHECK(want(op, "dw", &out[0], 1, channels, 0, 0, 0));
        return want(op, "db", &out[1], 1, channels, 0, 0, 0);
    case OP_BATCH_NORM_BACKWARD_FACTORS:
        CHECK(rows(op, "sums", &in[0], 2, channels));
        CHECK(rows(op, "moments", &in[1], 3, channels));
        CHECK(want(op, "w", &in[2], 1, channels, 0, 0, 0));
        return rows(op, "factors", &out[0], 4, channels);
    default: /* OP_BATCH_NORM_BACKWARD_DATA */
        CHECK(want_same(op, "dy", &in[1], &in[0]));
        CHECK(rows(op, "factors", &in[2], 4, channels));
        return want_same(op, "dx", &out[0], &in[0]);
    }
}

/* ---- logs, optimizers, data ---- */

static int check_column(enum op op, int column, const struct tensor *log) {
    if (column >= 0 && column < log->dims[1]) return OK;
    return fail(ERR_FAILED, "%s: column %d: the log has %d", op_name(op), column, log->dims[1]);
}

int shapes_loss_sum(enum op op, const struct op_args *a) {
    CHECK(want_vector(op, "hits", &a->in[1], a->in[0].dims[0]));
    CHECK(want_same(op, "hits of the log", &a->out[1], &a->out[0]));
    return check_column(op, a->p.loss.column, &a->out[0]);
}

int shapes_hash(enum op op, const struct op_args *a) {
    return check_column(op, a->p.hash.column, &a->out[0]);
}

int shapes_sgd(enum op op, const struct op_args *a) {
    const struct tensor *value = &a->out[0], *momentum = &a->out[1];
    if (a->p.sgd.momentum != 0 && !momentum->data)
        return fail(ERR_FAILED, "%s: momentum %g: operand momentum is missing", op_name(op),
                    a->p.sgd.momentum);
    if (momentum->data) CHECK(want_same(op, "momentum", momentum, value));
    return want_same(op, "grad", &a->in[0], value);
}

int shapes_two_moments(enum op op, const struct op_args *a) {
    CHECK(want(op, "moments", &a->out[1], 2, (int)tensor_count(&a->out[0]), 2, 0, 0));
    return want_same(op, "grad", &a->in[0], &a->out[0]);
}

/* The rows that are gathered: without a step block all of the index, else a part of it. */
static int want_index(enum op op, const struct op_args *a, const struct tensor *index) {
    int rows = a->out[0].dims[0];
    if (!a->step || index->dims[0] >= rows) return OK;
    return fail(ERR_FAILED, "%s: an index of %d elements: %d rows are to be gathered", op_name(op),
                index->dims[0], rows);
}

int shapes_gather_samples(enum op op, const struct op_args *a) {
    const struct tensor *images = &a->in[0];
    int n = a->step ? a->out[0].dims[0] : a->in[2].dims[0];
    float mean = a->p.gather.mean, std = a->p.gather.std;
    /* x - x is NaN where x is infinite or no number */
    if (!(std >= 0 && std - std == 0 && mean - mean == 0))
        return fail(ERR_FAILED, "%s: mean %g, std %g: must be numbers, std above 0, or 0 for none",
                    op_name(op), mean, std);
    CHECK(want_vector(op, "labels", &a->in[1], images->dims[0]));
    CHECK(want_index(op, a, &a->in[2]));
    CHECK(want(op, "x", &a->out[0], 4, n, images->dims[1], images->dims[2], images->dims[3]));
    return want_vector(op, "labels of x", &a->out[1], n);
}

int shapes_gather_rows(enum op op, const struct op_args *a) {
    const struct tensor *x = &a->in[0], *y = &a->out[0];
    if (x->dtype != y->dtype)
        return fail(ERR_FAILED, "%s: operands x and y are of different types", op_name(op));
    CHECK(want_index(op, a, &a->in[1]));
    return want(op, "y", y, x->rank, a->step ? y->dims[0] : a->in[1].dims[0], x->dims[1],
                x->dims[2], x->dims[3]);
}
