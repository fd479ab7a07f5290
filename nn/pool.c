/* Windows over pictures without weights: means and maxima, adaptive pools, and the margins around a
 * picture. A pool knows no padding of its own: it is a pool of a padded copy, of zeros for means
 * and of -infinity for maxima, which no window then takes unless all its pixels are
 * -infinity as well: then its gradient may be lost in the margin. */
#include <math.h>

#include "base/error.h"
#include "nn/tape_internal.h"

/* The gradient goes to x; or, where the pool has done the work of a relu that nobody else has
 * needed since, back through both to the operand of that relu. in[max] of the op is dy, and the
 * other operand is what the maxima or the relu were taken of. */
static int pool_backward(struct tape *t, struct node *n, enum op op, int max) {
    struct node to = *n;
    struct op_args args = {.step = NULL};
    struct var *before = n->args.p.pool.relu ? ((struct tape_var *)n->x)->relu_of : NULL;
    if (before) to.x = before;
    to.args.p.pool.relu = before != NULL;
    args.in[max] = n->y->grad;
    if (max || before) args.in[!max] = to.x->value;
    return tape_backward_to_x(t, op, &to, &args, 0);
}

static int avg_pool_backward(struct tape *t, struct node *n) {
    return pool_backward(t, n, OP_AVG_POOL_BACKWARD, 0);
}

static int max_pool_backward(struct tape *t, struct node *n) {
    return pool_backward(t, n, OP_MAX_POOL_BACKWARD, 1);
}

static struct var *pool(struct tape *t, struct var *x, struct pool_args p, enum op op,
                        node_backward *backward) {
    struct var *before = tape_relu_put_off(t, x);
    if (!before && tape_stuck(t, x)) return NULL;
    p.relu = before != NULL;
    const int *d = x->value.dims;
    if (x->value.rank != 4 || p.size < 1 || p.stride < 1 || p.size > d[2] || p.size > d[3]) {
        tape_fail(
            t, fail(ERR_USAGE,
                    "pooling: size %d, stride %d does not suit an input of rank %d, %dx%d: check "
                    "the model",
                    p.size, p.stride, x->value.rank, d[2], d[3]));
        return NULL;
    }
    int dims[4] = {d[0], d[1], (d[2] - p.size) / p.stride + 1, (d[3] - p.size) / p.stride + 1};
    struct node node = {.backward = backward, .x = x};
    node.args = (struct op_args){.in = {before ? before->value : x->value}, .p.pool = p};
    node.args.out[0] = tape_tensor(t, DTYPE_F32, x->value.layout, 4, dims);
    return tape_append_op(t, op, &node, x->needs_grad);
}

struct var *avg_pool2d(struct tape *t, struct var *x, int size, int stride) {
    return pool(t, x, (struct pool_args){size, stride, 0}, OP_AVG_POOL_FORWARD, avg_pool_backward);
}

struct var *max_pool2d(struct tape *t, struct var *x, int size, int stride) {
    return pool(t, x, (struct pool_args){size, stride, 0}, OP_MAX_POOL_FORWARD, max_pool_backward);
}

int pool_ceil_extra(int pixels, int size, int stride, int padding) {
    int64_t rest = (int64_t)pixels + 2 * (int64_t)padding - size;
    if (rest <= -stride) return 0; /* not even one window */
    int64_t windows = (rest + stride - 1) / stride + 1;
    if ((windows - 1) * stride >= (int64_t)pixels + padding) windows--;
    int64_t extra = (windows - 1) * stride - rest;
    return extra > 0 ? (int)extra : 0;
}

static int pad_backward(struct tape *t, struct node *n) {
    struct node to = *n;
    to.args.p.pad = (struct pad_args){-n->args.p.pad.top, -n->args.p.pad.left, 0};
    struct op_args args = {.in = {n->y->grad}};
    return tape_backward_to_x(t, OP_PAD, &to, &args, 0);
}

