/* Gathers rows by an index, and elements at computed indices of a dimension, with its gradient; and
 * sorts. Tensors are (outer, count, inner). A thread owns an element of the result, with neighbours
 * along `inner`, so no atomic additions are needed, whose order changes from run to run:
 *
 *     take along   reads one index and one element
 *     add along    looks through the indices of its column, in their order
 *     argsort      a number x[o][c][i] counts those of its column that come before it, which is
 *                  where in y index c belongs; no other thread writes there
 *
 * The last two read a whole column for each element, so they suit columns of a few thousand. */
#ifndef DEVICE_CUDA_KERNELS_GATHER_H
#define DEVICE_CUDA_KERNELS_GATHER_H

#include "device/cuda/kernels/kernel.h"

struct along {
    const float *from, *index;
    float *to;
    uint32_t inner, count, rows; /* count: elements in a column of x; rows: indices */
    int each;                    /* 1: each element has an index; 0: a row shares one */
    size_t all;                  /* elements of the result; below 2^31 */
    struct divider by_column, by_inner;
};

static inline struct along along_of(enum op op, const struct op_args *a) {
    const struct tensor *to = &a->out[0], *x = op == OP_TAKE_ALONG ? &a->in[0] : to,
                        *y = op == OP_TAKE_ALONG ? to : &a->in[0];
    struct along t = ZEROED;
    t.from = tensor_f32(&a->in[0]), t.index = tensor_f32(&a->in[1]), t.to = tensor_f32(to);
    t.inner = (uint32_t)x->dims[2], t.count = (uint32_t)x->dims[1];
    t.rows = (uint32_t)y->dims[1], t.each = a->in[1].dims[2] > 1;
    t.all = tensor_count(to);
    t.by_column = divider_of((uint32_t)(t.all ? tensor_sample_count(to) : 1));
    t.by_inner = divider_of(t.inner ? t.inner : 1);
    return t;
}

/* The index that element i of row k names, among the rows of o. */
DUET_HD int32_t index_at(const struct along *t, uint32_t o, uint32_t k, uint32_t i) {
    size_t row = (size_t)o * t->rows + k;
    return index_of_float(t->each ? t->index[row * t->inner + i] : t->index[row]);
}

DUET_HD void k_take_along(const struct along *t, struct thread_index at) {
    for (size_t e = thread_first(at); e < t->all; e += thread_stride(at)) {
        uint32_t in_column, i, o = divide(t->by_column, (uint32_t)e, &in_column),
                               k = divide(t->by_inner, in_column, &i);
        int32_t c = index_at(t, o, k, i);
        int known = c >= 0 && (uint32_t)c < t->count;
        t->to[e] = known ? t->from[((size_t)o * t->count + (uint32_t)c) * t->inner + i] : NAN;
    }
}

DUET_HD void k_add_along(const struct along *t, struct thread_index at) {
    for (size_t e = thread_first(at); e < t->all; e += thread_stride(at)) {
        uint32_t in_column, i, o = divide(t->by_column, (uint32_t)e, &in_column),
                               c = divide(t->by_inner, in_column, &i);
        float sum = 0;
        for (uint32_t k = 0; k < t->rows; k++)
            if (index_at(t, o, k, i) == (int32_t)c)
                sum += t->from[((size_t)o * t->rows + k) * t->inner + i];
        t->to[e] = sum;
    }
}

/* To gather rows, a thread copies one number, so a warp reads and writes 128 contiguous bytes. */
struct gather_rows {
    const float *x;
    const int32_t *index;
    float *y;
    int32_t rows; /* rows of x */
    size_t all;   /* numbers of y; below 2^31 */
    struct divider by_count;
};

static inline struct gather_rows gather_rows_of(const struct op_args *a) {
    size_t count = tensor_sample_count(&a->in[0]), n = (size_t)a->out[0].dims[0];
    struct gather_rows g = ZEROED;
    g.x = tensor_f32(&a->in[0]), g.index = (const int32_t *)a->in[1].data;
    g.y = tensor_f32(&a->out[0]);
    g.rows = a->in[0].dims[0], g.all = n * count;
    g.by_count = divider_of((uint32_t)count);
    return g;
}

DUET_HD void k_gather_rows(const struct gather_rows *g, struct thread_index at) {
    for (size_t e = thread_first(at); e < g->all; e += thread_stride(at)) {
        uint32_t column, n = divide(g->by_count, (uint32_t)e, &column);
        int32_t row = g->index[n];
        int known = row >= 0 && row < g->rows;
        g->y[e] = known ? g->x[(size_t)row * g->by_count.d + column] : (float)not_a_number();
    }
}

struct argsort {
    const float *x;
    float *y;
    uint32_t inner, count;
    int descending;
    size_t all; /* elements; below 2^31 */
    struct divider by_column, by_inner;
};

static inline struct argsort argsort_of(const struct op_args *a) {
    const struct tensor *x = &a->in[0];
    struct argsort s = ZEROED;
    s.x = tensor_f32(x), s.y = tensor_f32(&a->out[0]);
    s.inner = (uint32_t)x->dims[2], s.count = (uint32_t)x->dims[1];
    s.descending = a->p.sort.descending;
    s.all = tensor_count(x);
    s.by_column = divider_of((uint32_t)(s.all ? tensor_sample_count(x) : 1));
    s.by_inner = divider_of(s.inner ? s.inner : 1);
    return s;
}

DUET_HD void k_argsort(const struct argsort *s, struct thread_index at) {
    for (size_t e = thread_first(at); e < s->all; e += thread_stride(at)) {
        uint32_t in_column, i, o = divide(s->by_column, (uint32_t)e, &in_column),
                               c = divide(s->by_inner, in_column, &i), before = 0;
        size_t first = (size_t)o * s->count * s->inner + i;
        float own = s->x[e];
        for (uint32_t k = 0; k < s->count; k++) {
            float other = s->x[first + (size_t)k * s->inner];
            before += sorts_before(other, own, s->descending) ||
                      (k < c && !sorts_before(own, other, s->descending));
        }
        s->y[first + (size_t)before * s->inner] = (float)c;
    }
}

#endif
