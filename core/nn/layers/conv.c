/* F.conv2d and F.conv1d with all their options: groups, as in depthwise convolutions, dilation, and
 * windows that are not square. A sequence (N,C,H) is treated as an image (N,C,H,1). Filters for
 * volumes, (O,C,T,K,L), are filters for images with CT channels. Image filters without any of these
 * options have separate, faster kernels. */
#include "base/error.h"
#include "nn/tape/tape_internal.h"

struct tensor conv_as_pictures(const struct tensor *x) {
    struct tensor seen = *x;
    if (x->rank == 3) seen.rank = 4, seen.dims[3] = 1;
    if (x->rank != 5) return seen;
    seen.rank = 4, seen.dims[1] *= x->dims[2], seen.dims[2] = x->dims[3], seen.dims[3] = x->dims[4];
    return seen;
}

static int segment_grads(duet_tape *t, const struct node *n, int s, const struct tensor *dw,
                         const struct tensor *db) {
    struct op_args args = {.in = {tensor_segment(&n->x->value, &t->segments, s),
                                  tensor_segment(&n->y->grad, &t->segments, s)},
                           .out = {conv_as_pictures(dw), *db},
                           .p = n->args.p};
    return launch(t->stream, OP_CONV2D_BACKWARD_WEIGHT, &args);
}

static int conv_backward(duet_tape *t, struct node *n) {
    CHECK(tape_weight_grads(t, OP_CONV2D_BACKWARD_WEIGHT, n));
    struct op_args args = {.in = {n->y->grad, conv_as_pictures(&n->w->value)}};
    return tape_backward_to_x(t, OP_CONV2D_BACKWARD_DATA, n, &args, 0);
}

/* The pixels of a side of y; 0: the window does not fit. */
static int64_t side_of(const struct duet_conv *how, int side, int pixels, int taps) {
    int64_t padded = (int64_t)pixels + 2 * (int64_t)how->padding[side],
            rest = padded - (int64_t)how->dilation[side] * (taps - 1) - 1;
    if (padded > INT32_MAX) return padded; /* too large, though y may be smaller */
    return rest < 0 ? 0 : rest / how->stride[side] + 1;
}

static int is_square(const struct param *w, const struct duet_conv *how) {
    return w->value.rank == 4 && w->value.dims[2] == w->value.dims[3] && how->groups == 1 &&
           how->stride[0] == how->stride[1] && how->padding[0] == how->padding[1] &&
           how->dilation[0] == 1 && how->dilation[1] == 1;
}

/* ERR_USAGE: x, w and the settings do not fit together. *rows, *columns: of y. */
static int check_conv(duet_tape *t, const duet_var *x, const struct param *w, const struct param *b,
                      const struct duet_conv *how, int64_t *rows, int64_t *columns) {
    const struct tensor v = conv_as_pictures(&x->value), k = conv_as_pictures(&w->value);
    CHECK(tape_check_params(t, "conv2d", w, b));
    const int fit = v.rank == 4 && k.rank == 4 && (x->value.rank == 3) == (w->value.rank == 3) &&
                    v.dims[1] == (int64_t)how->groups * k.dims[1] && k.dims[0] % how->groups == 0;
    *rows = fit ? side_of(how, 0, v.dims[2], k.dims[2]) : 0;
    *columns = fit ? side_of(how, 1, v.dims[3], k.dims[3]) : 0;
    if (*rows && *columns) return OK;
    if (is_square(w, how))
        return fail(ERR_USAGE,
                    "conv2d %s: %dx%d of %d channels, stride %d, padding %d, does not suit an "
                    "input of %s: check the model",
                    w->spec->name, k.dims[2], k.dims[3], k.dims[1], how->stride[0], how->padding[0],
                    SHAPE(&x->value));
    if (fit)
        return fail(ERR_USAGE,
                    "conv2d %s: a window of %dx%d is too large for %dx%d: check the model",
                    w->spec->name, k.dims[2], k.dims[3], v.dims[2], v.dims[3]);
    return fail(ERR_USAGE,
                "conv2d %s: filters of %d channels, %d outputs, %d groups do not suit an input "
                "of %s: check the model",
                w->spec->name, k.dims[1], k.dims[0], how->groups, SHAPE(&x->value));
}

struct duet_conv conv_settings(const struct duet_conv *given, int sequence) {
    struct duet_conv how = given ? *given : (struct duet_conv){.groups = 1};
    for (int i = 0; i < 2; i++) {
        how.stride[i] = tape_setting(how.stride, i, 1);
        how.dilation[i] = tape_setting(how.dilation, i, 1);
    }
    how.padding[1] = tape_padding(how.padding, 1);
    if (!how.groups) how.groups = 1;
    if (sequence) how.stride[1] = how.dilation[1] = 1, how.padding[1] = 0;
    return how;
}

int conv_beyond(duet_tape *t, const char *layer, const struct duet_conv *how) {
    int wrong = tape_beyond(t, layer, "groups", how->groups, 1);
    for (int i = 0; !wrong && i < 2; i++)
        wrong = tape_beyond(t, layer, "stride", how->stride[i], 1) ||
                tape_beyond(t, layer, "padding", how->padding[i], 0) ||
                tape_beyond(t, layer, "dilation", how->dilation[i], 1);
    return wrong;
}

struct conv_args conv_args_of(const struct param *w, const struct duet_conv *how) {
    return (struct conv_args){{how->stride[0], how->stride[1]},
                              {how->padding[0], how->padding[1]},
                              {how->dilation[0], how->dilation[1]},
                              how->groups,
                              !is_square(w, how)};
}

duet_var *duet_conv2d(duet_tape *t, duet_var *x, int w_at, int b_at,
                      const struct duet_conv *given) {
    int64_t rows = 0, columns = 0;
    if (tape_failed(t, x)) return NULL;
    int wrong, sequence = x->value.rank == 3;
    const struct duet_conv how = conv_settings(given, sequence);
    if (conv_beyond(t, "conv2d", &how)) return NULL;
    const struct param *any = tape_param_at(t, "conv2d", w_at, 0);
    int rank = sequence ? 3 : any && any->value.rank == 5 ? 5 : 4;
    struct param *w = any ? tape_param_at(t, "conv2d", w_at, rank) : NULL,
                 *b = tape_bias_at(t, "conv2d", b_at, &wrong);
    if (!w || wrong) return NULL;
    if (tape_blocked(t, x) || tape_fail(t, check_conv(t, x, w, b, &how, &rows, &columns)) ||
        tape_too_large(t, "conv2d", x, w->value.dims[0], rows, columns))
        return NULL;
    const struct tensor seen = conv_as_pictures(&x->value);
    x = to_device_layout(t, sequence ? tape_view(t, x, 4, seen.dims) : x);
    if (!x) return NULL;
    int dims[4] = {x->value.dims[0], w->value.dims[0], (int)rows, (int)columns};
    struct node node = {.backward = conv_backward,
                        .segment_grads = segment_grads,
                        .x = x,
                        .w = w,
                        .b = b,
                        .spares = SPARES_Y};
    node.args =
        (struct op_args){.in = {x->value, conv_as_pictures(&w->value), tape_bias(t, b, dims[1])},
                         .out[0] = tape_tensor(t, DTYPE_F32, x->value.layout, 4, dims),
                         .p.conv = conv_args_of(w, &how)};
    duet_var *y = tape_append_op(t, OP_CONV2D_FORWARD, &node, tape_needs_grad(x, w, b));
    return y && sequence ? tape_view(t, y, 3, dims) : y;
}
