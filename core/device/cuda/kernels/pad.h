/* Adds a margin to an image, or crops it if the sides are negative. A thread owns one pixel of y,
 * and checks whether x has a pixel there. When parts of samples are joined, a thread checks which
 * of the two parts has its element. */
#ifndef DEVICE_CUDA_KERNELS_PAD_H
#define DEVICE_CUDA_KERNELS_PAD_H

#include "device/cuda/kernels/kernel.h"

/* x is (planes, height, width), y is (planes, rows, columns); planes = N * C. */
struct pad {
    const float *x;
    float *y;
    uint32_t count; /* elements of y, below 2^31 */
    int height, width, top, left;
    float value;
    struct divider by_rows, by_columns;
};

static inline struct pad pad_of(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *y = &a->out[0];
    struct pad made = ZEROED;
    made.x = tensor_f32(x), made.y = tensor_f32(y);
    made.count = (uint32_t)tensor_count(y);
    made.height = x->dims[2], made.width = x->dims[3];
    made.top = a->p.pad.top, made.left = a->p.pad.left, made.value = a->p.pad.value;
    made.by_rows = divider_of((uint32_t)y->dims[2]);
    made.by_columns = divider_of((uint32_t)y->dims[3]);
    return made;
}

DUET_HD void k_pad(const struct pad *p, struct thread_index at) {
    for (size_t i = thread_first(at); i < p->count; i += thread_stride(at)) {
        uint32_t row, column;
        const size_t plane = divide(p->by_rows, divide(p->by_columns, (uint32_t)i, &column), &row);
        const int h = (int)row - p->top, w = (int)column - p->left;
        p->y[i] = h >= 0 && h < p->height && w >= 0 && w < p->width
                      ? p->x[(plane * (size_t)p->height + (size_t)h) * (size_t)p->width + (size_t)w]
                      : p->value;
    }
}

/* y is (parts, of_a + of_b): of_a elements of a, then of_b of b. */
struct cat {
    const float *a, *b;
    float *y;
    uint32_t count, of_a, of_b; /* count: elements of y, below 2^31 */
    struct divider by_part;
};

static inline struct cat cat_of(const struct op_args *args) {
    const struct tensor *a = &args->in[0], *b = &args->in[1], *y = &args->out[0];
    struct cat made = ZEROED;
    made.a = tensor_f32(a), made.b = tensor_f32(b), made.y = tensor_f32(y);
    made.count = (uint32_t)tensor_count(y);
    made.of_a = (uint32_t)(a->dims[2] * a->dims[3]);
    made.of_b = (uint32_t)(b->dims[2] * b->dims[3]);
    made.by_part = divider_of(made.of_a + made.of_b);
    return made;
}

DUET_HD void k_cat(const struct cat *c, struct thread_index at) {
    for (size_t i = thread_first(at); i < c->count; i += thread_stride(at)) {
        uint32_t k;
        const size_t part = divide(c->by_part, (uint32_t)i, &k);
        c->y[i] = k < c->of_a ? c->a[part * c->of_a + k] : c->b[part * c->of_b + (k - c->of_a)];
    }
}

#endif
