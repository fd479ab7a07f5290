/* The loaders of a product find element a(row, d) or b(d, col) in memory, or know that it is 0 or 1
 * and not stored. They also locate an element of c. Always row < rows, d < depth and col < cols. */
#ifndef DEVICE_CUDA_KERNELS_PRODUCT_LOAD_H
#define DEVICE_CUDA_KERNELS_PRODUCT_LOAD_H

#include "device/cuda/kernels/product.h"

/* 1 if neighbours along d are adjacent in memory. Then a warp reads along d, otherwise across. */
DUET_HD int a_runs_along_depth(int kind) {
    return kind != PRODUCT_LINEAR_RC;
}

DUET_HD int b_runs_along_depth(int kind) {
    return kind == PRODUCT_CONV_WEIGHT || kind == PRODUCT_LINEAR_KK;
}

/* The address that a convolution reads is the sum of two parts: a spot, which depends on the pixel,
 * and a tap, which depends on the filter's entry. Each needs divisions; their sum needs only an
 * addition and two comparisons. So a thread computes its pixels' spots once, and the taps of a slab
 * are computed once for the whole block (tile.h). Offsets may wrap around 2^32; their sum is right
 * again. */
struct spot {
    uint32_t offset;
    int row, column;
};

struct tap {
    uint32_t offset;
    uint16_t ky, kx;
};

DUET_HD int is_conv_data(int kind) {
    return kind == PRODUCT_CONV_DATA || kind == PRODUCT_CONV_DATA_STRIDED;
}

/* i is a pixel of the batch, counted as (n, row, column). For x the spot is where tap (0, 0, 0) of
 * that output pixel falls. For dy it is the input pixel itself, moved by the padding. */
DUET_HD struct spot spot_of(int kind, const struct product *p, uint32_t i) {
    struct spot at;
    uint32_t pixel, row, column, n;
    if (is_conv_data(kind)) {
        n = divide(p->x.by_pixels, i, &pixel);
        row = divide(p->x.by_width, pixel, &column);
        at.row = (int)row + p->padding, at.column = (int)column + p->padding;
        at.offset = n * (uint32_t)p->y.channels * p->y.pixels;
        if (kind == PRODUCT_CONV_DATA)
            at.offset += (uint32_t)at.row * (uint32_t)p->y.width + (uint32_t)at.column;
    } else {
        n = divide(p->y.by_pixels, i, &pixel);
        row = divide(p->y.by_width, pixel, &column);
        at.row = (int)row * p->stride - p->padding,
        at.column = (int)column * p->stride - p->padding;
        at.offset = n * (uint32_t)p->x.channels * p->x.pixels +
                    (uint32_t)at.row * (uint32_t)p->x.width + (uint32_t)at.column;
    }
    return at;
}

/* `entry` counts (channel, ky, kx) in the filter in this order. The channel is x's, or dy's for the
 * data's gradient. */
DUET_HD struct tap tap_of(int kind, const struct product *p, uint32_t entry) {
    struct tap t;
    uint32_t rest, kx, channel = divide(p->by_taps, entry, &rest), ky = divide(p->by_k, rest, &kx);
    t.ky = (uint16_t)ky, t.kx = (uint16_t)kx;
    if (is_conv_data(kind)) {
        t.offset = channel * p->y.pixels;
        if (kind == PRODUCT_CONV_DATA) t.offset -= ky * (uint32_t)p->y.width + kx;
    } else {
        t.offset = channel * p->x.pixels + ky * (uint32_t)p->x.width + kx;
    }
    return t;
}

/* An element of a matrix: its address, or that it is 0 or 1 and not stored. The address is always
 * computed, and only the load depends on `kind`, which puts a condition on one instruction instead
 * of a branch around ten. */
enum entry_kind { ENTRY_ZERO, ENTRY_ONE, ENTRY_IN_MEMORY };
struct entry {
    const float *at;
    enum entry_kind kind;
};

DUET_HD struct entry entry_of(const float *base, uint32_t i, int there) {
    struct entry e = {base, there ? ENTRY_IN_MEMORY : ENTRY_ZERO};
    e.at += i;
    return e;
}

DUET_HD float entry_load(struct entry e) {
    float v = e.kind == ENTRY_ONE;
    if (e.kind == ENTRY_IN_MEMORY) v = *e.at;
    return v;
}

/* x under a tap; 0 in the padding. */
DUET_HD struct entry x_under(const struct product *p, struct spot at, struct tap t) {
    /* above or left of the image: wraps to a huge number */
    uint32_t h = (uint32_t)(at.row + t.ky), v = (uint32_t)(at.column + t.kx);
    return entry_of(p->b, at.offset + t.offset,
                    h < (uint32_t)p->x.height && v < (uint32_t)p->x.width);
}

/* dy at the output whose tap fell on this input pixel, or 0 without such an output. */
DUET_HD struct entry dy_over(int kind, const struct product *p, struct spot at, struct tap t) {
    uint32_t row = (uint32_t)(at.row - t.ky), column = (uint32_t)(at.column - t.kx), rest_row = 0,
             rest_column = 0;
    uint32_t offset = at.offset + t.offset;
    int there = at.row >= t.ky && at.column >= t.kx;
    if (kind == PRODUCT_CONV_DATA_STRIDED) {
        row = divide(p->by_stride, row, &rest_row),
        column = divide(p->by_stride, column, &rest_column);
        offset += row * (uint32_t)p->y.width + column;
        there &= rest_row == 0 && rest_column == 0;
    }
    return entry_of(p->b, offset,
                    there && row < (uint32_t)p->y.height && column < (uint32_t)p->y.width);
}

