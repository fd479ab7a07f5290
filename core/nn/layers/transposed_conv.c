/* F.conv_transpose2d and F.conv_transpose1d: a convolution in reverse. Forward computes what a
 * convolution computes as the gradient of its input, and the gradient of x is a convolution of dy:
 *
 *     y  = the input's gradient in a convolution with w whose outputs have the gradient x
 *     dx = convolution of dy with w
 *     dw = that of the convolution for the input dy and the gradient x
 *
 * So it needs no extra kernels. A sequence (N,C,H) is treated as an image (N,C,H,1). */
#include "base/error.h"
#include "nn/layers/text_functions.h"
#include "nn/tape/tape_internal.h"

static int segment_grads(duet_tape *t, const struct node *n, int s, const struct tensor *dw,
                         const struct tensor *db) {
    struct op_args args = {.in = {tensor_segment(&n->y->grad, &t->segments, s),
                                  tensor_segment(&n->x->value, &t->segments, s)},
                           .out = {conv_as_pictures(dw), *db},
                           .p = n->args.p};
    return launch(t->stream, OP_CONV2D_BACKWARD_WEIGHT, &args);
}

static int transposed_conv_backward(duet_tape *t, struct node *n) {
    CHECK(tape_weight_grads(t, OP_CONV2D_BACKWARD_WEIGHT, n));
    if (!n->x->needs_grad) return OK;
    struct op_args args = {.in = {n->y->grad, conv_as_pictures(&n->w->value),
                                  tape_bias(t, NULL, n->x->value.dims[1])}};
    return tape_backward_to_x(t, OP_CONV2D_FORWARD, n, &args, 0);
}

/* The pixels of a side of y; 0: there are none, or output_padding exceeds the pixels that a
 * convolution leaves out. */
static int64_t side_of(const struct duet_conv *how, int side, int pixels, int taps, int more) {
    int64_t rest = (int64_t)how->dilation[side] * (taps - 1) + 1 - 2 * (int64_t)how->padding[side] +
                   more + (int64_t)(pixels - 1) * how->stride[side];
    return more < 0 || more >= how->stride[side] || rest < 1 ? 0 : rest;
}

/* ERR_USAGE: x, w and the settings do not fit together. side: of y. */
static int check_transposed_conv(duet_tape *t, const duet_var *x, const struct param *w,
                                 const struct param *b, const struct duet_conv *how,
                                 const int more[2], int64_t side[2]) {
    const struct tensor v = conv_as_pictures(&x->value), k = conv_as_pictures(&w->value);
    CHECK(tape_check_params(t, "conv_transpose", w, b));
    if (v.rank != 4 || k.rank != 4 || (x->value.rank == 3) != (w->value.rank == 3) ||
        v.dims[1] != k.dims[0] || k.dims[0] % how->groups ||
        (b && b->value.dims[0] != k.dims[1] * (int64_t)how->groups))
        return fail(ERR_USAGE,
                    "conv_transpose %s: filters of %d channels, %d groups do not suit an input of "
                    "%s: check the model",
                    w->spec->name, k.dims[0], how->groups, SHAPE(&x->value));
    for (int i = 0; i < 2; i++)
        if (!(side[i] = side_of(how, i, v.dims[2 + i], k.dims[2 + i], more[i])))
            return fail(ERR_USAGE,
                        "conv_transpose %s: output_padding %d, stride %d, padding %d: it must be "
                        "below the stride, and leave a pixel: check the model",
                        w->spec->name, more[i], how->stride[i], how->padding[i]);
    return OK;
}

static duet_var *append(duet_tape *t, duet_var *x, struct param *w, const struct duet_conv *how,
                        const int64_t side[2]) {
    const struct tensor filters = conv_as_pictures(&w->value);
    int dims[4] = {x->value.dims[0], filters.dims[1] * how->groups, (int)side[0], (int)side[1]};
    struct node node = {.backward = transposed_conv_backward,
                        .segment_grads = segment_grads,
                        .x = x,
                        .w = w,
                        .spares = SPARES_Y};
    node.args = (struct op_args){.in = {x->value, filters},
                                 .out[0] = tape_tensor(t, DTYPE_F32, x->value.layout, 4, dims),
                                 .p.conv = conv_args_of(w, how)};
    /* the convolution's bias: its gradient is computed but never read */
    node.args.in[2] = tensor_plain(NULL, DTYPE_F32, 1, &x->value.dims[1]);
    return tape_append_op(t, OP_CONV2D_BACKWARD_DATA, &node, tape_needs_grad(x, w, NULL));
}

duet_var *tape_conv_transpose(duet_tape *t, duet_var *x, int w_at, int b_at,
                              const struct duet_conv *given, const int output_padding[2]) {
    int64_t side[2] = {0, 0};
    int wrong;
    if (tape_stuck(t, x)) return NULL;
    struct param *w = tape_param_at(t, "conv_transpose", w_at, 0),
                 *b = tape_bias_at(t, "conv_transpose", b_at, &wrong);
    if (!w || wrong) return NULL;
    const int sequence = x->value.rank == 3,
              more[2] = {output_padding ? output_padding[0] : 0,
                         output_padding && !sequence ? output_padding[1] : 0};
    const struct duet_conv how = conv_settings(given, sequence);
    if (conv_beyond(t, "conv_transpose", &how) ||
        tape_fail(t, check_transposed_conv(t, x, w, b, &how, more, side)) ||
        tape_too_large(t, "conv_transpose", x,
                       conv_as_pictures(&w->value).dims[1] * (int64_t)how.groups, side[0], side[1]))
        return NULL;
    const struct tensor seen = conv_as_pictures(&x->value);
    x = to_device_layout(t, sequence ? tape_view(t, x, 4, seen.dims) : x);
    duet_var *y = x ? append(t, x, w, &how, side) : NULL;
    if (y && b) {
        int channels[4] = {x->value.dims[0], b->value.dims[0], 1, 1};
        y = duet_add(t, y, tape_expand(t, &b->value, b, 4, channels));
    }
    return y && sequence ? tape_view(t, y, 3, y->value.dims) : y;
}
