/* The reference kernels, one function per op, as the table in device/op.h describes them: plain
 * loops in the order of the formula. They are the judge of the fast path and the text to read
 * first.
 *
 * A sum of products (convolutions, matrix products, bias gradients) and everything a softmax
 * touches is kept in double and rounded to float once, at the end: the reference's own error is
 * half a unit in the last place, so what a test sees is the fast path's. */
#ifndef DEVICE_HOST_KERNELS_REFERENCE_H
#define DEVICE_HOST_KERNELS_REFERENCE_H

#include "device/op.h"

/* Element [n][c][h][w] of a row-major rank 4 tensor. */
static inline float *element4(const struct tensor *t, int n, int c, int h, int w) {
    return tensor_f32(t) + (((size_t)n * t->dims[1] + c) * t->dims[2] + h) * t->dims[3] + w;
}

#define REFERENCE_KERNEL(NAME, name, text) host_kernel reference_##name;
DEVICE_OPS(REFERENCE_KERNEL)
#undef REFERENCE_KERNEL

#endif
