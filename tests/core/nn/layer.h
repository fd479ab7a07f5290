/* A random layer with a weight (linear, or a convolution), its three passes as launches, and a
 * random matrix product, for tests that compare kernels with the reference. */
#ifndef TESTS_NN_LAYER_H
#define TESTS_NN_LAYER_H

#include "tests/core/device/kernels_common.h"

/* A sum of t products in float, in any order, differs from the exact sum by at most about t *
 * 2^-24 times the sum of the products' absolute values. That sum the reference computes when
 * given absolute values. One wrong or missing term is of the size of that sum / t: with at most
 * some thousand terms always larger. */
static inline double rounding(size_t terms) {
    return (double)(terms + 2) * 0x1p-24;
}

/* Both factors are rounded to 10 bits of mantissa, so a product is off by a little more than
 * 2 * 2^-11 of itself. */
#define TF32_PRODUCT 0x1.01p-10

/* In every layer: in[0], out[0] of forward; in[0] = dy, out[0] = dx; in = x, dy, out = dw, db. */
struct layer {
    struct tensor x, w, b, y, dy;
    int linear;
    struct op_args p;
};
enum pass { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT, PASSES };

static inline enum op op_of(const struct layer *l, enum pass pass) {
    return (l->linear ? OP_LINEAR_FORWARD : OP_CONV2D_FORWARD) + (int)pass;
}

/* n C H W O k stride padding */
static inline struct layer conv_layer(struct heap *heap, const int s[8]) {
    int p = (s[2] + 2 * s[7] - s[5]) / s[6] + 1, q = (s[3] + 2 * s[7] - s[5]) / s[6] + 1;
    return (struct layer){.x = tensor_random(heap, 1, 4, s[0], s[1], s[2], s[3]),
                          .w = tensor_random(heap, 2, 4, s[4], s[1], s[5], s[5]),
                          .b = tensor_random(heap, 3, 1, s[4], 1, 1, 1),
                          .y = heap_tensor(heap, DTYPE_F32, 4, s[0], s[4], p, q),
                          .dy = tensor_random(heap, 4, 4, s[0], s[4], p, q),
                          .p = {.p.conv = conv_square(s[6], s[7])}};
}

static inline struct layer linear_layer(struct heap *heap, int n, int inputs, int outputs,
                                        int in_out) {
    return (struct layer){.x = tensor_random(heap, 1, 2, n, inputs, 1, 1),
                          .w = in_out ? tensor_random(heap, 2, 2, inputs, outputs, 1, 1)
                                      : tensor_random(heap, 2, 2, outputs, inputs, 1, 1),
                          .b = tensor_random(heap, 3, 1, outputs, 1, 1, 1),
                          .y = heap_tensor(heap, DTYPE_F32, 2, n, outputs, 1, 1),
                          .dy = tensor_random(heap, 4, 2, n, outputs, 1, 1),
                          .linear = 1,
                          .p = {.p.linear = {in_out}}};
}

/* The launch of a pass, with outputs of its own. */
static inline struct op_args launch_of(struct heap *heap, const struct layer *l, enum pass pass) {
    struct op_args a = {.p = l->p.p};
    if (pass == FORWARD) {
        a.in[0] = l->x, a.in[1] = l->w, a.in[2] = l->b, a.out[0] = tensor_like(heap, &l->y);
    } else if (pass == BACKWARD_DATA) {
        a.in[0] = l->dy, a.in[1] = l->w, a.out[0] = tensor_like(heap, &l->x);
    } else {
        a.in[0] = l->x, a.in[1] = l->dy;
        a.out[0] = tensor_like(heap, &l->w), a.out[1] = tensor_like(heap, &l->b);
    }
    cr_assert_eq(op_check(op_of(l, pass), &a), 0, "the test's own shapes");
    return a;
}

static inline struct tensor absolute(struct heap *heap, const struct tensor *t) {
    struct tensor a = tensor_copy(heap, t);
    for (size_t i = 0; i < tensor_count(&a); i++)
        tensor_f32(&a)[i] = fabsf(tensor_f32(&a)[i]);
    return a;
}

/* With absolute values: the reference's passes give the sizes to which `rounding` is relative. */
static inline struct layer absolute_layer(struct heap *heap, const struct layer *l) {
    struct layer size = *l;
    size.x = absolute(heap, &l->x), size.w = absolute(heap, &l->w), size.b = absolute(heap, &l->b);
    size.dy = absolute(heap, &l->dy);
    return size;
}

static inline void expect_near(const char *what, const struct tensor *got,
                               const struct tensor *want, const struct tensor *size, double bound) {
    for (size_t i = 0; i < tensor_count(want); i++) {
        double g = tensor_f32(got)[i], w = tensor_f32(want)[i],
               most = bound * (double)tensor_f32(size)[i];
        cr_assert(fabs(g - w) <= most,
                  "%s: element %zu is %.9g, the reference %.9g, off by more than %.3g", what, i, g,
                  w, most);
    }
}

/* A product and what the reference makes of it. */
struct matmul_case {
    struct op_args args;
    struct tensor want, size; /* size: the same of absolute values; `rounding` is relative to it */
};

/* s: matrices, rows, columns, depth; transposed 1: a is stored the other way round, 2: b is. */
static inline struct matmul_case matmul_case(struct heap *heap, const int s[4], int transposed) {
    int a_rows = transposed == 1 ? s[3] : s[1], a_columns = transposed == 1 ? s[1] : s[3],
        b_rows = transposed == 2 ? s[2] : s[3], b_columns = transposed == 2 ? s[3] : s[2];
    struct matmul_case c = {.args = {.in = {tensor_random(heap, 1, 3, s[0], a_rows, a_columns, 1),
                                            tensor_random(heap, 2, 3, s[0], b_rows, b_columns, 1)},
                                     .p.matmul = {transposed == 1, transposed == 2}}};
    struct op_args sizes = c.args;
    c.want = c.args.out[0] = heap_tensor(heap, DTYPE_F32, 3, s[0], s[1], s[2], 1);
    host_reference_kernels[OP_MATMUL](&c.args);
    sizes.in[0] = absolute(heap, &c.args.in[0]), sizes.in[1] = absolute(heap, &c.args.in[1]);
    c.size = sizes.out[0] = tensor_like(heap, &c.want);
    host_reference_kernels[OP_MATMUL](&sizes);
    return c;
}

#endif
