/* Convolution with groups, dilation and windows of any shape. Depthwise convolutions have few
 * products per pixel, so threads cannot share a tile. A thread owns one pixel of y, or of dx, and
 * neighbours read neighbouring pixels.
 *
 * A weight's gradient is a sum over all samples and pixels. A block owns one weight, or one bias:
 * each thread adds every 256th product, and the block adds its threads in halves. So the order
 * depends only on the shape. */
#ifndef DEVICE_CUDA_KERNELS_GROUPED_CONV_H
#define DEVICE_CUDA_KERNELS_GROUPED_CONV_H

#include "device/cuda/kernels/kernel.h"

enum { GROUPED_THREADS = 256 };

struct grouped_conv {
    const float *x, *w, *b, *dy; /* what the pass reads */
    float *y, *db;               /* what it writes: y, dx, or dw */
    uint32_t count;              /* elements of y; below 2^31 */
    uint32_t samples;
    int channels, outputs, height, width, out_height, out_width;
    int of_group, each, rows, columns; /* channels of x and y in a group; the window */
    struct conv_args p;
    struct divider by_columns, by_rows,
        by_channels; /* for the tensor that is written; in BACKWARD_WEIGHT for dy */
};

static inline struct grouped_conv grouped_conv_of(enum op op, const struct op_args *a) {
    const struct product_operands o = product_operands(op, a);
    const struct tensor *x = o.x, *w = o.w, *y = o.y, *over = op == OP_CONV2D_BACKWARD_DATA ? x : y;
    struct grouped_conv made = ZEROED;
    made.x = tensor_f32(x), made.w = tensor_f32(w), made.b = tensor_f32(&a->in[2]);
    made.dy = tensor_f32(y), made.y = tensor_f32(&a->out[0]), made.db = tensor_f32(&a->out[1]);
    made.count = (uint32_t)tensor_count(&a->out[0]);
    made.samples = (uint32_t)x->dims[0], made.channels = x->dims[1], made.outputs = y->dims[1];
    made.height = x->dims[2], made.width = x->dims[3];
    made.out_height = y->dims[2], made.out_width = y->dims[3];
    made.p = a->p.conv;
    made.of_group = w->dims[1], made.each = y->dims[1] / made.p.groups;
    made.rows = w->dims[2], made.columns = w->dims[3];
    made.by_columns = divider_of((uint32_t)over->dims[3]);
    made.by_rows = divider_of((uint32_t)over->dims[2]);
    made.by_channels = divider_of((uint32_t)over->dims[1]);
    return made;
}

DUET_HD size_t grouped_at(uint32_t n, int channels, int c, int height, int h, int width, int v) {
    return (((size_t)n * (size_t)channels + (size_t)c) * (size_t)height + (size_t)h) *
               (size_t)width +
           (size_t)v;
}

DUET_HD void k_grouped_conv_forward(const struct grouped_conv *c, struct thread_index at) {
    for (size_t e = thread_first(at); e < c->count; e += thread_stride(at)) {
        uint32_t q, p, o;
        uint32_t n = divide(c->by_channels,
                            divide(c->by_rows, divide(c->by_columns, (uint32_t)e, &q), &p), &o);
        const int top = (int)p * c->p.stride[0] - c->p.padding[0],
                  left = (int)q * c->p.stride[1] - c->p.padding[1],
                  first = (int)o / c->each * c->of_group;
        const float *w = c->w + (size_t)o * (size_t)(c->of_group * c->rows * c->columns);
        float sum = c->b[o];
        for (int g = 0; g < c->of_group; g++)
            for (int ky = 0; ky < c->rows; ky++)
                for (int kx = 0; kx < c->columns; kx++, w++) {
                    const int h = top + ky * c->p.dilation[0], v = left + kx * c->p.dilation[1];
                    if (h >= 0 && h < c->height && v >= 0 && v < c->width)
                        sum = fmaf(
                            c->x[grouped_at(n, c->channels, first + g, c->height, h, c->width, v)],
                            *w, sum);
                }
        c->y[e] = sum;
    }
}

