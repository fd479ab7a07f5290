/* Windows over images without weights: means and maxima, adaptive means, and the margins around an
 * image. A pool itself has no padding. It works on a copy that is padded with zeros for means and
 * with -infinity for maxima. A maximum never comes from the margin, unless all pixels of the window
 * are -infinity; then its gradient may be lost in the margin. */
#include <math.h>

#include "base/error.h"
#include "nn/tape/tape_internal.h"

/* The input of the maxima. An image with margins that was freed is remade from the one without,
 * args.in[1], which is all that was saved. */
static int operand_of_maxima(duet_tape *t, const struct node *n, struct tensor *x) {
    const int *margin = n->args.p.pool.margin, *d = n->x->value.dims;
    if (!n->args.in[1].data || !n->x->gone) return OK;
    *x = tape_tensor(t, DTYPE_F32, n->x->value.layout, 4, d);
    struct op_args args = {
        .in = {n->args.in[1]}, .out = {*x}, .p.pad = {margin[0], margin[1], -INFINITY}};
    CHECK(tape_error(t));
    return tape_launch_batch(t, OP_PAD, &args);
}

/* The gradient goes to x; or, if the pool includes a relu that nobody else needed, back through
 * both to the operand of that relu. in[max] of the op is dy, and the other operand is the input of
 * the maxima or of the relu. */
static int pool_backward(duet_tape *t, struct node *n) {
    const int max = n->op == OP_MAX_POOL_FORWARD;
    struct node to = *n;
    struct op_args args = {.step = NULL};
    duet_var *before = n->args.p.pool.relu ? n->x->relu_of : NULL;
    if (before) to.x = before, scheduled_more_operations(t->stream, 1);
    to.args.p.pool.relu = before != NULL;
    args.in[max] = n->y->grad;
    if (max || before) args.in[!max] = to.x->value;
    if (max) CHECK(operand_of_maxima(t, n, &args.in[0]));
    return tape_backward_to_x(t, max ? OP_MAX_POOL_BACKWARD : OP_AVG_POOL_BACKWARD, &to, &args, 0);
}

/* bare: x before it got margins; NULL: it has none. */
static duet_var *pool(duet_tape *t, duet_var *x, duet_var *bare, struct pool_args p, enum op op) {
    duet_var *before = tape_relu_put_off(t, x);
    if (!before && tape_stuck(t, x)) return NULL;
    p.relu = before != NULL;
    const int *d = x->value.dims;
    if (x->value.rank != 4 || p.size[0] > d[2] || p.size[1] > d[3])
        return tape_refuse(
            t, "pooling: size %dx%d, stride %dx%d does not fit an input of %s: check the model",
            p.size[0], p.size[1], p.stride[0], p.stride[1], SHAPE(&x->value));
    int dims[4] = {d[0], d[1], (d[2] - p.size[0]) / p.stride[0] + 1,
                   (d[3] - p.size[1]) / p.stride[1] + 1};
    struct node node = {.backward = pool_backward, .x = x, .spares = SPARES_Y};
    if (op == OP_AVG_POOL_FORWARD) node.spares |= SPARES_X;
    if (before && x->needs_grad) before->saved = 1;
    node.args = (struct op_args){.in = {before ? before->value : x->value}, .p.pool = p};
    node.args.out[0] = tape_tensor(t, DTYPE_F32, x->value.layout, 4, dims);
    scheduled_operation(t->stream);
    if (before) scheduled_more_operations(t->stream, 1);
    if (t->error || tape_fail(t, tape_launch_batch(t, op, &node.args))) return NULL;
    if (bare && op == OP_MAX_POOL_FORWARD) {
        node.args.in[1] = bare->value, node.spares |= SPARES_X;
        bare->saved |= t->step.training && x->needs_grad;
    }
    return tape_append_launched(t, op, &node, x->needs_grad);
}

/* PyTorch's ceil_mode: the pixels that a side of `pixels` needs after its padding so that one more
 * window covers the rest; none if that window would begin beyond x. */
