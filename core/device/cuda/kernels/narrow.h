/* The weight gradient of a first layer: one channel, filters of 3 x 3, so ten columns (nine taps
 * and the bias) over a depth of every pixel of the batch.
 *
 * A tile of tile.h has at least 32 columns, most of which would be computed for nothing. Here a
 * thread has a column of pixels to itself: for each pixel it reads the nine x under the filter and
 * the dy of five filters, and adds their fifty products to sums that stay in its registers. x and
 * dy are read as they lie in memory; neighbouring threads read neighbours, and the four groups of
 * threads that take different filters meet in the cache. At the end the sums of a group's threads
 * are added through shared memory:
 *
 *     thread t of group g      pixels first + t, first + t + 64, ...     one chain of fmaf each
 *     output (filter, tap)     four chains over the 64 threads, then (0 + 1) + (2 + 3)
 *
 * As in tile.h the depth is cut into splits, whose number follows from the shape alone, and
 * k_add_splits adds them. Whether this kernel is taken follows from the shape of the layer alone
 * too, for its bits are not those of the tiles. */
#ifndef DEVICE_CUDA_KERNELS_NARROW_H
#define DEVICE_CUDA_KERNELS_NARROW_H

#include "device/cuda/kernels/plan.h"

enum {
    NARROW_K = 3,
    NARROW_COLS = NARROW_K * NARROW_K + 1,
    NARROW_ROWS = 5,   /* filters of a thread */
    NARROW_GROUPS = 4, /* groups of threads in a block, each with filters of its own */
    NARROW_LANES = 64, /* threads of a group */
    NARROW_THREADS = NARROW_GROUPS * NARROW_LANES,
    NARROW_SUMS = NARROW_ROWS * NARROW_COLS,
    NARROW_AT_ONCE = 2,                /* pixels of a thread whose loads are under way at once */
    NARROW_PART = NARROW_SUMS / 2,     /* sums of a thread that are added up at a time */
    NARROW_PITCH = NARROW_THREADS + 1, /* neighbouring sums lie in neighbouring banks */
    NARROW_CHAINS = 4,
    NARROW_OUTSIDE = -0x40000000, /* a row that no picture has */
};

struct narrow_shared {
    float sums[NARROW_PART * NARROW_PITCH];
};

static inline int narrow_chosen(const struct product *p, enum product_kind kind, int allow_tf32) {
    return kind == PRODUCT_CONV_WEIGHT && !allow_tf32 && p->x.channels == 1 && p->k == NARROW_K &&
           p->cols == NARROW_COLS && p->rows > 0;
}

/* As product_grid, for these blocks: one for each multiprocessor, so that few splits are left to
 * add. */
static inline void narrow_grid(struct product *p, float *partial, size_t bytes) {
    size_t room = bytes / (sizeof(float) * p->rows * p->cols);
    p->row_tiles = product_ceil(p->rows, NARROW_ROWS * NARROW_GROUPS);
    p->col_tiles = 1;
    uint64_t splits = MULTIPROCESSORS / p->row_tiles;
    if (splits > room) splits = room;
    if (splits > p->depth / NARROW_LANES) splits = p->depth / NARROW_LANES;
    if (splits < 1) splits = 1;
    p->split_depth =
        product_ceil(product_ceil(p->depth, (uint32_t)splits), NARROW_LANES) * NARROW_LANES;
    p->splits = p->depth ? product_ceil(p->depth, p->split_depth) : 1;
    p->partial = p->splits > 1 ? partial : NULL;
    p->by_cols = divider_of(p->cols);
}

/* What a thread reads for pixel d; all zeros if there is no such pixel. */
DUET_HD void narrow_load(const struct product *p, uint32_t row0, uint32_t d, int there, float *x,
                         float *dy) {
    struct depth at = depth_of(PRODUCT_CONV_WEIGHT, p, d);
    if (!there) at.spot.row = NARROW_OUTSIDE; /* so all of x is padding */
    DUET_UNROLL
    for (int i = 0; i < NARROW_COLS - 1; i++) {
        uint32_t ky = (uint32_t)(i / NARROW_K), kx = (uint32_t)(i % NARROW_K);
        struct tap tap = {ky * (uint32_t)p->x.width + kx, (uint16_t)ky, (uint16_t)kx};
        x[i] = entry_load(x_under(p, at.spot, tap));
    }
    x[NARROW_COLS - 1] = 1;
    DUET_UNROLL
    for (uint32_t i = 0; i < NARROW_ROWS; i++) {
        uint32_t from = (at.outer * p->rows + row0 + i) * p->y.pixels + at.rest;
        dy[i] = entry_load(entry_of(p->a, from, there && row0 + i < p->rows));
    }
}

