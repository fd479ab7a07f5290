/* Convolution in N16, backward to the weights: dw[o][tap] is the sum over samples and pixels of
 * dy[o] * x at that tap. A tap is one (c, ky, kx) of the filter.
 *
 * The register tile is outputs x taps (5 x 5, or 4 x 6 if that wastes less). For each pixel it
 * loads 5 vectors of dy and 5 of x and does 25 multiply-adds; every lane sums its own samples, and
 * the sixteen lanes are added once, at the very end. To keep dy in the first-level cache, several
 * tiles of taps use one band of its rows before the next band; between bands the accumulators of
 * these tiles are kept in `sums`. The pixels of x that the next group will use are prefetched
 * meanwhile, because a channel of a group is too short for the hardware prefetcher.
 *
 * Each lane adds in the order group, row, column, and a launch holds one segment, so the bits
 * depend only on the segment's samples. Padding lanes of dy are exact zeros and add nothing. */

enum { TAP_TILES = 5, OUTPUTS_MOST = 5, TAPS_MOST = 6, WEIGHT_BAND_BYTES = 26 * 1024 };

enum { SUMS_MOST = (OUTPUTS_MOST * TAPS_MOST + GROUP - 1) / GROUP * GROUP }; /* per tile */

/* The sums that the tiles add to: one per output, tap and lane, and one per output and lane. */
struct weight_sums {
    float tap[TAP_TILES][SUMS_MOST][GROUP], bias[OUTPUTS_MOST][GROUP];
};

struct tap {
    int ky, kx;
    ptrdiff_t offset; /* floats from pixel (0, 0) of channel 0 to pixel (ky, kx) of channel c */
};

static const float zero_pixel[GROUP];

/* Adds the products of `count` pixels, which are adjacent in dy and x_step floats apart in x. */
INLINE void weight_pixels(const int OUTPUTS, const int TAPS, vec acc[], const float *dy,
                          size_t dy_plane, const float *const x[], size_t x_step, int count) {
    for (int i = 0; i < count; i++) {
        vec gradient[OUTPUTS_MOST];
        UNROLL for (int o = 0; o < OUTPUTS; o++) gradient[o] = load(dy + o * dy_plane + i * GROUP);
        UNROLL for (int t = 0; t < TAPS; t++) {
            vec pixel = load(x[t] + i * x_step);
            UNROLL for (int o = 0; o < OUTPUTS; o++) {
                acc[o * TAPS + t] = fused(gradient[o], pixel, acc[o * TAPS + t]);
            }
        }
    }
}

/* Adds rows p0 .. p1 - 1 of dy to the sums of one tile of taps. dy begins at the tile's first
 * output. With each row it prefetches `lines` pixels from `ahead` on. */
INLINE void weight_tile(const struct conv *s, const int OUTPUTS, const int TAPS,
                        const struct tap *taps, const float *x, const float *dy, int p0, int p1,
                        float *sums, const float *ahead, int lines) {
    vec acc[OUTPUTS_MOST * TAPS_MOST];
    UNROLL for (int i = 0; i < OUTPUTS * TAPS; i++) acc[i] = load(sums + i * GROUP);
    size_t dy_plane = plane(s->out_height, s->out_width);
    int stride = s->stride, padding = s->padding;
    /* for q_begin <= q < q_end all taps are inside the row */
    int q_begin = (padding + stride - 1) / stride;
    int q_end = s->width + padding >= s->k ? (s->width + padding - s->k) / stride + 1 : 0;
    if (q_end > s->out_width) q_end = s->out_width;
    for (int p = p0; p < p1; p++) {
        prefetch_pixels(ahead, lines);
        ahead += (size_t)lines * GROUP;
        int top = p * stride - padding, inside = top >= 0 && top + s->k <= s->height;
        for (int q = 0; q < s->out_width;) {
            const float *pixel[TAPS_MOST], *gradient = dy + ((size_t)p * s->out_width + q) * GROUP;
            int left = q * stride - padding, run = 1;
            ptrdiff_t corner = ((ptrdiff_t)top * s->width + left) * GROUP;
            if (inside && q >= q_begin && q < q_end) {
                run = q_end - q;
                UNROLL for (int t = 0; t < TAPS; t++) pixel[t] = x + (corner + taps[t].offset);
            } else { /* at the image's edge */
                UNROLL for (int t = 0; t < TAPS; t++) {
                    int h = top + taps[t].ky, column = left + taps[t].kx;
                    int in_picture = h >= 0 && h < s->height && column >= 0 && column < s->width;
                    pixel[t] = in_picture ? x + (corner + taps[t].offset) : zero_pixel;
                }
            }
            weight_pixels(OUTPUTS, TAPS, acc, gradient, dy_plane, pixel, (size_t)stride * GROUP,
                          run);
            q += run;
        }
    }
    UNROLL for (int i = 0; i < OUTPUTS * TAPS; i++) store(sums + i * GROUP, acc[i]);
}