/* The loads of a convolution compute these by division, each only when it changes:
 *
 *     for a column      a thread's spots (forward, data) or taps (weight), once per block
 *     for one d         channel and tap (data), or sample, pixel, spot (weight), once per slab
 *     for all d         of a slab: their taps (forward, data), once, by all threads together */
/* A thread's data about a column of b. */
struct column {
    struct spot spot;
    struct tap tap;
};

/* Data for one d: outer and rest are the quotient and the remainder that entry_a needs. */
struct depth {
    uint32_t outer, rest;
    struct spot spot;
};

/* 1 if entry_b takes its tap from the slab's table. */
DUET_HD int b_takes_taps(int kind) {
    return kind == PRODUCT_CONV_FORWARD || is_conv_data(kind);
}

DUET_HD struct column column_of(int kind, const struct product *p, uint32_t col) {
    struct column c = ZEROED;
    if (b_takes_taps(kind)) c.spot = spot_of(kind, p, col);
    if (kind == PRODUCT_CONV_WEIGHT) c.tap = tap_of(kind, p, col);
    return c;
}

DUET_HD struct depth depth_of(int kind, const struct product *p, uint32_t d) {
    struct depth at = ZEROED;
    if (is_conv_data(kind)) at.outer = divide(p->by_taps, d, &at.rest);
    if (kind == PRODUCT_CONV_WEIGHT)
        at.outer = divide(p->y.by_pixels, d, &at.rest), at.spot = spot_of(kind, p, d);
    return at;
}

/* `at` is depth_of(d): o and the tap of w[o][c][tap], or n and the pixel of dy[n][o][pixel]. */
DUET_HD struct entry entry_a(int kind, const struct product *p, uint32_t row, uint32_t d,
                             const struct depth *at) {
    struct entry e;
    switch (kind) {
    case PRODUCT_CONV_FORWARD: return entry_of(p->a, row * p->depth + d, 1);
    case PRODUCT_CONV_DATA:
    case PRODUCT_CONV_DATA_STRIDED:
        return entry_of(p->a, (at->outer * p->rows + row) * p->by_taps.d + at->rest, 1);
    case PRODUCT_CONV_WEIGHT:
        return entry_of(p->a, (at->outer * p->rows + row) * p->y.pixels + at->rest, 1);
    case PRODUCT_LINEAR_RC:
        e = entry_of(p->a, row + d * p->a_depth, 1);
        if ((int)row == p->ones_row) e.kind = ENTRY_ONE;
        return e;
    default: return entry_of(p->a, row * p->a_row + d, 1);
    }
}

/* `c` is column_of(col). `at` is depth_of(d), read for PRODUCT_CONV_WEIGHT only. `tap` is
 * tap_of(d), if b_takes_taps. */
DUET_HD struct entry entry_b(int kind, const struct product *p, uint32_t d, uint32_t col,
                             const struct column *c, const struct depth *at,
                             const struct tap *tap) {
    struct entry e;
    switch (kind) {
    case PRODUCT_CONV_FORWARD: return x_under(p, c->spot, *tap);
    case PRODUCT_CONV_DATA:
    case PRODUCT_CONV_DATA_STRIDED: return dy_over(kind, p, c->spot, *tap);
    case PRODUCT_CONV_WEIGHT:
        e = x_under(p, at->spot, c->tap);
        if (col + 1 == p->cols) e.kind = ENTRY_ONE;
        return e;
    case PRODUCT_LINEAR_RC:
        e = entry_of(p->b, d * p->b_depth + col, 1);
        if ((int)col == p->ones_col) e.kind = ENTRY_ONE;
        return e;
    case PRODUCT_LINEAR_KC: return entry_of(p->b, d * p->b_depth + col, 1);
    default: return entry_of(p->b, d + col * p->b_col, 1);
    }
}

/* Stores an element of c, with the bias if the product has one. */
DUET_HD void store_c(int kind, const struct product *p, uint32_t row, uint32_t col, float value) {
    uint32_t n, pixel;
    switch (kind) {
    case PRODUCT_CONV_FORWARD:
        n = divide(p->y.by_pixels, col, &pixel);
        p->out[(n * p->rows + row) * p->y.pixels + pixel] = value + p->bias[row];
        return;
    case PRODUCT_CONV_DATA:
    case PRODUCT_CONV_DATA_STRIDED:
        n = divide(p->x.by_pixels, col, &pixel);
        /* + 0 avoids -0: conv_planes.h skips products with 0, which may turn -0 into +0 */
        p->out[(n * p->rows + row) * p->x.pixels + pixel] = value + 0.0f;
        return;
    case PRODUCT_CONV_WEIGHT:
        if (col + 1 == p->cols)
            p->bias_out[row] = value;
        else
            p->out[row * (p->cols - 1) + col] = value;
        return;
    case PRODUCT_LINEAR_RC:
        if ((int)row == p->ones_row)
            p->bias_out[col] = value;
        else if ((int)col == p->ones_col)
            p->bias_out[row] = value;
        else
            p->out[row * p->out_row + col] = value;
        return;
    default: p->out[row * p->out_row + col] = p->bias ? value + p->bias[col] : value;
    }
}

#endif
