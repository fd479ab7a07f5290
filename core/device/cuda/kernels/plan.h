/* Maps a product (product.h) to a GPU: it chooses the tile, the number of blocks, and the number of
 * splits of the depth. All of it depends on the shape and on constants, never on the present GPU or
 * a timing, so the same shape is always computed in the same way. Only the splits affect the bits,
 * because they cut the chain of a sum.
 *
 * The model: the MULTIPROCESSORS blocks of a wave run at once, and a block's time is its area
 * divided by the speed of its tile, relative to the large tile. The small ones read shared memory
 * more often per multiply-add, and the wide one spends more of its instructions on finding b. The
 * numbers are estimates. */
#ifndef DEVICE_CUDA_KERNELS_PLAN_H
#define DEVICE_CUDA_KERNELS_PLAN_H

#include "device/cuda/kernels/tile.h"

enum {
    MULTIPROCESSORS = 132, /* as on an H100 or H200, but constant on every GPU, see above */
    BLOCKS_WANTED = 2 * MULTIPROCESSORS,
    SPLIT_DEPTH = 64, /* least depth of a split, which keeps adding the splits cheap */
    TF32_CHANNELS = 64,
};

/* 1 if a product that may use tensor cores does so. For a convolution their tile needs many input
 * and output channels. On an H200 --tf32 made a step of LeNet (1, 20 and 50 channels) take 1.5
 * times as long and a step of convnet (1, 16, 32) 1.7 times, but sped up ResNet-18 (64 to 512) 1.5
 * times. The choice never depends on the number of samples; see product_choose. */
static inline int tf32_pays(const struct product *p, enum product_kind kind) {
    return kind >= PRODUCT_LINEAR_KK ||
           (p->x.channels >= TF32_CHANNELS && p->y.channels >= TF32_CHANNELS);
}

static inline double tile_speed(enum tile tile) {
    switch (tile) {
    case TILE_LARGE: return 1;
    case TILE_WIDE: return .7;
    case TILE_MEDIUM: return .6;
    default: return .25;
    }
}

/* count / per, rounded up. */
static inline uint32_t product_ceil(uint32_t count, uint32_t per) {
    return count / per + (count % per != 0);
}

/* Blocks over rows and columns, if the depth is not split. */
static inline uint64_t tile_blocks(const struct product *p, enum tile tile) {
    return (uint64_t)product_ceil(p->rows, (uint32_t)tile_rows(tile)) *
           product_ceil(p->cols, (uint32_t)tile_cols(tile));
}

/* The estimated time. If the depth may be split (`deep`), any number of blocks is possible, so only
 * the area counts. */
static inline double tile_cost(const struct product *p, enum tile tile, int deep) {
    uint64_t blocks = tile_blocks(p, tile),
             waves = (blocks + MULTIPROCESSORS - 1) / MULTIPROCESSORS;
    return (double)(deep ? blocks : waves) * tile_rows(tile) * tile_cols(tile) / tile_speed(tile);
}

/* The wide tile is for convolutions with few channels. Other kinds of product do not have it, which
 * saves a kernel for each kind. */
static inline int tile_fits(enum product_kind kind, enum tile tile) {
    return tile != TILE_WIDE || b_takes_taps(kind);
}

/* 1 for weight gradients. Their depth runs over all samples, so it may be split. */
static inline int product_is_deep(enum product_kind kind) {
    return kind == PRODUCT_CONV_WEIGHT || kind == PRODUCT_LINEAR_RC;
}

/* The choice may depend on the number of samples, because the four tiles have the same bits. Tensor
 * cores give different bits. So, if allowed, they compute all calls of a layer or none, and the
 * bits of a sample do not depend on how many samples share the call. */
static inline enum tile product_choose(const struct product *p, enum product_kind kind,
                                       int allow_tf32) {
    enum tile best = TILE_LARGE;
    int deep = product_is_deep(kind);
    if (allow_tf32) return TILE_TF32;
    for (int tile = TILE_LARGE + 1; tile < TILE_TF32; tile++)
        if (tile_fits(kind, (enum tile)tile) &&
            tile_cost(p, (enum tile)tile, deep) < tile_cost(p, best, deep))
            best = (enum tile)tile;
    return best;
}

/* Fills in the grid of *p. `partial` has `bytes` bytes for the sums of splits. The number of splits
 * depends on `bytes`, which is the same constant on every GPU. */
static inline void product_grid(struct product *p, enum product_kind kind, enum tile tile,
                                float *partial, size_t bytes) {
    p->row_tiles = product_ceil(p->rows, (uint32_t)tile_rows(tile));
    p->col_tiles = product_ceil(p->cols, (uint32_t)tile_cols(tile));
    uint64_t tiles = tile_blocks(p, tile), splits = 1, room;
    if (product_is_deep(kind) && tiles && p->depth) {
        splits = BLOCKS_WANTED / tiles;
        room = bytes / (sizeof(float) * (size_t)p->rows * p->cols);
        if (splits > room) splits = room;
        if (splits > p->depth / SPLIT_DEPTH) splits = p->depth / SPLIT_DEPTH;
        if (splits < 1) splits = 1;
    }
    uint32_t slab = (uint32_t)tile_slab(tile);
    p->split_depth = product_ceil(product_ceil(p->depth, (uint32_t)splits), slab) * slab;
    p->splits = p->depth ? product_ceil(p->depth, p->split_depth) : 1;
    p->partial = p->splits > 1 ? partial : NULL;
    p->by_cols = divider_of(p->cols ? p->cols : 1);
}

#endif