typedef void weight_tile_function(const struct conv *, const struct tap *, const float *x,
                                  const float *dy, int p0, int p1, float *sums, const float *ahead,
                                  int lines);

#define WEIGHT_TILE(OUTPUTS, TAPS)                                                              \
    static void weight_tile_##OUTPUTS##_##TAPS(const struct conv *s, const struct tap *taps,    \
                                               const float *x, const float *dy, int p0, int p1, \
                                               float *sums, const float *ahead, int lines) {    \
        weight_tile(s, OUTPUTS, TAPS, taps, x, dy, p0, p1, sums, ahead, lines);                 \
    }
WEIGHT_TILE(1, 5)
#if ACCUMULATORS >= 28
WEIGHT_TILE(5, 5)
WEIGHT_TILE(4, 6)
#else
WEIGHT_TILE(3, 4)
#endif

/* The available tile shapes; the last one serves any number of outputs. */
static const struct weight_shape {
    int outputs, taps;
    weight_tile_function *run;
} weight_shapes[] = {
#if ACCUMULATORS >= 28
    {5, 5, weight_tile_5_5},
    {4, 6, weight_tile_4_6},
#else
    {3, 4, weight_tile_3_4},
#endif
    {1, 5, weight_tile_1_5},
};

/* The shape that computes the fewest sums, including those past the last tap. It depends only on
 * the sizes. */
static const struct weight_shape *weight_shape_of(int outputs, int taps) {
    const struct weight_shape *best = NULL,
                              *end = weight_shapes + sizeof weight_shapes / sizeof *weight_shapes;
    int64_t least = INT64_MAX;
    for (const struct weight_shape *shape = weight_shapes; shape < end; shape++) {
        int64_t sums = (int64_t)tiles_of(outputs, shape->outputs) * shape->outputs *
                       tiles_of(taps, shape->taps) * shape->taps;
        if (shape->outputs > outputs || (best && (sums >= least || shape->outputs == 1))) continue;
        best = shape;
        least = sums;
    }
    return best;
}

/* Adds `rows` rows of dy to each output's bias sum, in four partial sums per row. Each row is
 * summed separately, because the height of a band depends on the register tile, which differs
 * between instruction sets, and must not change the bits. */
static void bias_rows(int outputs, const float *dy, size_t dy_plane, int rows, int width,
                      float *sums) {
    for (int o = 0; o < outputs; o++)
        for (int p = 0; p < rows; p++) {
            const float *row = dy + o * dy_plane + (size_t)p * width * GROUP;
            vec acc[4] = {load(sums + o * GROUP), splat(0), splat(0), splat(0)};
            int q = 0;
            for (; q + 4 <= width; q += 4) {
                UNROLL for (int j = 0; j < 4; j++) acc[j] += load(row + (q + j) * GROUP);
            }
            for (; q < width; q++)
                acc[0] += load(row + q * GROUP);
            store(sums + o * GROUP, (acc[0] + acc[1]) + (acc[2] + acc[3]));
        }
}

/* Computes only db. */
static void bias_gradient(const struct conv *s, const float *dy, float *db) {
    size_t dy_plane = plane(s->out_height, s->out_width);
    for (int o = 0; o < s->outputs; o++) {
        float sums[GROUP] = {0};
        for (int g = 0; g < s->groups; g++)
            for (int lane = 0; lane < GROUP; lane += LANES)
                bias_rows(1, dy + ((size_t)g * s->outputs + o) * dy_plane + lane, dy_plane,
                          s->out_height, s->out_width, sums + lane);
        db[o] = sum_of_group(sums);
    }
}

/* The tiles of taps that are computed together, and the channels whose pixels they use. */
struct tap_block {
    struct tap taps[TAP_TILES][TAPS_MOST];
    int tiles, channel, channels;
};

/* The taps from number `first` on, out of `all`; if none is left, it repeats the last one. */
static struct tap_block tap_block_of(const struct conv *s, int per_tile, int first, int all) {
    struct tap_block block = {.tiles = tiles_of(all - first, per_tile)};
    int area = s->k * s->k, last = all - 1;
    if (block.tiles > TAP_TILES) block.tiles = TAP_TILES;
    if (first + block.tiles * per_tile <= last) last = first + block.tiles * per_tile - 1;
    block.channel = first / area;
    block.channels = last / area + 1 - block.channel;
    for (int i = 0; i < block.tiles * per_tile; i++) {
        int tap = first + i < all ? first + i : all - 1;
        int c = tap / area, ky = tap / s->k % s->k, kx = tap % s->k;
        ptrdiff_t pixel = ((ptrdiff_t)c * s->height + ky) * s->width + kx;
        block.taps[i / per_tile][i % per_tile] = (struct tap){ky, kx, pixel * GROUP};
    }
    return block;
}