DUET_HD void k_grouped_conv_backward_data(const struct grouped_conv *c, struct thread_index at) {
    for (size_t e = thread_first(at); e < c->count; e += thread_stride(at)) {
        uint32_t v, h, channel;
        uint32_t n =
            divide(c->by_channels, divide(c->by_rows, divide(c->by_columns, (uint32_t)e, &v), &h),
                   &channel);
        const int group = (int)channel / c->of_group, g = (int)channel % c->of_group;
        float sum = 0;
        for (int o = group * c->each; o < (group + 1) * c->each; o++)
            for (int ky = 0; ky < c->rows; ky++)
                for (int kx = 0; kx < c->columns; kx++) {
                    const int above = (int)h + c->p.padding[0] - ky * c->p.dilation[0],
                              before = (int)v + c->p.padding[1] - kx * c->p.dilation[1];
                    const int p = above / c->p.stride[0], q = before / c->p.stride[1];
                    if (above >= 0 && before >= 0 && p * c->p.stride[0] == above &&
                        q * c->p.stride[1] == before && p < c->out_height && q < c->out_width)
                        sum = fmaf(
                            c->dy[grouped_at(n, c->outputs, o, c->out_height, p, c->out_width, q)],
                            c->w[grouped_at((uint32_t)o, c->of_group, g, c->rows, ky, c->columns,
                                            kx)],
                            sum);
                }
        c->y[e] = sum;
    }
}

struct grouped_shared {
    float at[GROUPED_THREADS];
};

/* Adds up the terms of thread t of a block, for weight `weight` or for the bias of channel o. */
DUET_HD float grouped_share(const struct grouped_conv *c, int o, uint32_t weight, int bias,
                            uint32_t t) {
    const uint32_t pixels = (uint32_t)(c->out_height * c->out_width), all = c->samples * pixels;
    const int kx = (int)weight % c->columns, ky = (int)weight / c->columns % c->rows,
              g = (int)weight / c->columns / c->rows % c->of_group;
    float sum = 0;
    for (uint32_t i = t; i < all; i += GROUPED_THREADS) {
        uint32_t q, p, n = divide(c->by_rows, divide(c->by_columns, i, &q), &p);
        const int h = (int)p * c->p.stride[0] - c->p.padding[0] + ky * c->p.dilation[0],
                  v = (int)q * c->p.stride[1] - c->p.padding[1] + kx * c->p.dilation[1];
        const float dy =
            c->dy[grouped_at(n, c->outputs, o, c->out_height, (int)p, c->out_width, (int)q)];
        if (bias)
            sum += dy;
        else if (h >= 0 && h < c->height && v >= 0 && v < c->width)
            sum = fmaf(dy,
                       c->x[grouped_at(n, c->channels, o / c->each * c->of_group + g, c->height, h,
                                       c->width, v)],
                       sum);
    }
    return sum;
}

/* Blocks 0 .. count-1 compute a weight each, and the next `outputs` blocks a bias each. */
DUET_BLOCK void k_grouped_conv_backward_weight(const struct grouped_conv *c,
                                               struct grouped_shared *shared,
                                               struct thread_index at) {
    const uint32_t all = c->count + (uint32_t)c->outputs,
                   filter = (uint32_t)(c->of_group * c->rows * c->columns);
    for (uint32_t work = at.block; work < all; work += at.blocks) {
        const int bias = work >= c->count, o = (int)(bias ? work - c->count : work / filter);
        BLOCK_PHASE(at) {
            shared->at[at.thread] = grouped_share(c, o, work, bias, at.thread);
        }
        BLOCK_FOLD(at, half, GROUPED_THREADS, 1) {
            shared->at[at.thread] += shared->at[at.thread + half];
        }
        BLOCK_PHASE(at) {
            if (at.thread == 0) *(bias ? &c->db[o] : &c->y[work]) = shared->at[0];
        }
    }
}

#endif
