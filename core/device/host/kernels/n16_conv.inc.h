/* The parts that the passes of convolution in N16 share.
 *
 * One vector is one pixel of a group, so a weight is a single number broadcast to all lanes.
 * Channel counts and image widths need not be a multiple of any number. The speed comes from
 * register tiles: sums of several channels at several pixels stay in registers while a loop over
 * the terms runs. 3 x 3 filters with many channels use Winograd's minimal filtering
 * (n16_winograd.inc.h), 1 x 1 filters are a matrix product (n16_product.inc.h), and all others are
 * computed directly (n16_conv_forward.inc.h, n16_windows.inc.h). */

struct conv {
    int groups, channels, height, width, outputs, out_height, out_width, k, stride, padding;
    const float *w;
};

INLINE struct conv conv_of(const struct op_args *a, const struct tensor *x,
                           const struct tensor *y) {
    return (struct conv){
        y->groups,           x->dims[1],           x->dims[2],           x->dims[3],
        y->dims[1],          y->dims[2],           y->dims[3],           a->in[1].dims[2],
        a->p.conv.stride[0], a->p.conv.padding[0], tensor_f32(&a->in[1])};
}

/* Floats in one channel of a group. */
INLINE size_t plane(int height, int width) {
    return (size_t)height * width * GROUP;
}

/* tiles_of returns the number of tiles of at most `most` pixels in a row of `width`. tile_begin
 * returns the first pixel of tile i, if all tiles are as equal as possible. */
INLINE int tiles_of(int width, int most) {
    return (width + most - 1) / most;
}

INLINE int tile_begin(int i, int tiles, int width) {
    return (int)((int64_t)i * width / tiles);
}

/* Prefetches `count` pixels from `pixels` on into the second-level cache. */
INLINE void prefetch_pixels(const float *pixels, int count) {
    for (int i = 0; i < count; i += 16 / GROUP, pixels += 16)
        __builtin_prefetch(pixels, 0, 2);
}

/* The same for one of `shares` equal shares of *lines pixels. Returns the start of the rest, and
 * sets *lines to its length. */
INLINE const float *prefetch_share(const float *pixels, int *lines, int shares) {
    int share = *lines / shares;
    prefetch_pixels(pixels, share);
    *lines -= share;
    return pixels + (size_t)share * GROUP;
}

/* The TILE_MOST tile sizes that the registers allow. */
#define EACH_OF_SIX(TILE) TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)
#if ACCUMULATORS >= 28
#define EACH_TILE(TILE) EACH_OF_SIX(TILE) TILE(7)
enum { TILE_MOST = 7 };
#else
#define EACH_TILE EACH_OF_SIX
enum { TILE_MOST = 6 };
#endif
