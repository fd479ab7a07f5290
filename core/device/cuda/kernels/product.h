/* Convolutions and linear layers as products of two matrices that need not exist in memory.
 *
 *     c[row][col] = sum over d < depth of a(row, d) * b(d, col)
 *
 *                          rows  cols       depth  a(row, d)  b(d, col)
 *     conv forward         O     N*P*Q      C*k*k  w          x under the tap
 *     conv backward data   C     N*H*W      O*k*k  w flipped  dy at the tap's origin
 *     conv backward weight O     C*k*k + 1  N*P*Q  dy         x under the tap; last column: 1
 *     linear, all three    with strides: see linear_product_of
 *
 * x in the padding is 0, and so is dy outside of its tensor. The loaders of product_load.h compute
 * a and b from x, dy and w on the fly ("implicit GEMM": the matrix of im2col is never written). The
 * bias gradient is the weight gradient for an input that is always 1, so it is one more column and
 * needs no separate kernel. tile.h multiplies. Tests compare all of it with the references,
 * device/host/kernels/reference_conv.c and reference_linear.c.
 *
 * The same bits: an element of c is one chain of fmaf in the order of d, whatever the tile, the
 * grid or the number of samples in the call, so forward and backward data may take a whole batch.
 * The depth of a weight gradient runs over samples and is long, so it is cut into `splits` chains,
 * which a second kernel adds in order. Their number depends only on the shape, and the op takes one
 * segment per launch. No library is called, because in cuBLAS the bits of a sample depend on how
 * many samples share the call, and on the alignment of a segment. */
#ifndef DEVICE_CUDA_KERNELS_PRODUCT_H
#define DEVICE_CUDA_KERNELS_PRODUCT_H

#include "device/cuda/kernels/kernel.h"

/* CONV_DATA is for stride 1, which needs no division in a load. In LINEAR_xy, x and y are the
 * directions in which neighbours in memory run in a and in b, and which neighbouring threads load:
 * K is the depth, R the rows, C the columns. */
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

/* A batch of images (N, channels, height, width) that a convolution reads or writes. */
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
    /* linear weight gradient: the row or the column of ones, or -1 */
    int ones_row, ones_col;
    struct picture x, y; /* convolution: x is (N,C,H,W), y is (N,O,P,Q) */
    int stride, padding, k;
    struct divider by_taps, by_k, by_stride;
    /* the grid: set by product_grid (plan.h) */
    uint32_t row_tiles, col_tiles, splits, split_depth;
    float *partial;         /* the sums of several splits, (splits, rows, cols) */
    struct divider by_cols; /* for adding up the splits */
};

static inline struct picture picture_of(const struct tensor *t) {
    struct picture p = {t->dims[1], t->dims[2], t->dims[3], 0, {0, 0, 0}, {0, 0, 0}};
    p.pixels = (uint32_t)p.height * (uint32_t)p.width;
    p.by_pixels = divider_of(p.pixels), p.by_width = divider_of((uint32_t)p.width);
    return p;
}

static inline void conv_product_of(enum op op, const struct op_args *a, struct product *p) {
    const struct product_operands o = product_operands(op, a);
    const struct tensor *x = o.x, *w = o.w, *y = o.y;
    uint32_t n = (uint32_t)x->dims[0], taps = (uint32_t)(w->dims[2] * w->dims[3]);
    p->x = picture_of(x), p->y = picture_of(y);
    p->stride = a->p.conv.stride[0], p->padding = a->p.conv.padding[0], p->k = w->dims[2];
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
 *     weight    dw as stored: rows and cols are m and k, or k and m; depth n */
static inline enum product_kind linear_product_of(enum op op, const struct op_args *a,
                                                  struct product *p) {
    const struct product_operands o = product_operands(op, a);
    const struct tensor *x = o.x, *y = o.y;
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

/* Writes an op as a product; the result says which loaders it uses. */
static inline enum product_kind product_of(enum op op, const struct op_args *a, struct product *p) {
    struct product none = ZEROED;
    *p = none;
    p->out = tensor_f32(&a->out[0]);
    p->ones_row = p->ones_col = -1;
    if (op >= OP_LINEAR_FORWARD) return linear_product_of(op, a, p);
    conv_product_of(op, a, p);
    return op == OP_CONV2D_FORWARD           ? PRODUCT_CONV_FORWARD
           : op == OP_CONV2D_BACKWARD_WEIGHT ? PRODUCT_CONV_WEIGHT
           : p->stride == 1                  ? PRODUCT_CONV_DATA
                                             : PRODUCT_CONV_DATA_STRIDED;
}

/* Reduces a weight gradient to the bias's part, the row or column of ones. */
static inline void product_bias_alone(struct product *p, enum product_kind kind) {
    if (p->ones_row >= 0)
        p->rows = 1, p->ones_row = 0;
    else
        p->cols = 1, p->ones_col = kind == PRODUCT_LINEAR_RC ? 0 : -1;
}

#endif