/* Computes the sums for one tile of outputs, from output o on, and a block of taps, over all
 * samples of the segment. */
static void weight_block(const struct conv *s, const struct weight_shape *shape, const float *x,
                         const float *dy, int o, const struct tap_block *block, int with_bias,
                         struct weight_sums *sums) {
    size_t row_bytes = (size_t)shape->outputs * s->out_width * GROUP * sizeof(float),
           dy_plane = plane(s->out_height, s->out_width), x_plane = plane(s->height, s->width);
    int most = row_bytes < WEIGHT_BAND_BYTES ? (int)(WEIGHT_BAND_BYTES / row_bytes) : 1,
        bands = tiles_of(s->out_height, most);
    /* if these are all channels, the next block uses the same ones, which are in the cache */
    int lines = block->channels == s->channels ? 0
                                               : tiles_of(block->channels * s->height * s->width,
                                                          block->tiles * s->out_height * PARTS);
    memset(sums, 0, sizeof *sums);
    for (int g = 0; g < s->groups; g++) {
        const float *xg = x + g * s->channels * x_plane,
                    *dyg = dy + ((size_t)g * s->outputs + o) * dy_plane,
                    *ahead = xg + (s->channels + block->channel) * x_plane;
        if (g + 1 == s->groups) lines = 0;
        for (int b = 0; b < bands; b++) {
            int p0 = tile_begin(b, bands, s->out_height),
                p1 = tile_begin(b + 1, bands, s->out_height);
            for (int lane = 0; lane < GROUP; lane += LANES) {
                for (int t = 0; t < block->tiles; t++, ahead += (p1 - p0) * lines * GROUP)
                    shape->run(s, block->taps[t], xg + lane, dyg + lane, p0, p1,
                               sums->tap[t][0] + lane, ahead, lines);
                if (with_bias)
                    bias_rows(shape->outputs, dyg + (size_t)p0 * s->out_width * GROUP + lane,
                              dy_plane, p1 - p0, s->out_width, sums->bias[0] + lane);
            }
        }
    }
}

/* dw for one tile of taps, `left` of which exist, from the sums of its lanes; the filters are
 * `filter` floats apart. */
static void write_sums(const float *lanes, const struct weight_shape *shape, float *dw, int filter,
                       int left) {
    float sums[SUMS_MOST];
    int taps = shape->taps < left ? shape->taps : left;
    for (int i = 0; i < shape->outputs * shape->taps; i += LANES)
        sums_of_groups(lanes + i * GROUP, sums + i);
    for (int o = 0; o < shape->outputs; o++)
        memcpy(dw + (size_t)o * filter, sums + o * shape->taps, (size_t)taps * sizeof *sums);
}

static void square_conv_backward_weight(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *dy = &a->in[1], *dw = &a->out[0];
    struct conv s = {dy->groups,          x->dims[1],           x->dims[2],  x->dims[3],
                     dy->dims[1],         dy->dims[2],          dy->dims[3], dw->dims[2],
                     a->p.conv.stride[0], a->p.conv.padding[0], NULL};
    enum conv_way way = conv_way(OP_CONV2D_BACKWARD_WEIGHT, a);
    if (way != WAY_DIRECT) {
        if (way == WAY_TRANSPOSED)
            transposed_backward_weight(a, &s);
        else if (way == WAY_WINOGRAD_4)
            winograd_backward_weight(4, a, &s);
        else
            winograd_backward_weight(2, a, &s);
        bias_gradient(&s, tensor_f32(dy), tensor_f32(&a->out[1]));
        return;
    }
    int all = s.channels * s.k * s.k; /* taps of a filter */
    const struct weight_shape *shape = weight_shape_of(s.outputs, all);
    struct weight_sums sums;
    for (int o = 0; o < s.outputs; o += shape->outputs) {
        if (o + shape->outputs > s.outputs)
            o = s.outputs - shape->outputs; /* some outputs are computed a second time */
        for (int first = 0; first < all; first += TAP_TILES * shape->taps) {
            struct tap_block block = tap_block_of(&s, shape->taps, first, all);
            weight_block(&s, shape, tensor_f32(x), tensor_f32(dy), o, &block, first == 0, &sums);
            for (int t = 0, tap = first; t < block.tiles; t++, tap += shape->taps)
                write_sums(sums.tap[t][0], shape, tensor_f32(dw) + (size_t)o * all + tap, all,
                           all - tap);
            for (int j = 0; j < shape->outputs && first == 0; j++)
                tensor_f32(&a->out[1])[o + j] = sum_of_group(sums.bias[j]);
        }
    }
}
