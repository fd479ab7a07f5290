/* Convolution and linear layers as one thing: a product of two matrices that need not exist.
 *
 *     c[row][col] = sum over d < depth of a(row, d) * b(d, col)
 *
 *                          rows    cols         depth        a(row, d)        b(d, col)
 *     conv forward         O       N*P*Q        C*k*k        w                x at the tap (0 in the padding)
 *     conv backward data   C       N*H*W        O*k*k        w turned         dy the tap came from, or 0
 *     conv backward weight O       C*k*k + 1    N*P*Q        dy               x at the tap; last column: 1
 *     linear, all three    by strides: see product_of
 *
 * The loaders below compute a and b from x, dy and w on the fly ("implicit GEMM": im2col's
 * matrix is never written). The bias gradient is the weight gradient of an input that is always
 * 1: one more column, no more kernel. kernels/tile.h multiplies; the judge of both is
 * device/host/kernels/reference_conv.c, reference_linear.c.
 *
 * The same bits: an element of c is one chain of fmaf in the order of d, whatever the tile, the
 * grid, or how many samples are in the call, so forward and backward data may take a whole
 * batch. A weight gradient, whose depth runs over samples and is long, is cut into `splits`
 * chains that a second kernel folds in order; their number follows from the shape alone, and the
 * op takes one segment a launch. No library is called: the bits of a sample in cuBLAS and cuDNN
 * depend on how many share the call, and on the alignment of a segment. */
#ifndef DEVICE_CUDA_KERNELS_PRODUCT_H
#define DEVICE_CUDA_KERNELS_PRODUCT_H

#include "device/cuda/kernels/kernel.h"

/* CONV_DATA: stride 1, where no load divides. LINEAR_xy: neighbours in memory, so neighbouring
 * threads, run along d (K), the rows (R), the columns (C). */
enum product_kind {
    PRODUCT_CONV_FORWARD,
    PRODUCT_CONV_DATA,
    PRODUCT_CONV_DATA_STRIDED,
    PRODUCT_CONV_WEIGHT,
    PRODUCT_LINEAR_KK,
    PRODUCT_LINEAR_KC,
    PRODUCT_LINEAR_RC,
    PRODUCT_KINDS
};

/* A picture batch (N, channels, height, width) read or written by a convolution. */
struct picture {
    int channels, height, width;
    uint32_t pixels; /* height * width */
    struct divider by_pixels, by_width;
};

struct product {
    const float *a, *b, *bias; /* bias: forward only */
    float *out, *bias_out;     /* bias_out: weight gradients only */
    uint32_t rows, cols, depth;
    uint32_t a_row, a_depth, b_depth, b_col, out_row, out_col; /* linear: strides */
    /* linear weight gradient: the row or column that is all 1; -1: none */
    int ones_row, ones_col;
    struct picture x, y; /* convolution: y is (N,O,P,Q) */
    int stride, padding, k;
    struct divider by_taps, by_k, by_stride;
    /* the grid: product_grid in kernels/plan.h */
    uint32_t row_tiles, col_tiles, splits, split_depth;
    float *partial;         /* (splits, rows, cols), if splits > 1 */
    struct divider by_cols; /* for the fold */
};

static inline struct picture picture_of(const struct tensor *t) {
    struct picture p = {t->dims[1], t->dims[2], t->dims[3], 0, {0, 0, 0}, {0, 0, 0}};
    p.pixels = (uint32_t)p.height * (uint32_t)p.width;
    p.by_pixels = divider_of(p.pixels), p.by_width = divider_of((uint32_t)p.width);
    return p;
}

static inline int product_too_large(const struct op_args *a) {
    const struct tensor *all[5] = {&a->in[0], &a->in[1], &a->in[2], &a->out[0], &a->out[1]};
    for (int i = 0; i < 5; i++)
        if (all[i]->data && tensor_count(all[i]) >= ((size_t)1 << 31) - 4096) return 1;
    return 0;
}

