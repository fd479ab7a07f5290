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

host_kernel reference_to_n16, reference_to_plain;
host_kernel reference_conv2d_forward, reference_conv2d_backward_data,
    reference_conv2d_backward_weight;
host_kernel reference_linear_forward, reference_linear_backward_data,
    reference_linear_backward_weight;
host_kernel reference_relu_forward, reference_relu_backward;
host_kernel reference_avg_pool_forward, reference_avg_pool_backward;
host_kernel reference_max_pool_forward, reference_max_pool_backward;
host_kernel reference_dropout_forward, reference_dropout_backward;
host_kernel reference_log_softmax_forward, reference_log_softmax_backward;
host_kernel reference_nll_forward, reference_nll_backward;
host_kernel reference_cross_entropy_forward, reference_cross_entropy_backward, reference_loss_sum;
host_kernel reference_fill, reference_add, reference_scale, reference_sgd, reference_adadelta,
    reference_adam, reference_hash;
host_kernel reference_gather_samples;

#endif