struct var *pad2d(struct tape *t, struct var *x, struct pad_sides sides, float value) {
    if (tape_stuck(t, x)) return NULL;
    const int *d = x->value.dims;
    const int64_t height = (int64_t)d[2] + sides.top + sides.bottom,
                  width = (int64_t)d[3] + sides.left + sides.right;
    if (x->value.rank != 4 || sides.top <= -d[2] || sides.bottom <= -d[2] || sides.left <= -d[3] ||
        sides.right <= -d[3] || height < 1 || width < 1 || height > INT32_MAX ||
        width > INT32_MAX) {
        tape_fail(t, fail(ERR_USAGE,
                          "pad: (%d, %d, %d, %d) does not suit an input of rank %d, %dx%d: check "
                          "the model",
                          sides.left, sides.right, sides.top, sides.bottom, x->value.rank, d[2],
                          d[3]));
        return NULL;
    }
    int dims[4] = {d[0], d[1], (int)height, (int)width};
    struct node node = {.backward = pad_backward, .x = x};
    node.args = (struct op_args){.in = {x->value}, .p.pad = {sides.top, sides.left, value}};
    node.args.out[0] = tape_tensor(t, DTYPE_F32, x->value.layout, 4, dims);
    return tape_append_op(t, OP_PAD, &node, x->needs_grad);
}

static int adaptive_avg_pool_backward(struct tape *t, struct node *n) {
    struct op_args args = {.in = {n->y->grad}};
    return tape_backward_to_x(t, OP_ADAPTIVE_AVG_POOL_BACKWARD, n, &args, 0);
}

static int adaptive_max_pool_backward(struct tape *t, struct node *n) {
    struct op_args args = {.in = {n->x->value, n->y->grad}};
    return tape_backward_to_x(t, OP_ADAPTIVE_MAX_POOL_BACKWARD, n, &args, 0);
}

static struct var *adaptive_pool(struct tape *t, struct var *x, int height, int width,
                                 const char *name, enum op op, node_backward *backward) {
    const int *d = x->value.dims;
    if (x->value.rank != 4 || height < 1 || width < 1) {
        tape_fail(t, fail(ERR_USAGE,
                          "%s: an output of %dx%d does not suit an input of rank %d: check the "
                          "model",
                          name, height, width, x->value.rank));
        return NULL;
    }
    int dims[4] = {d[0], d[1], height, width};
    struct node node = {.backward = backward, .x = x};
    node.args.in[0] = x->value;
    node.args.out[0] = tape_tensor(t, DTYPE_F32, x->value.layout, 4, dims);
    return tape_append_op(t, op, &node, x->needs_grad);
}

struct var *adaptive_avg_pool2d(struct tape *t, struct var *x, int height, int width) {
    if (tape_stuck(t, x)) return NULL;
    return adaptive_pool(t, x, height, width, "adaptive_avg_pool2d", OP_ADAPTIVE_AVG_POOL_FORWARD,
                         adaptive_avg_pool_backward);
}

/* Its kernels take plain tensors alone. */
struct var *adaptive_max_pool2d(struct tape *t, struct var *x, int height, int width) {
    if (!(x = to_plain(t, x))) return NULL;
    return adaptive_pool(t, x, height, width, "adaptive_max_pool2d", OP_ADAPTIVE_MAX_POOL_FORWARD,
                         adaptive_max_pool_backward);
}

/* ---- pools with padding ---- */

/* PyTorch's rule: so every window has a pixel of the picture. */
static int refuse_padding(struct tape *t, struct var *x, int size, int stride, int padding) {
    if (tape_stuck(t, x)) return 1;
    if (stride >= 1 && padding >= 0 && padding <= size / 2) return 0;
    tape_fail(t, fail(ERR_USAGE,
                      "pooling: size %d, stride %d, padding %d: pad should be at most half of the "
                      "size",
                      size, stride, padding));
    return 1;
}

struct var *avg_pool2d_padded(struct tape *t, struct var *x, int size, int stride, int padding) {
    if (refuse_padding(t, x, size, stride, padding)) return NULL;
    if (padding) x = pad2d(t, x, (struct pad_sides){padding, padding, padding, padding}, 0);
    return avg_pool2d(t, x, size, stride);
}

struct var *max_pool2d_padded(struct tape *t, struct var *x, int size, int stride, int padding,
                              int ceil_mode) {
    if (refuse_padding(t, x, size, stride, padding)) return NULL;
    const int *d = x->value.dims;
    const int right = ceil_mode ? pool_ceil_extra(d[3], size, stride, padding) : 0,
              bottom = ceil_mode ? pool_ceil_extra(d[2], size, stride, padding) : 0;
    const struct pad_sides sides = {padding, padding + right, padding, padding + bottom};
    if (padding || right || bottom) x = pad2d(t, x, sides, -INFINITY);
    return max_pool2d(t, x, size, stride);
}
