/* Convolution and linear layers as one thing: a product of two matrices that need not exist.
 *
 *     c[row][col] = sum over d < depth of a(row, d) * b(d, col)
 *
 *                          rows    cols         depth        a(row, d)        b(d, col)
 *     conv forward         O       N*P*Q        C*k*k        w                x at the tap (0 in the padding)
 *     conv backward data   C       N*H*W        O*k*k        w turned         dy where the tap came from, or 0
 *     conv backward weight O       C*k*k + 1    N*P*Q        dy               x at the tap; last column: 1
 *     linear, all three    by strides: see product_of
 *
 * The loaders below compute a and b from x, dy and w on the fly ("implicit GEMM": im2col's matrix is never
 * written). The bias gradient is the weight gradient of an input that is always 1: one more column, no more
 * kernel. cuda_kernels_tile.h multiplies; the judge of both is device/math/reference_conv.c, reference_linear.c.
 *
 * The same bits: an element of c is one chain of fmaf in the order of d, whatever the tile, the grid, or how many
 * samples are in the call, so forward and backward data may take a whole batch. A weight gradient, whose depth
 * runs over samples and is long, is cut into `splits` chains that a second kernel folds in order; their number
 * follows from the shape alone, and the op takes one segment a launch. No library is called: the bits of a
 * sample in cuBLAS and cuDNN depend on how many share the call, and on the alignment of a segment. */
#ifndef DEVICE_CUDA_KERNELS_PRODUCT_H
#define DEVICE_CUDA_KERNELS_PRODUCT_H

#include "device/cuda_kernels.h"

