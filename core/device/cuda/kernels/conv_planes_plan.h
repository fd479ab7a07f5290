/* Maps conv_planes.h to a GPU: the warps of a block, the order of the columns, the part of an image
 * that a block keeps, and the convolutions that use it. */
#ifndef DEVICE_CUDA_KERNELS_PLANES_PLAN_H
#define DEVICE_CUDA_KERNELS_PLANES_PLAN_H

#include "device/cuda/kernels/plan.h"

enum {
    /* Rows of a warp. In shared memory they take PLANES_GROUP floats, for loads of 16 bytes. */
    PLANES_ROWS = 10,
    PLANES_GROUP = 12,
    PLANES_COLS = 3,   /* columns per lane */
    PLANES_GROUPS = 5, /* the most groups of rows in a block */
    PLANES_WARPS = 5,  /* the most warps of a block */
    /* Floats from the weights of one tap to those of the next. */
    PLANES_PITCH = PLANES_GROUPS * PLANES_GROUP,
    PLANES_WEIGHTS = 25 * PLANES_PITCH, /* floats for the weights of a channel */
    PLANES_FETCH_A = 8,  /* the most copies of weights that a thread makes for a channel */
    PLANES_FETCH_B = 6,  /* the same for the image */
    PLANES_PIECE = 1792, /* floats of a piece */
};

struct planes {
    struct product p;
    struct picture from, to;     /* what the taps read, and c: x and y, or dy and dx */
    uint32_t groups, col_groups; /* warps of a block across rows, across columns */
    uint32_t a_row, a_channel;   /* strides of the weights */
    int by_row;                  /* 1: columns are counted (row, sample, column) */
    /* Floats between rows of a piece; the width in `from` that a row of pixels reads; by rows:
     * floats skipped after the rows of a line. */
    uint32_t stride, pitch, reach, gap;
    uint32_t zeros;     /* by rows: columns of zeros on the left, which are not fetched */
    uint32_t full_rows; /* rows of a piece that holds a whole sample */
    int before;         /* rows of zeros above an image, and columns of zeros left of it */
    struct divider by_fetched, by_full_rows, by_samples; /* by_fetched: columns that are fetched */
};

static inline uint32_t planes_cols_a_block(const struct planes *q) {
    return q->col_groups * 32 * PLANES_COLS;
}

static inline uint32_t planes_threads(const struct planes *q) {
    return 32 * q->groups * q->col_groups;
}

static inline uint32_t planes_blocks(const struct planes *q) {
    return q->p.row_tiles * q->p.col_tiles;
}

/* Rows of the largest piece, for any first pixel of a block. */
static inline uint64_t planes_most_rows(const struct planes *q) {
    uint64_t more = planes_cols_a_block(q) - 2; /* pixels after the first two */
    uint64_t rows = more / (uint64_t)q->to.width + 2, samples = more / q->to.pixels + 2;
    if (q->by_row) return rows * (uint64_t)q->p.k;
    if (samples > rows) samples = rows;
    return rows * q->stride + samples * ((uint64_t)q->p.k - q->stride);
}

/* 1 if every piece fits into shared memory, and into the copies that the threads make. */
static inline int planes_fit(const struct planes *q) {
    uint64_t rows = planes_most_rows(q);
    return rows * q->pitch + rows / (uint64_t)q->p.k * q->gap <= PLANES_PIECE &&
           rows * q->by_fetched.d <= (uint64_t)PLANES_FETCH_B * planes_threads(q);
}

/* Numbers columns row by row if that skips at least a fifth of the taps and the pieces fit. */
static inline void planes_count_by_row(struct planes *q, enum product_kind kind) {
    struct planes by_row = *q;
    if (kind != PRODUCT_CONV_DATA || q->p.padding || 5 * q->from.height > 4 * q->to.height) return;
    by_row.by_row = 1;
    by_row.by_samples = divider_of(q->p.cols / q->to.pixels);
    by_row.by_fetched = divider_of((uint32_t)q->from.width);
    by_row.zeros = (uint32_t)q->before;
    by_row.pitch = q->reach;
    /* the next line continues in the next bank */
    by_row.gap = ((uint32_t)q->to.width - (uint32_t)q->p.k * q->reach) % 32;
    if (planes_fit(&by_row)) *q = by_row;
}

/* 1 if these kernels can compute the product; *q then describes how. */
static inline int planes_of(const struct product *p, enum product_kind kind, struct planes *q) {
    struct planes none = ZEROED;
    int forward = kind == PRODUCT_CONV_FORWARD;
    *q = none;
    if ((!forward && kind != PRODUCT_CONV_DATA) || (p->k != 3 && p->k != 5) || p->stride > p->k)
        return 0;
    if (p->rows == 0 || p->cols == 0 || p->depth == 0) return 0;
    q->p = *p;
    q->from = forward ? p->x : p->y;
    q->to = forward ? p->y : p->x;
    q->a_row = forward ? p->depth : p->by_taps.d;
    q->a_channel = forward ? p->by_taps.d : p->rows * p->by_taps.d;
    q->stride = (uint32_t)p->stride;
    q->before = forward ? p->padding : p->k - 1 - p->padding;
    q->reach = (uint32_t)(q->to.width - 1) * q->stride + (uint32_t)p->k;
    q->full_rows = (uint32_t)(q->to.height - 1) * q->stride + (uint32_t)p->k;
    /* 32: the next row continues in the next bank */
    q->pitch = q->stride == 1 ? (uint32_t)q->to.width + 32 : q->reach;
    q->by_fetched = divider_of(q->reach), q->by_full_rows = divider_of(q->full_rows);
    uint32_t groups = product_ceil(p->rows, PLANES_ROWS);
    q->p.row_tiles = product_ceil(groups, PLANES_GROUPS);
    q->groups = product_ceil(groups, q->p.row_tiles);
    q->col_groups = q->groups == 1 ? 4 : q->groups == 2 ? 2 : 1;
    q->p.col_tiles = product_ceil(p->cols, planes_cols_a_block(q));
    q->p.splits = 1;
    planes_count_by_row(q, kind);
    return planes_fit(q);
}

/* 1 if they can, and are expected to be faster than the best tile. Like tile_cost this is an
 * estimate. A multiprocessor issues instructions for 4 warps at once, so warps take turns of 4, and
 * the large tile's block is one turn. 74 % of these kernels' instructions are multiply-adds, and 62
 * % of the large tile's. Always 0 if tensor cores are allowed, since they take every product
 * (product_choose). By rows the taps outside cost nothing. */
static inline int planes_chosen(const struct product *p, enum product_kind kind, int allow_tf32,
                                struct planes *q) {
    enum { WARPS_AT_ONCE = 4 };
    const double speed = 1.2;
    if (allow_tf32 || !planes_of(p, kind, q)) return 0;
    uint64_t blocks = (planes_blocks(q) + MULTIPROCESSORS - 1) / MULTIPROCESSORS;
    uint64_t turns = (blocks * q->groups * q->col_groups + WARPS_AT_ONCE - 1) / WARPS_AT_ONCE;
    double taps = q->by_row ? (double)q->from.height / q->to.height : 1;
    double cost = (double)turns * WARPS_AT_ONCE * PLANES_ROWS * 32 * PLANES_COLS * taps / speed;
    return cost < tile_cost(p, product_choose(p, kind, 0), 0);
}

#endif