DUET_HD void narrow_add(const float *x, const float *dy, float *acc) {
    DUET_UNROLL
    for (int i = 0; i < NARROW_ROWS; i++) {
        DUET_UNROLL
        for (int j = 0; j < NARROW_COLS; j++)
            acc[i * NARROW_COLS + j] = fmaf(dy[i], x[j], acc[i * NARROW_COLS + j]);
    }
}

/* A thread's pixels of a split. All loads of NARROW_AT_ONCE pixels are under way before the first
 * is used: a multiprocessor has eight warps of this kernel, too few to wait for each other. */
DUET_HD void narrow_pixels(const struct product *p, uint32_t row0, uint32_t first, uint32_t end,
                           float *acc) {
    for (uint32_t d = first; d < end; d += NARROW_AT_ONCE * NARROW_LANES) {
        float x[NARROW_AT_ONCE][NARROW_COLS], dy[NARROW_AT_ONCE][NARROW_ROWS];
        DUET_UNROLL
        for (uint32_t i = 0; i < NARROW_AT_ONCE; i++)
            narrow_load(p, row0, d + i * NARROW_LANES, d + i * NARROW_LANES < end, x[i], dy[i]);
        DUET_UNROLL
        for (int i = 0; i < NARROW_AT_ONCE; i++)
            narrow_add(x[i], dy[i], acc);
    }
}

/* The first NARROW_GROUPS * NARROW_PART threads add up one sum each, of part `part`. */
DUET_HD void narrow_fold(const struct product *p, const struct narrow_shared *shared,
                         uint32_t row_tile, uint32_t split, int part, uint32_t thread) {
    uint32_t group = thread / NARROW_PART, i = thread % NARROW_PART;
    uint32_t sum = (uint32_t)part * NARROW_PART + i, col = sum % NARROW_COLS,
             row = (row_tile * NARROW_GROUPS + group) * NARROW_ROWS + sum / NARROW_COLS;
    const float *from = shared->sums + i * NARROW_PITCH + group * NARROW_LANES;
    float chain[NARROW_CHAINS] = {0, 0, 0, 0};
    if (group >= NARROW_GROUPS || row >= p->rows) return;
    for (int lane = 0; lane < NARROW_LANES; lane += NARROW_CHAINS) {
        DUET_UNROLL
        for (int c = 0; c < NARROW_CHAINS; c++)
            chain[c] += from[lane + c];
    }
    float total = (chain[0] + chain[1]) + (chain[2] + chain[3]);
    if (p->splits == 1)
        store_c(PRODUCT_CONV_WEIGHT, p, row, col, total);
    else
        p->partial[((size_t)split * p->rows + row) * p->cols + col] = total;
}

/* Blocks run over the row tiles first, as in k_product. */
DUET_BLOCK void k_product_narrow(const struct product *p, struct narrow_shared *shared,
                                 struct place at) {
    float acc[STATES][NARROW_SUMS];
    const uint32_t row_tile = at.block % p->row_tiles, split = at.block / p->row_tiles,
                   begin = split * p->split_depth;
    const uint32_t end = p->depth - begin < p->split_depth ? p->depth : begin + p->split_depth;
    BLOCK_PHASE(at) {
        uint32_t group = at.thread / NARROW_LANES,
                 row0 = (row_tile * NARROW_GROUPS + group) * NARROW_ROWS;
        DUET_UNROLL
        for (int i = 0; i < NARROW_SUMS; i++)
            acc[STATE(at)][i] = 0;
        if (row0 < p->rows)
            narrow_pixels(p, row0, begin + at.thread % NARROW_LANES, end, acc[STATE(at)]);
    }
    DUET_UNROLL
    for (int part = 0; part < NARROW_SUMS / NARROW_PART; part++) {
        BLOCK_PHASE(at) {
            DUET_UNROLL
            for (int i = 0; i < NARROW_PART; i++)
                shared->sums[i * NARROW_PITCH + (int)at.thread] =
                    acc[STATE(at)][part * NARROW_PART + i];
        }
        BLOCK_PHASE(at) {
            narrow_fold(p, shared, row_tile, split, part, at.thread);
        }
    }
}

#endif