/* LINEAR_xy: neighbours in memory, so neighbouring threads, run along d (K), the rows (R), the columns (C). */
enum product_kind {
    PRODUCT_CONV_FORWARD, PRODUCT_CONV_DATA, PRODUCT_CONV_WEIGHT,
    PRODUCT_LINEAR_KK, PRODUCT_LINEAR_KC, PRODUCT_LINEAR_RC,
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
    int ones_row, ones_col;    /* linear weight gradient: the row or column that is all 1; -1: none */
    struct picture x, y;       /* convolution: y is (N,O,P,Q) */
    int stride, padding, k;
    struct divider by_taps, by_k, by_stride;
    uint32_t row_tiles, col_tiles, splits, split_depth; /* the grid: product_grid in cuda_kernels_plan.h */
    float *partial;            /* (splits, rows, cols), if splits > 1 */
    struct divider by_cols;    /* for the fold */
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
    const struct tensor *y = op == OP_CONV2D_FORWARD        ? &a->out[0]
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
static inline enum product_kind linear_product_of(enum op op, const struct op_args *a, struct product *p) {
    const struct tensor *x = op == OP_LINEAR_BACKWARD_DATA ? &a->out[0] : &a->in[0];
    const struct tensor *y = op == OP_LINEAR_FORWARD        ? &a->out[0]
                             : op == OP_LINEAR_BACKWARD_DATA ? &a->in[0]
                                                             : &a->in[1];
    uint32_t n = (uint32_t)x->dims[0], k = (uint32_t)tensor_sample_count(x), m = (uint32_t)tensor_sample_count(y);
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
    p->rows = outer + (in_out ? 1 : 0), p->cols = inner + (in_out ? 0 : 1), p->depth = n, p->out_row = inner;
    p->a_row = 1, p->a_depth = outer, p->b_depth = inner, p->b_col = 1;
    if (in_out)
        p->ones_row = (int)k;
    else
        p->ones_col = (int)k;
    return PRODUCT_LINEAR_RC;
}

/* The product an op is; *kind says which loaders. 0 if it is too large for 32-bit indices. */
static inline int product_of(enum op op, const struct op_args *a, struct product *p, enum product_kind *kind) {
    struct product none = ZEROED;
    *p = none;
    p->out = tensor_f32(&a->out[0]);
    p->ones_row = p->ones_col = -1;
    if (product_too_large(a)) return 0;
    if (op >= OP_LINEAR_FORWARD) {
        *kind = linear_product_of(op, a, p);
    } else {
        conv_product_of(op, a, p);
        *kind = (enum product_kind)(PRODUCT_CONV_FORWARD + (op - OP_CONV2D_FORWARD));
    }
    return 1;
}

/* --- loaders: row < rows, d < depth, col < cols --- */

/* Do neighbours along d lie side by side? Then a warp reads along d, else across. */
DUET_HD int a_runs_along_depth(int kind) {
    return kind != PRODUCT_LINEAR_RC;
}

DUET_HD int b_runs_along_depth(int kind) {
    return kind == PRODUCT_CONV_WEIGHT || kind == PRODUCT_LINEAR_KK;
}

/* Pixel i of a batch of one-channel pictures: its sample, row and column. */
DUET_HD uint32_t sample_of(const struct picture *t, uint32_t i, uint32_t *row, uint32_t *column) {
    uint32_t pixel, n = divide(t->by_pixels, i, &pixel);
    *row = divide(t->by_width, pixel, column);
    return n;
}

/* Entry i of a filter bank: its channel and tap. */
DUET_HD uint32_t channel_of(const struct product *p, uint32_t i, uint32_t *ky, uint32_t *kx) {
    uint32_t tap, channel = divide(p->by_taps, i, &tap);
    *ky = divide(p->by_k, tap, kx);
    return channel;
}

/* x under the tap `entry` = (c, ky, kx) of output pixel i = (n, row, column); 0 in the padding. */
DUET_HD float x_under(const struct product *p, uint32_t entry, uint32_t i) {
    uint32_t ky, kx, row, column;
    uint32_t c = channel_of(p, entry, &ky, &kx), n = sample_of(&p->y, i, &row, &column);
    uint32_t h = row * (uint32_t)p->stride + ky - (uint32_t)p->padding; /* above the picture: wraps to huge */
    uint32_t v = column * (uint32_t)p->stride + kx - (uint32_t)p->padding;
    if (h >= (uint32_t)p->x.height || v >= (uint32_t)p->x.width) return 0;
    return p->b[(n * (uint32_t)p->x.channels + c) * p->x.pixels + h * (uint32_t)p->x.width + v];
}

/* dy at the output whose tap `entry` = (o, ky, kx) fell on input pixel i = (n, h, v); 0 if there is none. */
DUET_HD float dy_over(const struct product *p, uint32_t entry, uint32_t i) {
    uint32_t ky, kx, h, v, rest_row, rest_column;
    uint32_t o = channel_of(p, entry, &ky, &kx), n = sample_of(&p->x, i, &h, &v);
    h += (uint32_t)p->padding, v += (uint32_t)p->padding;
    if (h < ky || v < kx) return 0;
    uint32_t row = divide(p->by_stride, h - ky, &rest_row), column = divide(p->by_stride, v - kx, &rest_column);
    if (rest_row || rest_column || row >= (uint32_t)p->y.height || column >= (uint32_t)p->y.width) return 0;
    return p->b[(n * (uint32_t)p->y.channels + o) * p->y.pixels + row * (uint32_t)p->y.width + column];
}

DUET_HD float load_a(int kind, const struct product *p, uint32_t row, uint32_t d) {
    uint32_t rest, outer;
    switch (kind) {
    case PRODUCT_CONV_FORWARD: return p->a[row * p->depth + d];
    case PRODUCT_CONV_DATA:
        outer = divide(p->by_taps, d, &rest); /* w[o][c = row][tap] */
        return p->a[(outer * p->rows + row) * p->by_taps.d + rest];
    case PRODUCT_CONV_WEIGHT:
        outer = divide(p->y.by_pixels, d, &rest); /* dy[n][o = row][pixel] */
        return p->a[(outer * p->rows + row) * p->y.pixels + rest];
    case PRODUCT_LINEAR_RC: return (int)row == p->ones_row ? 1 : p->a[row + d * p->a_depth];
    default: return p->a[row * p->a_row + d];
    }
}

DUET_HD float load_b(int kind, const struct product *p, uint32_t d, uint32_t col) {
    switch (kind) {
    case PRODUCT_CONV_FORWARD: return x_under(p, d, col);
    case PRODUCT_CONV_DATA: return dy_over(p, d, col);
    case PRODUCT_CONV_WEIGHT: return col + 1 == p->cols ? 1 : x_under(p, col, d);
    case PRODUCT_LINEAR_RC: return (int)col == p->ones_col ? 1 : p->b[d * p->b_depth + col];
    case PRODUCT_LINEAR_KC: return p->b[d * p->b_depth + col];
    default: return p->b[d + col * p->b_col];
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
