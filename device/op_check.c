/* The table of op.h as a checker: is this launch one that the kernels may trust? Kernels check
 * nothing themselves, so a wrong shape would be a wild read on a GPU; here it is one line in the
 * caller.
 *
 * First the signature: which operands an op takes, their type, rank and layout. Then the
 * relations between their shapes, op by op. Last the overlaps. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "device/op.h"

/* One operand: letter of the type (f F32, d F64, i I32, l I64, u U64, b U8), rank (0: any), and
 * whether it may be left out (?) or may lie in N16 (n). {0}: the op takes no such operand. */
struct operand {
    const char *name, *type;
    int rank;
};

static const struct signature {
    struct operand in[3], out[2];
    int step;    /* reads the step block, whatever the arguments */
    int segment; /* one segment a launch: an N16 operand holds one segment's groups */
} signatures[OP_COUNT] = {
    [OP_TO_N16] = {.in = {{"x", "f", 0}}, .out = {{"y", "fn", 0}}, .segment = 1},
    [OP_TO_PLAIN] = {.in = {{"x", "fn", 0}}, .out = {{"y", "f", 0}}, .segment = 1},
    [OP_CONV2D_FORWARD] = {.in = {{"x", "fn", 4}, {"w", "f", 4}, {"b", "f", 1}},
                           .out = {{"y", "fn", 4}}},
    [OP_CONV2D_BACKWARD_DATA] = {.in = {{"dy", "fn", 4}, {"w", "f", 4}}, .out = {{"dx", "fn", 4}}},
    [OP_CONV2D_BACKWARD_WEIGHT] = {.in = {{"x", "fn", 4}, {"dy", "fn", 4}},
                                   .out = {{"dw", "f", 4}, {"db", "f", 1}},
                                   .segment = 1},
    [OP_LINEAR_FORWARD] = {.in = {{"x", "fn", 2}, {"w", "f", 2}, {"b", "f", 1}},
                           .out = {{"y", "fn", 2}}},
    [OP_LINEAR_BACKWARD_DATA] = {.in = {{"dy", "fn", 2}, {"w", "f", 2}}, .out = {{"dx", "fn", 2}}},
    [OP_LINEAR_BACKWARD_WEIGHT] = {.in = {{"x", "fn", 2}, {"dy", "fn", 2}},
                                   .out = {{"dw", "f", 2}, {"db", "f", 1}},
                                   .segment = 1},
    [OP_RELU_FORWARD] = {.in = {{"x", "fn", 0}}, .out = {{"y", "fn", 0}}},
    [OP_RELU_BACKWARD] = {.in = {{"y", "fn", 0}, {"dy", "fn", 0}}, .out = {{"dx", "fn", 0}}},
    [OP_AVG_POOL_FORWARD] = {.in = {{"x", "fn", 4}}, .out = {{"y", "fn", 4}}},
    [OP_AVG_POOL_BACKWARD] = {.in = {{"dy", "fn", 4}}, .out = {{"dx", "fn", 4}}},
    [OP_MAX_POOL_FORWARD] = {.in = {{"x", "fn", 4}}, .out = {{"y", "fn", 4}}},
    [OP_MAX_POOL_BACKWARD] = {.in = {{"x", "fn", 4}, {"dy", "fn", 4}}, .out = {{"dx", "fn", 4}}},
    [OP_DROPOUT_FORWARD] = {.in = {{"x", "fn", 0}},
                            .out = {{"y", "fn", 0}},
                            .step = 1,
                            .segment = 1},
    [OP_DROPOUT_BACKWARD] = {.in = {{"dy", "fn", 0}},
                             .out = {{"dx", "fn", 0}},
                             .step = 1,
                             .segment = 1},
    [OP_LOG_SOFTMAX_FORWARD] = {.in = {{"x", "f", 2}}, .out = {{"y", "f", 2}}},
    [OP_LOG_SOFTMAX_BACKWARD] = {.in = {{"y", "f", 2}, {"dy", "f", 2}}, .out = {{"dx", "f", 2}}},
    [OP_NLL_FORWARD] = {.in = {{"logp", "f", 2}, {"labels", "i", 1}},
                        .out = {{"loss", "d", 1}, {"hits", "i", 1}}},
    [OP_NLL_BACKWARD] = {.in = {{"logp", "f", 2}, {"labels", "i", 1}, {"dloss", "f?", 1}},
                         .out = {{"dlogp", "f", 2}}},
    [OP_CROSS_ENTROPY_FORWARD] = {.in = {{"x", "f", 2}, {"labels", "i", 1}},
                                  .out = {{"loss", "d", 1}, {"hits", "i", 1}}},
    [OP_CROSS_ENTROPY_BACKWARD] = {.in = {{"x", "f", 2}, {"labels", "i", 1}, {"dloss", "f?", 1}},
                                   .out = {{"dx", "f", 2}}},
    [OP_LOSS_SUM] = {.in = {{"loss", "d", 1}, {"hits", "i", 1}},
                     .out = {{"losses", "d", 2}, {"hits", "l", 2}},
                     .step = 1},
    [OP_FILL] = {.out = {{"y", "fn", 0}}},
    [OP_ADD] = {.in = {{"x", "fn", 0}}, .out = {{"y", "fn", 0}}},
    [OP_SCALE] = {.out = {{"y", "fn", 0}}},
    [OP_SGD] = {.in = {{"grad", "f", 0}},
                .out = {{"value", "f", 0}, {"momentum", "f?", 0}},
                .step = 1},
    [OP_ADADELTA] = {.in = {{"grad", "f", 0}},
                     .out = {{"value", "f", 0}, {"moments", "f", 2}},
                     .step = 1},
    [OP_ADAM] = {.in = {{"grad", "f", 0}},
                 .out = {{"value", "f", 0}, {"moments", "f", 2}},
                 .step = 1},
    [OP_HASH] = {.in = {{"x", "f", 0}}, .out = {{"hashes", "u", 2}}, .step = 1},
    [OP_GATHER_SAMPLES] = {.in = {{"images", "b", 4}, {"labels", "b", 1}, {"index", "i", 1}},
                           .out = {{"x", "f", 4}, {"labels of x", "i", 1}}},
};

