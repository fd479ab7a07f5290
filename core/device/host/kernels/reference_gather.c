/* Gathers rows by an index, and elements at computed indices of a dimension, with its gradient; and
 * sorts a dimension. No fast version exists, because memory limits the speed of a copy. */
#include "device/host/kernels/reference.h"

#include <math.h>
#include <string.h>

void reference_gather_rows(const struct op_args *a) {
    const size_t width = tensor_sample_count(&a->in[0]), rows = (size_t)a->out[0].dims[0];
    for (size_t n = 0; n < rows; n++) {
        float *row = tensor_f32(&a->out[0]) + n * width;
        int32_t index = ((const int32_t *)a->in[1].data)[n];
        int known = index >= 0 && index < a->in[0].dims[0];
        if (known) memcpy(row, tensor_f32(&a->in[0]) + (size_t)index * width, width * sizeof *row);
        for (size_t i = 0; !known && i < width; i++)
            row[i] = NAN;
    }
}

/* The index that `at` stands for, below `count`; -1: none. */
static inline int valid_index(float at, int count) {
    int k = index_of_float(at);
    return k < count ? k : -1;
}

/* If one index selects a whole row, rows are copied. */
void reference_take_along(const struct op_args *p) {
    const struct tensor *x = &p->in[0], *y = &p->out[0];
    const int count = x->dims[1], each = p->in[1].dims[2] > 1;
    const size_t inner = (size_t)x->dims[2], rows = (size_t)y->dims[1];
    const float *index = tensor_f32(&p->in[1]);
    float *to = tensor_f32(y);
    for (size_t row = 0; row < (size_t)y->dims[0] * rows; row++, to += inner) {
        const float *from = tensor_f32(x) + row / rows * (size_t)count * inner;
        if (!each) {
            int k = valid_index(*index++, count);
            if (k < 0)
                for (size_t i = 0; i < inner; i++)
                    to[i] = NAN;
            else
                memcpy(to, from + (size_t)k * inner, inner * sizeof *to);
        }
        for (size_t i = 0; each && i < inner; i++) {
            int k = valid_index(*index++, count);
            to[i] = k < 0 ? NAN : from[(size_t)k * inner + i];
        }
    }
}

void reference_add_along(const struct op_args *p) {
    const struct tensor *dy = &p->in[0], *dx = &p->out[0];
    const int count = dx->dims[1], each = p->in[1].dims[2] > 1;
    const size_t inner = (size_t)dx->dims[2], rows = (size_t)dy->dims[1];
    const float *index = tensor_f32(&p->in[1]), *from = tensor_f32(dy);
    memset(dx->data, 0, tensor_bytes(dx));
    for (size_t row = 0; row < (size_t)dy->dims[0] * rows; row++, from += inner) {
        float *to = tensor_f32(dx) + row / rows * (size_t)count * inner;
        int k = each ? 0 : valid_index(*index++, count);
        for (size_t i = 0; k >= 0 && i < inner; i++) {
            int own = each ? valid_index(index[i], count) : k;
            if (own >= 0) to[(size_t)own * inner + i] += from[i];
        }
        if (each) index += inner;
    }
}

/* ---- the order: a heapsort of indices in y, `step` apart ---- */

struct column {
    const float *x; /* the numbers */
    float *y;       /* their places */
    size_t step;
    int descending;
};

/* Does the index at i of y come after that at j? They differ, so one of them does. */
static int comes_behind(const struct column *c, size_t i, size_t j) {
    const float a = c->y[i * c->step], b = c->y[j * c->step], u = c->x[(size_t)a * c->step],
                v = c->x[(size_t)b * c->step];
    return sorts_before(v, u, c->descending) || (!sorts_before(u, v, c->descending) && a > b);
}

/* Sinks the index at i until both below it, at 2i + 1 and 2i + 2, come before it. */
static void sink(const struct column *c, size_t i, size_t count) {
    for (size_t below; (below = 2 * i + 1) < count; i = below) {
        if (below + 1 < count && comes_behind(c, below + 1, below)) below++;
        if (!comes_behind(c, below, i)) return;
        float one = c->y[i * c->step];
        c->y[i * c->step] = c->y[below * c->step], c->y[below * c->step] = one;
    }
}

static void sort(const struct column *c, size_t count) {
    for (size_t i = 0; i < count; i++)
        c->y[i * c->step] = (float)i;
    for (size_t i = count / 2; i-- > 0;)
        sink(c, i, count);
    for (size_t left = count; left-- > 1;) { /* the root of the heap comes last in the order */
        float last = c->y[0];
        c->y[0] = c->y[left * c->step], c->y[left * c->step] = last;
        sink(c, 0, left);
    }
}

void reference_argsort(const struct op_args *p) {
    const struct tensor *x = &p->in[0];
    const size_t count = (size_t)x->dims[1], inner = (size_t)x->dims[2];
    for (size_t o = 0; o < (size_t)x->dims[0]; o++)
        for (size_t i = 0; i < inner; i++) {
            const size_t first = o * count * inner + i;
            sort(&(struct column){tensor_f32(x) + first, tensor_f32(&p->out[0]) + first, inner,
                                  p->p.sort.descending},
                 count);
        }
}
