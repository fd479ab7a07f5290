/* F.conv2d and F.conv1d with all their options: groups, as in depthwise convolutions, dilation, and
 * windows that are no squares. A sequence (N,C,H) is a picture (N,C,H,1). */
#include "base/error.h"
#include "nn/tape_internal.h"

static struct tensor as_4d(const struct tensor *x) {
    struct tensor seen = *x;
    if (x->rank == 3) seen.rank = 4, seen.dims[3] = 1;
    return seen;
}

static int segment_grads(duet_tape *t, const struct node *n, int s, const struct tensor *dw,
                         const struct tensor *db) {
    struct op_args args = {.in = {tensor_segment(&n->x->value, &t->segments, s),
                                  tensor_segment(&n->y->grad, &t->segments, s)},
                           .out = {as_4d(dw), *db},
                           .p = n->args.p};
    return launch(t->stream, OP_GROUPED_CONV_BACKWARD_WEIGHT, &args);
}

static int backward(duet_tape *t, struct node *n) {
    CHECK(tape_weight_grads(t, OP_GROUPED_CONV_BACKWARD_WEIGHT, n));
    struct op_args args = {.in = {n->y->grad, as_4d(&n->w->value)}};
    return tape_backward_to_x(t, OP_GROUPED_CONV_BACKWARD_DATA, n, &args, 0);
}

/* The pixels of a side of y; 0: the window does not fit. */
static int64_t side_of(const struct duet_conv *how, int side, int pixels, int taps) {
    int64_t rest = (int64_t)pixels + 2 * (int64_t)how->padding[side] -
                   (int64_t)how->dilation[side] * (taps - 1) - 1;
    return rest < 0 ? 0 : rest / how->stride[side] + 1;
}

static int beyond(duet_tape *t, const struct duet_conv *how, int sides) {
    if (tape_beyond(t, "conv", "groups", how->groups, 1)) return 1;
    for (int i = 0; i < sides; i++)
        if (tape_beyond(t, "conv", "stride", how->stride[i], 1) ||
            tape_beyond(t, "conv", "padding", how->padding[i], 0) ||
            tape_beyond(t, "conv", "dilation", how->dilation[i], 1))
            return 1;
    return 0;
}

/* ERR_USAGE: x, w and the numbers do not suit each other. *rows, *columns: of y. */
static int check(duet_tape *t, const duet_var *x, const struct param *w, const struct param *b,
                 const struct duet_conv *how, int64_t *rows, int64_t *columns) {
    const struct tensor v = as_4d(&x->value), k = as_4d(&w->value);
    CHECK(tape_check_params(t, "conv", w, b));
    if (x->value.rank != w->value.rank || v.rank != 4 ||
        v.dims[1] != (int64_t)how->groups * k.dims[1] || k.dims[0] % how->groups ||
        (b && b->value.dims[0] != k.dims[0]))
        return fail(ERR_USAGE,
                    "conv %s: filters of %d channels, %d outputs, %d groups do not suit an input "
                    "of %s: check the model",
                    w->spec->name, k.dims[1], k.dims[0], how->groups, SHAPE(&x->value));
    *rows = side_of(how, 0, v.dims[2], k.dims[2]);
    *columns = side_of(how, 1, v.dims[3], k.dims[3]);
    if (*rows && *columns) return OK;
    return fail(ERR_USAGE, "conv %s: a window of %dx%d is too large for %dx%d: check the model",
                w->spec->name, k.dims[2], k.dims[3], v.dims[2], v.dims[3]);
}

static int is_plain_conv2d(const struct param *w, const struct duet_conv *how) {
    return w->value.rank == 4 && w->value.dims[2] == w->value.dims[3] && how->groups == 1 &&
           how->stride[0] == how->stride[1] && how->padding[0] == how->padding[1] &&
           how->dilation[0] == 1 && how->dilation[1] == 1;
}

duet_var *duet_conv(duet_tape *t, duet_var *x, int w_at, int b_at, const struct duet_conv *given) {
    int64_t rows = 0, columns = 0;
    int wrong;
    if (tape_stuck(t, x)) return NULL;
    struct param *w = tape_param_at(t, "conv", w_at, 0), *b = tape_bias_at(t, "conv", b_at, &wrong);
    if (!w || wrong) return NULL;
    if (!given) {
        tape_fail(t, fail(ERR_USAGE, "conv: no struct duet_conv was given"));
        return NULL;
    }
    struct duet_conv how = *given;
    int sequence = x->value.rank == 3;
    if (sequence) how.stride[1] = how.dilation[1] = 1, how.padding[1] = 0;
    if (beyond(t, &how, 2) || tape_fail(t, check(t, x, w, b, &how, &rows, &columns)) ||
        tape_too_large(t, "conv", x, w->value.dims[0], rows, columns))
        return NULL;
    if (is_plain_conv2d(w, &how))
        return duet_conv2d(t, x, w_at, b_at, how.stride[0], how.padding[0]);
    const struct tensor seen = as_4d(&x->value);
    x = to_device_layout(t, sequence ? tape_view(t, x, 4, seen.dims) : x);
    if (!x) return NULL;
    int dims[4] = {x->value.dims[0], w->value.dims[0], (int)rows, (int)columns};
    struct node node = {
        .backward = backward, .segment_grads = segment_grads, .x = x, .w = w, .b = b};
    node.args = (struct op_args){.in = {x->value, as_4d(&w->value), tape_bias(t, b, dims[1])},
                                 .out[0] = tape_tensor(t, DTYPE_F32, x->value.layout, 4, dims),
                                 .p.grouped_conv = {{how.stride[0], how.stride[1]},
                                                    {how.padding[0], how.padding[1]},
                                                    {how.dilation[0], how.dilation[1]},
                                                    how.groups}};
    duet_var *y = tape_append_op(t, OP_GROUPED_CONV_FORWARD, &node, tape_needs_grad(x, w, b));
    return y && sequence ? tape_view(t, y, 3, dims) : y;
}