static int ceil_extra(int pixels, int size, int stride, int padding) {
    int64_t rest = (int64_t)pixels + 2 * (int64_t)padding - size;
    if (rest <= -stride) return 0; /* not even one window fits */
    int64_t windows = (rest + stride - 1) / stride + 1;
    if ((windows - 1) * stride >= (int64_t)pixels + padding) windows--;
    int64_t extra = (windows - 1) * stride - rest;
    return extra > 0 ? (int)extra : 0;
}

static int pad_backward(duet_tape *t, struct node *n) {
    struct node to = *n;
    to.args.p.pad = (struct pad_args){-n->args.p.pad.top, -n->args.p.pad.left, 0};
    struct op_args args = {.in = {n->y->grad}};
    return tape_backward_to_x(t, OP_PAD, &to, &args, 0);
}

/* y (N,C,top+H+bottom,left+W+right), which is `value` around x; negative sides cut off. */
struct pad_sides {
    int left, right, top, bottom;
};

static duet_var *pad(duet_tape *t, duet_var *x, struct pad_sides sides, float value) {
    if (tape_stuck(t, x)) return NULL;
    const int *d = x->value.dims;
    const int64_t height = (int64_t)d[2] + sides.top + sides.bottom,
                  width = (int64_t)d[3] + sides.left + sides.right;
    if (x->value.rank != 4 || sides.top <= -d[2] || sides.bottom <= -d[2] || sides.left <= -d[3] ||
        sides.right <= -d[3] || height < 1 || width < 1 || height > INT32_MAX || width > INT32_MAX)
        return tape_refuse(t, "pad: (%d, %d, %d, %d) does not fit an input of %s: check the model",
                           sides.left, sides.right, sides.top, sides.bottom, SHAPE(&x->value));
    int dims[4] = {d[0], d[1], (int)height, (int)width};
    struct node node = {.backward = pad_backward, .x = x, .spares = SPARES_ALL};
    node.args = (struct op_args){.in = {x->value}, .p.pad = {sides.top, sides.left, value}};
    node.args.out[0] = tape_tensor(t, DTYPE_F32, x->value.layout, 4, dims);
    return tape_append_op(t, OP_PAD, &node, x->needs_grad);
}

static int adaptive_avg_pool_backward(duet_tape *t, struct node *n) {
    struct op_args args = {.in = {n->y->grad}};
    return tape_backward_to_x(t, OP_ADAPTIVE_AVG_POOL_BACKWARD, n, &args, 0);
}

/* ---- the functions of duet.h ---- */

/* The margins of a pool, which are not a tensor in PyTorch. */
static duet_var *with_margins(duet_tape *t, duet_var *x, struct pad_sides sides, float value) {
    duet_var *y = pad(t, x, sides, value);
    if (y) y->same_as = x;
    return y;
}

/* 1: an image with these margins would be too large for a tensor. */
static int pad_too_large(duet_tape *t, duet_var *x, int64_t rows, int64_t columns) {
    const struct tensor *of = &x->value;
    return of->rank == 4 &&
           tape_too_large(t, "padding", x, of->dims[1], of->dims[2] + rows, of->dims[3] + columns);
}

duet_var *duet_pad2d(duet_tape *t, duet_var *x, int left, int right, int top, int bottom,
                     double value) {
    if (tape_failed(t, x) || tape_beyond(t, "pad", "left", left, -MOST_WINDOW) ||
        tape_beyond(t, "pad", "right", right, -MOST_WINDOW) ||
        tape_beyond(t, "pad", "top", top, -MOST_WINDOW) ||
        tape_beyond(t, "pad", "bottom", bottom, -MOST_WINDOW) ||
        pad_too_large(t, x, (int64_t)top + bottom, (int64_t)left + right))
        return NULL;
    if (!isfinite((float)value)) return tape_refuse(t, "pad: value %g: give a finite float", value);
    return pad(t, x, (struct pad_sides){left, right, top, bottom}, (float)value);
}