static enum dtype type_of(char letter) {
    switch (letter) {
    case 'd': return DTYPE_F64;
    case 'i': return DTYPE_I32;
    case 'l': return DTYPE_I64;
    case 'u': return DTYPE_U64;
    case 'b': return DTYPE_U8;
    default: return DTYPE_F32;
    }
}

/* "(256, 1, 28, 28)" into text; returns it. */
static const char *shape_text(const struct tensor *t, char text[64]) {
    int used = snprintf(text, 64, "(");
    for (int d = 0; d < t->rank && d < MAX_RANK; d++)
        used += snprintf(text + used, (size_t)(64 - used), d ? ", %d" : "%d", t->dims[d]);
    snprintf(text + used, (size_t)(64 - used), ")");
    return text;
}

static int wrong(enum op op, const struct operand *operand, const struct tensor *t,
                 const char *what) {
    char shape[64];
    return fail(ERR_FAILED, "%s: operand %s %s: %s", op_name(op), operand->name,
                shape_text(t, shape), what);
}

static int check_layout(enum op op, const struct operand *o, const struct tensor *t, int segment) {
    if (t->layout == LAYOUT_PLAIN)
        return t->groups == 0 ? OK : wrong(op, o, t, "a plain tensor has no groups");
    int least = (t->dims[0] + GROUP - 1) / GROUP;
    if (t->layout != LAYOUT_N16 || !strchr(o->type, 'n'))
        return wrong(op, o, t, "must be in plain layout");
    if (t->groups < least || t->groups > t->dims[0])
        return wrong(op, o, t, "the number of N16 groups does not fit the samples");
    if (segment && t->groups != least)
        return wrong(op, o, t, "one segment a launch: give tensor_segment()");
    return OK;
}

