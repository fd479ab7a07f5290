/* nn.LayerNorm and nn.GroupNorm normalise each sample separately, so samples exchange nothing, and
 * the layers have no state. Only the gradients of w and b sum over samples.
 *
 * Both use one op on rows, which sees x as (rows, length), with a row for each run of the last
 * dimensions, or for each group of each sample. */
#include <string.h>

#include "base/error.h"
#include "base/text/text.h"
#include "nn/tape/tape_internal.h"

/* The memory of a parameter or its gradient as a vector; empty: no such operand. */
static struct tensor as_vector(const struct tensor *x) {
    return tensor_seen_as(x, 1, (int)tensor_count(x), 0, 0);
}

static struct tensor values_of(const struct param *p) {
    const struct tensor none = {.data = NULL};
    return p ? as_vector(&p->value) : none;
}

static int segment_grads(duet_tape *t, const struct node *n, int s, const struct tensor *dw,
                         const struct tensor *db) {
    struct tensor dy = n->args.in[0];
    dy.data = n->y->grad.data;
    struct op_args args = {.in = {tensor_segment(&n->args.in[0], &t->segments, s),
                                  tensor_segment(&dy, &t->segments, s),
                                  tensor_segment(&n->moments, &t->segments, s)},
                           .out = {as_vector(dw), as_vector(db)},
                           .p = n->args.p};
    return launch(t->stream, OP_LAYER_NORM_BACKWARD_WEIGHT, &args);
}

static int layer_norm_backward(duet_tape *t, struct node *n) {
    if (n->w) CHECK(tape_weight_grads(t, OP_LAYER_NORM_BACKWARD_WEIGHT, n));
    struct op_args args = {.in = {n->args.in[0], n->args.in[0], values_of(n->w)},
                           .out[0] = n->args.in[0],
                           .p = n->args.p};
    args.in[1].data = n->y->grad.data;
    return tape_give(t, n->x, OP_LAYER_NORM_BACKWARD_DATA, &args);
}

/* x is PLAIN; every `length` numbers are a row. */
static duet_var *normalise(duet_tape *t, duet_var *x, int length, struct param *w, struct param *b,
                           struct layer_norm_args how) {
    struct node node = {.backward = layer_norm_backward,
                        .op = OP_LAYER_NORM_FORWARD,
                        .spares = SPARES_Y,
                        .segment_grads = segment_grads,
                        .x = x,
                        .w = w,
                        .b = b};
    int rows = (int)(tensor_count(&x->value) / (size_t)length);
    struct tensor y = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, x->value.rank, x->value.dims);
    node.moments = tape_tensor(t, DTYPE_F64, LAYOUT_PLAIN, 2, (int[]){rows, 2});
    node.args = (struct op_args){
        .in = {tensor_seen_as(&x->value, 2, rows, length, 0), values_of(w), values_of(b)},
        .out = {tensor_seen_as(&y, 2, rows, length, 0), node.moments},
        .p.layer_norm = how};
    if (t->error || (rows && tape_fail(t, launch(t->stream, OP_LAYER_NORM_FORWARD, &node.args))))
        return NULL;
    if (w && !b)
        node.args.in[2] = node.args.in[1]; /* gives the shape of a gradient that nothing reads */
    return tape_append(t, &node, y, tape_needs_grad(x, w, b));
}

/* ---- the layers ---- */

/* Weight or bias of a norm, or NULL if there is none. *wrong: the tape has an error. */
static struct param *optional(duet_tape *t, const char *layer, int i, int none, int rank,
                              int *wrong) {
    struct param *p = i == none || *wrong ? NULL : tape_param_at(t, layer, i, rank);
    *wrong |= i != none && !p;
    return p;
}

