/* Pooling: each window of size[0] x size[1] pixels becomes one pixel, its mean or its maximum.
 * Windows are stride[0] rows and stride[1] columns apart.
 *
 * The backward pass divides the gradient of a mean equally among the pixels of the window. The
 * gradient of a maximum goes to the first of equal maxima in row-major order. If windows overlap
 * (stride < size), a pixel gets the sum of its windows' shares; a pixel in no window gets 0. NaN is
 * larger than any number, and the last of several NaNs counts, as in PyTorch.
 *
 * With p.pool.relu the op pools the relu of x. */
#include "device/host/kernels/reference.h"

#include <math.h>
#include <string.h>

/* The value of a pixel as the pool sees it. */
static float seen(const struct op_args *a, float x) {
    return a->p.pool.relu && x < 0 ? 0 : x;
}

/* The gradient of the relu before a pool, in place. */
static void back_through_relu(const struct tensor *x, const struct tensor *dx) {
    for (size_t i = 0; i < tensor_count(dx); i++)
        if (!(tensor_f32(x)[i] > 0)) tensor_f32(dx)[i] = 0;
}

void reference_avg_pool_forward(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *y = &a->out[0];
    const int *size = a->p.pool.size, *stride = a->p.pool.stride;
    for (int n = 0; n < y->dims[0]; n++)
        for (int c = 0; c < y->dims[1]; c++)
            for (int p = 0; p < y->dims[2]; p++)
                for (int q = 0; q < y->dims[3]; q++) {
                    float sum = 0;
                    for (int i = 0; i < size[0]; i++)
                        for (int j = 0; j < size[1]; j++)
                            sum +=
                                seen(a, *element4(x, n, c, p * stride[0] + i, q * stride[1] + j));
                    *element4(y, n, c, p, q) = sum / (float)(size[0] * size[1]);
                }
}

void reference_avg_pool_backward(const struct op_args *a) {
    const struct tensor *dy = &a->in[0], *dx = &a->out[0];
    const int *size = a->p.pool.size, *stride = a->p.pool.stride;
    memset(dx->data, 0, tensor_count(dx) * sizeof(float));
    for (int n = 0; n < dy->dims[0]; n++)
        for (int c = 0; c < dy->dims[1]; c++)
            for (int p = 0; p < dy->dims[2]; p++)
                for (int q = 0; q < dy->dims[3]; q++) {
                    float share = *element4(dy, n, c, p, q) / (float)(size[0] * size[1]);
                    for (int i = 0; i < size[0]; i++)
                        for (int j = 0; j < size[1]; j++)
                            *element4(dx, n, c, p * stride[0] + i, q * stride[1] + j) += share;
                }
    if (a->p.pool.relu) back_through_relu(&a->in[1], dx);
}

/* The index of the maximum of window (p, q), in the plane of x. */
static int window_argmax(const struct op_args *a, int n, int c, int p, int q) {
    const struct tensor *x = &a->in[0];
    const int *size = a->p.pool.size, top = p * a->p.pool.stride[0], left = q * a->p.pool.stride[1];
    int best = top * x->dims[3] + left;
    float most = seen(a, *element4(x, n, c, top, left));
    for (int h = top; h < top + size[0]; h++)
        for (int w = left; w < left + size[1]; w++) {
            float value = seen(a, *element4(x, n, c, h, w));
            if (value > most || isnan(value)) {
                most = value;
                best = h * x->dims[3] + w;
            }
        }
    return best;
}

void reference_max_pool_forward(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *y = &a->out[0];
    for (int n = 0; n < y->dims[0]; n++)
        for (int c = 0; c < y->dims[1]; c++)
            for (int p = 0; p < y->dims[2]; p++)
                for (int q = 0; q < y->dims[3]; q++)
                    *element4(y, n, c, p, q) =
                        seen(a, element4(x, n, c, 0, 0)[window_argmax(a, n, c, p, q)]);
}

void reference_max_pool_backward(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *dy = &a->in[1], *dx = &a->out[0];
    memset(dx->data, 0, tensor_count(dx) * sizeof(float));
    for (int n = 0; n < dy->dims[0]; n++)
        for (int c = 0; c < dy->dims[1]; c++)
            for (int p = 0; p < dy->dims[2]; p++)
                for (int q = 0; q < dy->dims[3]; q++)
                    element4(dx, n, c, 0, 0)[window_argmax(a, n, c, p, q)] +=
                        *element4(dy, n, c, p, q);
    if (a->p.pool.relu) back_through_relu(x, dx);
}

/* ---- as many windows as asked for ---- */

void reference_adaptive_avg_pool_forward(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *y = &a->out[0];
    for (int n = 0; n < y->dims[0]; n++)
        for (int c = 0; c < y->dims[1]; c++)
            for (int p = 0; p < y->dims[2]; p++)
                for (int q = 0; q < y->dims[3]; q++) {
                    struct pool_span rows = pool_span(p, x->dims[2], y->dims[2]),
                                     columns = pool_span(q, x->dims[3], y->dims[3]);
                    float sum = 0;
                    for (int h = rows.begin; h < rows.end; h++) {
                        float row = 0;
                        for (int w = columns.begin; w < columns.end; w++)
                            row += *element4(x, n, c, h, w);
                        sum += row;
                    }
                    *element4(y, n, c, p, q) = sum / pool_area(rows, columns);
                }
}

void reference_adaptive_avg_pool_backward(const struct op_args *a) {
    const struct tensor *dy = &a->in[0], *dx = &a->out[0];
    memset(dx->data, 0, tensor_count(dx) * sizeof(float));
    for (int n = 0; n < dy->dims[0]; n++)
        for (int c = 0; c < dy->dims[1]; c++)
            for (int p = 0; p < dy->dims[2]; p++)
                for (int q = 0; q < dy->dims[3]; q++) {
                    struct pool_span rows = pool_span(p, dx->dims[2], dy->dims[2]),
                                     columns = pool_span(q, dx->dims[3], dy->dims[3]);
                    float share = *element4(dy, n, c, p, q) / pool_area(rows, columns);
                    for (int h = rows.begin; h < rows.end; h++)
                        for (int w = columns.begin; w < columns.end; w++)
                            *element4(dx, n, c, h, w) += share;
                }
}