static int check_operand(enum op op, const char *place, int i, const struct operand *o,
                         const struct tensor *t, int segment) {
    if (!o->name)
        return t->data ? fail(ERR_FAILED, "%s: %s[%d] is given: this op takes none", op_name(op),
                              place, i)
                       : OK;
    if (!t->data)
        return strchr(o->type, '?') ? OK
                                    : fail(ERR_FAILED, "%s: operand %s (%s[%d]) is missing",
                                           op_name(op), o->name, place, i);
    if (t->rank < 1 || t->rank > MAX_RANK) return wrong(op, o, t, "rank must be 1 to 4");
    if (o->rank && t->rank != o->rank)
        return fail(ERR_FAILED, "%s: operand %s: rank %d: must be %d", op_name(op), o->name,
                    t->rank, o->rank);
    if (t->dtype != type_of(o->type[0])) return wrong(op, o, t, "is of the wrong type");
    for (int d = 0; d < t->rank; d++)
        if (t->dims[d] < (d ? 1 : 0)) return wrong(op, o, t, "a dimension is too small");
    return check_layout(op, o, t, segment);
}

/* What relations between shapes are told with: a tensor must have this shape, and lie like
 * another. */
static int want(enum op op, const char *name, const struct tensor *t, int rank, int d0, int d1,
                int d2, int d3) {
    const int dims[MAX_RANK] = {d0, d1, d2, d3};
    struct tensor wanted = tensor_plain(NULL, t->dtype, rank, dims);
    char is[64], should[64];
    if (t->rank == rank && !memcmp(t->dims, dims, (size_t)rank * sizeof *dims)) return OK;
    return fail(ERR_FAILED, "%s: operand %s is %s: the other operands make it %s", op_name(op),
                name, shape_text(t, is), shape_text(&wanted, should));
}

/* A vector of `count` elements: biases, labels, row losses. */
static int want_vector(enum op op, const char *name, const struct tensor *t, int count) {
    return want(op, name, t, 1, count, 0, 0, 0);
}

static int want_layout(enum op op, const char *name, const struct tensor *t,
                       const struct tensor *other) {
    if (t->layout == other->layout && t->groups == other->groups) return OK;
    return fail(ERR_FAILED,
                "%s: operand %s: layout %s, %d groups: must lie as the other operands do",
                op_name(op), name, t->layout == LAYOUT_N16 ? "N16" : "plain", t->groups);
}

static int want_same(enum op op, const char *name, const struct tensor *t,
                     const struct tensor *other) {
    CHECK(want(op, name, t, other->rank, other->dims[0], other->dims[1], other->dims[2],
               other->dims[3]));
    return want_layout(op, name, t, other);
}

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

static int check_pool(enum op op, const struct tensor *x, const struct tensor *y, const char *name,
                      const struct pool_args *p) {
    if (p->size < 1 || p->stride < 1 || p->size > x->dims[2] || p->size > x->dims[3])
        return fail(ERR_FAILED, "%s: window %d, stride %d over %d x %d pixels: does not fit",
                    op_name(op), p->size, p->stride, x->dims[2], x->dims[3]);
    CHECK(want(op, name, y, 4, x->dims[0], x->dims[1], (x->dims[2] - p->size) / p->stride + 1,
               (x->dims[3] - p->size) / p->stride + 1));
    return want_layout(op, name, y, x);
}

static int check_dropout(enum op op, const struct dropout_args *p) {
    if (p->p >= 0 && p->p <= 1 && p->layer >= 0 && p->v >= 0 && p->v < MAX_DEVICES) return OK;
    return fail(ERR_FAILED,
                "%s: p %g, layer %d, virtual device %d: p must lie in 0..1, the others fit",
                op_name(op), p->p, p->layer, p->v);
}

static int check_loss_backward(enum op op, const struct op_args *a) {
    int n = a->in[0].dims[0], none = a->p.loss.reduction == REDUCE_NONE;
    if (none != !!a->in[2].data)
        return fail(ERR_FAILED,
                    "%s: operand dloss is %s: it goes with reduction none, and only there",
                    op_name(op), none ? "missing" : "given");
    if (a->p.loss.reduction == REDUCE_MEAN && !a->step)
        return fail(ERR_FAILED, "%s: the mean needs the step block: it holds 1/B", op_name(op));
    CHECK(want_vector(op, "labels", &a->in[1], n));
    if (none) CHECK(want_vector(op, "dloss", &a->in[2], n));
    return want_same(op, "out[0]", &a->out[0], &a->in[0]);
}