static inline void conv_product_of(enum op op, const struct op_args *a, struct product *p) {
    const struct tensor *x = op == OP_CONV2D_BACKWARD_DATA ? &a->out[0] : &a->in[0];
    const struct tensor *y = op == OP_CONV2D_FORWARD         ? &a->out[0]
                             : op == OP_CONV2D_BACKWARD_DATA ? &a->in[0]
                                                             : &a->in[1];
    const struct tensor *w = op == OP_CONV2D_BACKWARD_WEIGHT ? &a->out[0] : &a->in[1];
    uint32_t n = (uint32_t)x->dims[0], taps = (uint32_t)(w->dims[2] * w->dims[3]);
    p->x = picture_of(x), p->y = picture_of(y);
    p->stride = a->p.conv.stride, p->padding = a->p.conv.padding, p->k = w->dims[2];
    p->by_taps = divider_of(taps), p->by_k = divider_of((uint32_t)p->k);
    p->by_stride = divider_of((uint32_t)p->stride);
    uint32_t in_taps = (uint32_t)p->x.channels * taps, out_taps = (uint32_t)p->y.channels * taps;
    if (op == OP_CONV2D_FORWARD) {
        p->a = tensor_f32(w), p->b = tensor_f32(x), p->bias = tensor_f32(&a->in[2]);
        p->rows = (uint32_t)p->y.channels, p->cols = n * p->y.pixels, p->depth = in_taps;
    } else if (op == OP_CONV2D_BACKWARD_DATA) {
        p->a = tensor_f32(w), p->b = tensor_f32(y);
        p->rows = (uint32_t)p->x.channels, p->cols = n * p->x.pixels, p->depth = out_taps;
    } else {
        p->a = tensor_f32(y), p->b = tensor_f32(x), p->bias_out = tensor_f32(&a->out[1]);
        p->rows = (uint32_t)p->y.channels, p->cols = in_taps + 1, p->depth = n * p->y.pixels;
    }
}

/* With w(m,k) = w[m * by_m + k * by_k]:
 *     forward   rows n, cols m, depth k:  x[n][k] * w(m,k)
 *     data      rows n, cols k, depth m:  dy[n][m] * w(m,k)
 *     weight    the matrix as w lies in memory; rows and cols are m and k, or k and m; depth n */
static inline enum product_kind linear_product_of(enum op op, const struct op_args *a,
                                                  struct product *p) {
    const struct tensor *x = op == OP_LINEAR_BACKWARD_DATA ? &a->out[0] : &a->in[0];
    const struct tensor *y = op == OP_LINEAR_FORWARD         ? &a->out[0]
                             : op == OP_LINEAR_BACKWARD_DATA ? &a->in[0]
                                                             : &a->in[1];
    uint32_t n = (uint32_t)x->dims[0], k = (uint32_t)tensor_sample_count(x),
             m = (uint32_t)tensor_sample_count(y);
    int in_out = a->p.linear.weight_is_in_out;
    uint32_t by_m = in_out ? 1 : k, by_k = in_out ? m : 1;
    p->out_col = 1;
    if (op == OP_LINEAR_FORWARD) {
        p->a = tensor_f32(x), p->b = tensor_f32(&a->in[1]), p->bias = tensor_f32(&a->in[2]);
        p->rows = n, p->cols = m, p->depth = k, p->out_row = m;
        p->a_row = k, p->a_depth = 1, p->b_depth = by_k, p->b_col = by_m;
        return in_out ? PRODUCT_LINEAR_KC : PRODUCT_LINEAR_KK;
    }
    if (op == OP_LINEAR_BACKWARD_DATA) {
        p->a = tensor_f32(y), p->b = tensor_f32(&a->in[1]);
        p->rows = n, p->cols = k, p->depth = m, p->out_row = k;
        p->a_row = m, p->a_depth = 1, p->b_depth = by_m, p->b_col = by_k;
        return in_out ? PRODUCT_LINEAR_KK : PRODUCT_LINEAR_KC;
    }
    uint32_t outer = in_out ? k : m, inner = in_out ? m : k; /* dw is (outer, inner) */
    p->a = tensor_f32(in_out ? x : y), p->b = tensor_f32(in_out ? y : x);
    p->bias_out = tensor_f32(&a->out[1]);
    p->rows = outer + (in_out ? 1 : 0), p->cols = inner + (in_out ? 0 : 1), p->depth = n,
    p->out_row = inner;
    p->a_row = 1, p->a_depth = outer, p->b_depth = inner, p->b_col = 1;
    if (in_out)
        p->ones_row = (int)k;
    else
        p->ones_col = (int)k;
    return PRODUCT_LINEAR_RC;
}