/* By PyTorch's rule every window has a pixel of the image. */
static int refuse_side(duet_tape *t, int size, int stride, int padding) {
    if (tape_beyond(t, "pooling", "size", size, 1) ||
        tape_beyond(t, "pooling", "stride", stride, 1) ||
        tape_beyond(t, "pooling", "padding", padding, 0))
        return 1;
    if (padding <= size / 2) return 0;
    tape_fail(t, fail(ERR_USAGE,
                      "pooling: size %d, stride %d, padding %d: pad should be at most half of the "
                      "size",
                      size, stride, padding));
    return 1;
}

/* Its margins, 0 or -infinity, become a part of x first. */
static duet_var *pool_of(duet_tape *t, duet_var *x, int size, const struct duet_pool *given,
                         enum op op) {
    static const struct duet_pool none = {.width = 0};
    duet_var *bare = NULL;
    if (tape_failed(t, x)) return NULL;
    const struct duet_pool *how = given ? given : &none;
    const int max = op == OP_MAX_POOL_FORWARD, *d = x->value.dims,
              padding[2] = {tape_padding(how->padding, 0), tape_padding(how->padding, 1)};
    struct pool_args args = {{size, how->width ? how->width : size}, {0}, 0, {0, 0}};
    int more[2] = {0}, margins = 0;
    for (int i = 0; i < 2; i++) {
        const int side = args.size[i], stride = args.stride[i] = tape_setting(how->stride, i, side);
        if (refuse_side(t, side, stride, padding[i])) return NULL;
        if (how->ceil_mode && x->value.rank == 4)
            more[i] = ceil_extra(d[2 + i], side, stride, padding[i]);
        margins += padding[i] + more[i];
    }
    if (margins) { /* without margins a relu before the pool may still be deferred */
        if (pad_too_large(t, x, 2 * (int64_t)padding[0] + more[0],
                          2 * (int64_t)padding[1] + more[1]))
            return NULL;
        const struct pad_sides sides = {padding[1], padding[1] + more[1], padding[0],
                                        padding[0] + more[0]};
        bare = x, args.margin[0] = padding[0], args.margin[1] = padding[1];
        x = with_margins(t, x, sides, max ? -INFINITY : 0);
    }
    return x ? pool(t, x, bare, args, op) : NULL;
}

duet_var *duet_avg_pool2d(duet_tape *t, duet_var *x, int size, const struct duet_pool *how) {
    if (how && how->ceil_mode && !tape_failed(t, x))
        return tape_refuse(t, "pooling: ceil_mode 1: only max pooling has it, averages do not");
    return pool_of(t, x, size, how, OP_AVG_POOL_FORWARD);
}

duet_var *duet_max_pool2d(duet_tape *t, duet_var *x, int size, const struct duet_pool *how) {
    return pool_of(t, x, size, how, OP_MAX_POOL_FORWARD);
}

duet_var *duet_adaptive_avg_pool2d(duet_tape *t, duet_var *x, int height, int width) {
    const char *name = "adaptive_avg_pool2d";
    if (tape_failed(t, x) || tape_beyond(t, name, "height", height, 1) ||
        tape_beyond(t, name, "width", width, 1))
        return NULL;
    const int *d = x->value.dims, dims[4] = {d[0], d[1], height, width};
    if (x->value.rank == 4 && tape_too_large(t, name, x, d[1], height, width)) return NULL;
    if (tape_stuck(t, x)) return NULL;
    if (x->value.rank != 4)
        return tape_refuse(t, "%s: an output of %dx%d does not fit an input of %s: check the model",
                           name, height, width, SHAPE(&x->value));
    struct node node = {
        .backward = adaptive_avg_pool_backward, .x = x, .spares = SPARES_X | SPARES_Y};
    node.args.in[0] = x->value;
    node.args.out[0] = tape_tensor(t, DTYPE_F32, x->value.layout, 4, dims);
    return tape_append_op(t, OP_ADAPTIVE_AVG_POOL_FORWARD, &node, x->needs_grad);
}