static int check_loss_forward(enum op op, const struct op_args *a) {
    int n = a->in[0].dims[0];
    CHECK(want_vector(op, "labels", &a->in[1], n));
    CHECK(want_vector(op, "loss", &a->out[0], n));
    return want_vector(op, "hits", &a->out[1], n);
}

static int check_column(enum op op, int column, const struct tensor *log) {
    if (column >= 0 && column < log->dims[1]) return OK;
    return fail(ERR_FAILED, "%s: column %d: the log has %d", op_name(op), column, log->dims[1]);
}

static int check_gather(enum op op, const struct op_args *a) {
    const struct tensor *images = &a->in[0];
    int n = a->in[2].dims[0];
    float mean = a->p.gather.mean, std = a->p.gather.std;
    /* infinite or not a number: the difference is NaN */
    if (!(std >= 0 && std - std == 0 && mean - mean == 0))
        return fail(ERR_FAILED, "%s: mean %g, std %g: must be numbers, std above 0, or 0 for none",
                    op_name(op), mean, std);
    CHECK(want_vector(op, "labels", &a->in[1], images->dims[0]));
    CHECK(want(op, "x", &a->out[0], 4, n, images->dims[1], images->dims[2], images->dims[3]));
    return want_vector(op, "labels of x", &a->out[1], n);
}

static int check_relations(enum op op, const struct op_args *a) {
    const struct tensor *in = a->in, *out = a->out;
    switch (op) {
    case OP_TO_N16:
        if (out[0].layout != LAYOUT_N16 && out[0].dims[0])
            return fail(ERR_FAILED, "%s: operand y: must be in N16", op_name(op));
        return want(op, "y", &out[0], in[0].rank, in[0].dims[0], in[0].dims[1], in[0].dims[2],
                    in[0].dims[3]);
    case OP_TO_PLAIN:
        if (in[0].layout != LAYOUT_N16 && in[0].dims[0])
            return fail(ERR_FAILED, "%s: operand x: must be in N16", op_name(op));
        return want(op, "y", &out[0], in[0].rank, in[0].dims[0], in[0].dims[1], in[0].dims[2],
                    in[0].dims[3]);
    case OP_CONV2D_FORWARD: return check_conv(op, &in[0], &in[1], &in[2], &out[0], &a->p.conv);
    case OP_CONV2D_BACKWARD_DATA: return check_conv(op, &out[0], &in[1], NULL, &in[0], &a->p.conv);
    case OP_CONV2D_BACKWARD_WEIGHT:
        return check_conv(op, &in[0], &out[0], &out[1], &in[1], &a->p.conv);
    case OP_LINEAR_FORWARD: return check_linear(op, &in[0], &in[1], &in[2], &out[0], &a->p.linear);
    case OP_LINEAR_BACKWARD_DATA:
        return check_linear(op, &out[0], &in[1], NULL, &in[0], &a->p.linear);
    case OP_LINEAR_BACKWARD_WEIGHT:
        return check_linear(op, &in[0], &out[0], &out[1], &in[1], &a->p.linear);
    case OP_AVG_POOL_FORWARD:
    case OP_MAX_POOL_FORWARD: return check_pool(op, &in[0], &out[0], "y", &a->p.pool);
    case OP_AVG_POOL_BACKWARD: return check_pool(op, &out[0], &in[0], "dy", &a->p.pool);
    case OP_MAX_POOL_BACKWARD:
        CHECK(want_same(op, "dx", &out[0], &in[0]));
        return check_pool(op, &in[0], &in[1], "dy", &a->p.pool);
    case OP_RELU_BACKWARD:
    case OP_LOG_SOFTMAX_BACKWARD:
        CHECK(want_same(op, "dy", &in[1], &in[0]));
        return want_same(op, "dx", &out[0], &in[0]);
    case OP_DROPOUT_FORWARD:
    case OP_DROPOUT_BACKWARD:
        CHECK(check_dropout(op, &a->p.dropout));
        return want_same(op, "out[0]", &out[0], &in[0]);
    case OP_RELU_FORWARD:
    case OP_LOG_SOFTMAX_FORWARD:
    case OP_ADD: return want_same(op, "y", &out[0], &in[0]);
    case OP_NLL_FORWARD:
    case OP_CROSS_ENTROPY_FORWARD: return check_loss_forward(op, a);
    case OP_NLL_BACKWARD:
    case OP_CROSS_ENTROPY_BACKWARD: return check_loss_backward(op, a);
    case OP_LOSS_SUM:
        CHECK(want_vector(op, "hits", &in[1], in[0].dims[0]));
        CHECK(want_same(op, "hits of the log", &out[1], &out[0]));
        return check_column(op, a->p.loss.column, &out[0]);
    case OP_SGD:
        if (a->p.sgd.momentum != 0 && !out[1].data)
            return fail(ERR_FAILED, "%s: momentum %g: operand momentum is missing", op_name(op),
                        a->p.sgd.momentum);
        if (out[1].data) CHECK(want_same(op, "momentum", &out[1], &out[0]));
        return want_same(op, "grad", &in[0], &out[0]);
    case OP_ADADELTA:
    case OP_ADAM:
        CHECK(want(op, "moments", &out[1], 2, (int)tensor_count(&out[0]), 2, 0, 0));
        return want_same(op, "grad", &in[0], &out[0]);
    case OP_HASH: return check_column(op, a->p.hash.column, &out[0]);
    case OP_GATHER_SAMPLES: return check_gather(op, a);
    case OP_FILL:
    case OP_SCALE:
    case OP_COUNT: break;
    }
    return OK;
}