/* The product an op is; *kind says which loaders. 0 if it is too large for 32-bit indices. */
static inline int product_of(enum op op, const struct op_args *a, struct product *p,
                             enum product_kind *kind) {
    struct product none = ZEROED;
    *p = none;
    *kind = PRODUCT_CONV_FORWARD;
    p->out = tensor_f32(&a->out[0]);
    p->ones_row = p->ones_col = -1;
    if (product_too_large(a)) return 0;
    if (op >= OP_LINEAR_FORWARD) {
        *kind = linear_product_of(op, a, p);
    } else {
        conv_product_of(op, a, p);
        *kind = op == OP_CONV2D_FORWARD           ? PRODUCT_CONV_FORWARD
                : op == OP_CONV2D_BACKWARD_WEIGHT ? PRODUCT_CONV_WEIGHT
                : p->stride == 1                  ? PRODUCT_CONV_DATA
                                                  : PRODUCT_CONV_DATA_STRIDED;
    }
    return 1;
}

/* Of a weight gradient what is the bias's alone: the row, or the column, of ones. */
static inline void product_bias_alone(struct product *p, enum product_kind kind) {
    if (p->ones_row >= 0)
        p->rows = 1, p->ones_row = 0;
    else
        p->cols = 1, p->ones_col = kind == PRODUCT_LINEAR_RC ? 0 : -1;
}

/* --- loaders: row < rows, d < depth, col < cols --- */

/* Do neighbours along d lie side by side? Then a warp reads along d, else across. */
DUET_HD int a_runs_along_depth(int kind) {
    return kind != PRODUCT_LINEAR_RC;
}

DUET_HD int b_runs_along_depth(int kind) {
    return kind == PRODUCT_CONV_WEIGHT || kind == PRODUCT_LINEAR_KK;
}

/* Where a convolution reads is the sum of two parts: a spot, set by the pixel, and a tap, set by
 * the entry of the filter bank. Each costs divisions, their sum only an addition and two
 * comparisons; so a thread finds its pixels' spots once, and the taps of a slab are found once
 * for the whole block (kernels/tile.h). Offsets wrap around 2^32 and come right in the sum. */
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

/* i: a pixel of the batch, counted as (n, row, column). For x: where tap (0, 0, 0) of that
 * output pixel falls. For dy: the input pixel itself, moved by the padding. */
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

/* entry: (channel, ky, kx) of the filter bank; the channel is x's, or dy's for its gradient. */
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

/* A number of a matrix: where it lies, or that it is 0, or 1, and lies nowhere. The address is
 * found in any case and only the load hangs on `kind`: a condition for one instruction, not a
 * branch around ten. */
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
    /* above the picture: huge */
    uint32_t h = (uint32_t)(at.row + t.ky), v = (uint32_t)(at.column + t.kx);
    return entry_of(p->b, at.offset + t.offset,
                    h < (uint32_t)p->x.height && v < (uint32_t)p->x.width);
}

/* dy at the output whose tap fell on this input pixel; 0 if there is none. */
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

/* What the loads of a convolution find by division, each as rarely as it changes:
 *     columns of the block     a thread's spots (forward, data) or taps (weight), once a block
 *     one d of the slab        its channel and tap (data), sample and pixel and spot (weight), once a slab
 *     all d of the slab        their taps (forward, data), once a slab, by all threads together */
struct column {
    struct spot spot;
    struct tap tap;
};

struct depth {
    uint32_t outer, rest;
    struct spot spot;
};

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

/* `at` is depth_of(d): o and tap of w[o][c][tap], or n and pixel of dy[n][o][pixel]. */
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

/* `c` is column_of(col); `at` depth_of(d), read for PRODUCT_CONV_WEIGHT; `tap` tap_of(d), where
 * b_takes_taps. */
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
        p->out[(n * p->rows + row) * p->x.pixels + pixel] = value;
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
