/* The reference kernels, one function per op of the table in device/op.h: plain loops in the order
 * of the formula. Read them first; all other kernels are compared with them.
 *
 * Sums of products (convolutions, matrix products, bias gradients) and all of softmax are computed
 * in double and rounded to float once, at the end. The reference's own error is then half a unit in
 * the last place, so any larger difference that a test finds is the other kernel's error. */
#ifndef DEVICE_HOST_KERNELS_REFERENCE_H
#define DEVICE_HOST_KERNELS_REFERENCE_H

#include "device/op.h"

/* Element [n][c][h][w] of a row-major rank 4 tensor. */
static inline float *element4(const struct tensor *t, int n, int c, int h, int w) {
    return tensor_f32(t) + (((size_t)n * t->dims[1] + c) * t->dims[2] + h) * t->dims[3] + w;
}

/* The pixels of window i if an adaptive pool cuts a side of `from` pixels into `count` windows. */
struct pool_span {
    int begin, end;
};

static inline struct pool_span pool_span(int i, int from, int count) {
    return (struct pool_span){(int)((int64_t)i * from / count),
                              (int)(((int64_t)(i + 1) * from + count - 1) / count)};
}

static inline float pool_area(struct pool_span rows, struct pool_span columns) {
    return (float)((rows.end - rows.begin) * (columns.end - columns.begin));
}

#define REFERENCE_KERNEL(NAME, name, text) host_kernel reference_##name;
DEVICE_OPS(REFERENCE_KERNEL)
#undef REFERENCE_KERNEL

#endif