/* PyTorch's words, with the shape of x. An impossible rank is not used. */
static int check_shape(const struct tensor *x, int rank, const int *shape) {
    int good = rank >= 1 && rank < x->rank && shape;
    for (int i = 0; good && i < rank; i++)
        good = shape[i] == x->dims[x->rank - rank + i];
    if (good) return OK;
    char want[SHAPE_TEXT], is[SHAPE_TEXT];
    text_sizes(want, sizeof want, shape && rank <= MAX_RANK ? rank : 0, shape);
    text_sizes(is, sizeof is, x->rank, x->dims);
    return fail(ERR_USAGE,
                "layer_norm: Given normalized_shape=[%s], expected input with shape [N, ..., %s], "
                "but got input of size [%s]",
                want, want, is);
}

/* PyTorch has no layer with a bias but without a weight. Parameters need samples. */
static int check_layer(duet_tape *t, const char *name, const duet_var *x, struct param *w,
                       struct param *b, double epsilon) {
    if (!(epsilon >= 0)) return fail(ERR_USAGE, "%s: eps %g: give at least 0", name, epsilon);
    if (b && !w) return fail(ERR_USAGE, "%s: a bias without a weight: give both", name);
    if (!w) return OK;
    CHECK(tape_check_params(t, name, w, b));
    return tape_check_samples(t, &x->value);
}

static int suits(const struct param *p, const int *dims, int count) {
    return !p || !memcmp(p->value.dims, dims, (size_t)count * sizeof *dims);
}

duet_var *duet_layer_norm(duet_tape *t, duet_var *x, int rank, const int *normalized_shape,
                          int w_at, int b_at, double eps) {
    int wrong = 0, length = 1;
    if (tape_failed(t, x) || tape_fail(t, check_shape(&x->value, rank, normalized_shape)))
        return NULL;
    struct param *w = optional(t, "layer_norm", w_at, DUET_NO_WEIGHT, rank, &wrong),
                 *b = optional(t, "layer_norm", b_at, DUET_NO_BIAS, rank, &wrong);
    if (wrong || tape_stuck(t, x) || !(x = to_plain(t, x)) ||
        tape_fail(t, check_layer(t, "layer_norm", x, w, b, eps)))
        return NULL;
    if (!suits(w, normalized_shape, rank) || !suits(b, normalized_shape, rank))
        return tape_refuse(t,
                           "layer_norm %s: its shape does not suit the last %d dimensions of an "
                           "input of %s: the first dimension stays, check the model",
                           w->spec->name, rank, SHAPE(&x->value));
    for (int i = 0; i < rank; i++)
        length *= normalized_shape[i];
    return normalise(t, x, length, w, b, (struct layer_norm_args){eps, 1, 1});
}

duet_var *duet_group_norm(duet_tape *t, duet_var *x, int groups, int w_at, int b_at, double eps) {
    int wrong = 0;
    if (tape_failed(t, x)) return NULL;
    struct param *w = optional(t, "group_norm", w_at, DUET_NO_WEIGHT, 1, &wrong),
                 *b = optional(t, "group_norm", b_at, DUET_NO_BIAS, 1, &wrong);
    if (wrong || tape_stuck(t, x) || !(x = to_plain(t, x)) ||
        tape_fail(t, check_layer(t, "group_norm", x, w, b, eps)))
        return NULL;
    const int *d = x->value.dims;
    if (x->value.rank < 2 || groups < 1 || d[1] % groups)
        return tape_refuse(t,
                           "group_norm: Expected number of channels in input to be divisible by "
                           "num_groups, but got input of shape %s and num_groups=%d",
                           SHAPE(&x->value), groups);
    if (!suits(w, &d[1], 1) || !suits(b, &d[1], 1))
        return tape_refuse(
            t, "group_norm %s: the number of weights differs from the %d channels: check the model",
            w->spec->name, d[1]);
    int count = (int)tensor_sample_count(&x->value);
    return normalise(t, x, count / groups, w, b,
                     (struct layer_norm_args){eps, groups, count / d[1]});
}
