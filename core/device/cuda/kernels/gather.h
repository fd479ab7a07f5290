/* The kernel of an embedding: rows chosen by an index. */
#ifndef DEVICE_CUDA_KERNELS_GATHER_H
#define DEVICE_CUDA_KERNELS_GATHER_H

#include "device/cuda/kernels/kernel.h"

/* Rows of 4-byte numbers: a thread copies one number, so a warp reads and writes 128 bytes in a
 * row. */
struct gather_rows {
    const uint32_t *x;
    const int32_t *index;
    uint32_t *y;
    int32_t rows; /* of x */
    size_t all;   /* numbers of y; below 2^31 */
    struct divider by_count;
};

/* Returns 0 for 2^31 numbers or more, whose indices would not fit. */
static inline int gather_rows_of(const struct op_args *a, struct gather_rows *g) {
    size_t count = tensor_sample_count(&a->in[0]), n = (size_t)a->out[0].dims[0];
    const struct gather_rows none = ZEROED;
    *g = none;
    if (count >= (size_t)1 << 31 || n * count >= (size_t)1 << 31) return 0;
    g->x = (const uint32_t *)a->in[0].data, g->index = (const int32_t *)a->in[1].data;
    g->y = (uint32_t *)a->out[0].data;
    g->rows = a->in[0].dims[0], g->all = n * count;
    g->by_count = divider_of((uint32_t)count);
    return 1;
}

/* A row that x does not have gets all bits set: NaN as a float, -1 as an integer. */
DUET_HD void k_gather_rows(const struct gather_rows *g, struct place at) {
    for (size_t e = place_first(at); e < g->all; e += place_stride(at)) {
        uint32_t column, n = divide(g->by_count, (uint32_t)e, &column);
        int32_t row = g->index[n];
        int known = row >= 0 && row < g->rows;
        g->y[e] = known ? g->x[(size_t)row * g->by_count.d + column] : 0xffffffffu;
    }
}

#endif