int op_takes_n16(const struct op_args *args) {
    int n16 = 0;
    for (int i = 0; i < 3; i++)
        n16 |= args->in[i].data && args->in[i].layout == LAYOUT_N16;
    for (int i = 0; i < 2; i++)
        n16 |= args->out[i].data && args->out[i].layout == LAYOUT_N16;
    return n16;
}

static int overlap(const struct tensor *a, const struct tensor *b) {
    uintptr_t at = (uintptr_t)a->data, bt = (uintptr_t)b->data;
    return a->data && b->data && at < bt + tensor_bytes(b) && bt < at + tensor_bytes(a);
}

/* May out[0] be in[i]? "May be x" means exactly x, not a piece of it. */
static int may_be_in_place(enum op op, int i) {
    switch (op) {
    case OP_RELU_FORWARD:
    case OP_DROPOUT_FORWARD:
    case OP_DROPOUT_BACKWARD: return i == 0;
    case OP_RELU_BACKWARD: return i == 1;
    default: return 0;
    }
}

static int check_overlaps(enum op op, const struct op_args *a) {
    const struct signature *s = &signatures[op];
    for (int o = 0; o < 2; o++) {
        for (int i = 0; i < 3; i++) {
            if (!overlap(&a->out[o], &a->in[i])) continue;
            if (o == 0 && a->out[0].data == a->in[i].data && may_be_in_place(op, i)) continue;
            return fail(ERR_FAILED, "%s: operands %s and %s overlap in memory", op_name(op),
                        s->in[i].name, s->out[o].name);
        }
    }
    if (overlap(&a->out[0], &a->out[1]))
        return fail(ERR_FAILED, "%s: operands %s and %s overlap in memory", op_name(op),
                    s->out[0].name, s->out[1].name);
    return OK;
}

int op_check(enum op op, const struct op_args *args) {
    if ((unsigned)op >= OP_COUNT)
        return fail(ERR_FAILED, "op %d: there is none of this number", (int)op);
    const struct signature *s = &signatures[op];
    for (int i = 0; i < 3; i++)
        CHECK(check_operand(op, "in", i, &s->in[i], &args->in[i], s->segment));
    for (int i = 0; i < 2; i++)
        CHECK(check_operand(op, "out", i, &s->out[i], &args->out[i], s->segment));
    if (s->step && !args->step)
        return fail(ERR_FAILED, "%s: the step block is missing", op_name(op));
    CHECK(check_relations(op, args));
    return check_overlaps(op, args);
}
