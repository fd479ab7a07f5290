/* Convolution in N16: what all three passes share, and forward.
 *
 * One vector is one pixel of 16 samples, so a weight is a single number broadcast to all lanes, no channel count and no
 * picture width has to be a multiple of anything, and nothing is padded or repacked. Speed comes from
 * the register tile: two output channels of a stretch of one row stay in registers (2 x 9 for a row of 9) while the
 * loop over (c, ky, kx) runs; each step loads the input pixels once and two weights, and does 2 x 9 multiply-adds.
 *
 * A sample's lane sees: the bias, then one fused multiply-add per (c, ky, kx) in this order, taps outside the
 * picture left out. Neither tile nor group nor lane enters that, so a sample has the same bits in any company. */

struct conv {
    int groups, channels, height, width, outputs, out_height, out_width, k, stride, padding;
    const float *w;
};

INLINE struct conv conv_of(const struct op_args *a, const struct tensor *x, const struct tensor *y) {
    return (struct conv){y->groups, x->dims[1], x->dims[2], x->dims[3], y->dims[1], y->dims[2], y->dims[3],
                         a->in[1].dims[2], a->p.conv.stride, a->p.conv.padding, tensor_f32(&a->in[1])};
}

INLINE size_t plane(int height, int width) {
    return (size_t)height * width * GROUP;
}

/* How many tiles of at most `most` pixels a row takes, and where tile i begins when they are as equal as can be. */
INLINE int tiles_of(int width, int most) {
    return (width + most - 1) / most;
}

INLINE int tile_begin(int i, int tiles, int width) {
    return (int)((int64_t)i * width / tiles);
}

enum { FORWARD_TILE_MOST = ACCUMULATORS / 2 };

/* Pixels q0 .. q0 + T - 1 of row p, of the two channels whose weights, biases and output rows are given. */
INLINE void forward_tile(const struct conv *s, const float *x, const float *const w[2], const float bias[2],
                         float *const y[2], int p, int q0, int stride, const int T) {
    vec acc[2][FORWARD_TILE_MOST];
    UNROLL for (int j = 0; j < T; j++) {
        acc[0][j] = splat(bias[0]);
        acc[1][j] = splat(bias[1]);
    }
    int k = s->k, width = s->width, top = p * stride - s->padding, left = q0 * stride - s->padding;
    int ky_begin = top < 0 ? -top : 0, ky_end = top + k > s->height ? s->height - top : k;
    for (int c = 0; c < s->channels; c++)
        for (int ky = ky_begin; ky < ky_end; ky++) {
            const float *row = x + ((size_t)c * s->height + (top + ky)) * width * GROUP;
            size_t tap = (size_t)(c * k + ky) * k;
            for (int kx = 0; kx < k; kx++, tap++) {
                vec w0 = splat(w[0][tap]), w1 = splat(w[1][tap]);
                int first = left + kx;
                if (first >= 0 && first + (T - 1) * stride < width) {
                    UNROLL for (int j = 0; j < T; j++) {
                        vec pixel = load(row + (first + j * stride) * GROUP);
                        acc[0][j] = fused(w0, pixel, acc[0][j]);
                        acc[1][j] = fused(w1, pixel, acc[1][j]);
                    }
                } else { /* the picture's edge */
                    UNROLL for (int j = 0; j < T; j++) {
                        int column = first + j * stride;
                        if (column >= 0 && column < width) {
                            vec pixel = load(row + column * GROUP);
                            acc[0][j] = fused(w0, pixel, acc[0][j]);
                            acc[1][j] = fused(w1, pixel, acc[1][j]);
                        }
                    }
                }
            }
        }
    UNROLL for (int j = 0; j < T; j++) {
        store(y[0] + (q0 + j) * GROUP, acc[0][j]);
        store(y[1] + (q0 + j) * GROUP, acc[1][j]);
    }
}

typedef void forward_tile_function(const struct conv *, const float *, const float *const[2], const float[2],
                                   float *const[2], int p, int q0);

#define FORWARD_TILE(T)                                                                                          \
    static void forward_tile_##T(const struct conv *s, const float *x, const float *const w[2],                  \
                                 const float bias[2], float *const y[2], int p, int q0) {                        \
        if (s->stride == 1) forward_tile(s, x, w, bias, y, p, q0, 1, T);                                         \
        else forward_tile(s, x, w, bias, y, p, q0, s->stride, T);                                                \
    }
FORWARD_TILE(1) FORWARD_TILE(2) FORWARD_TILE(3) FORWARD_TILE(4) FORWARD_TILE(5) FORWARD_TILE(6)
#if ACCUMULATORS >= 28
FORWARD_TILE(7) FORWARD_TILE(8) FORWARD_TILE(9) FORWARD_TILE(10) FORWARD_TILE(11) FORWARD_TILE(12) FORWARD_TILE(13)
FORWARD_TILE(14)
#endif

static forward_tile_function *const forward_tiles[FORWARD_TILE_MOST + 1] = {
    NULL, forward_tile_1, forward_tile_2, forward_tile_3, forward_tile_4, forward_tile_5, forward_tile_6,
#if ACCUMULATORS >= 28
    forward_tile_7, forward_tile_8, forward_tile_9, forward_tile_10, forward_tile_11, forward_tile_12,
    forward_tile_13, forward_tile_14,
#endif
};

/* Where the picture of a group is larger than the second-level cache, the walk goes in bands of rows that fit. */
enum { BAND_BYTES = 512 * 1024 };

static void n16_conv2d_forward(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *y = &a->out[0];
    if (y->layout == LAYOUT_PLAIN) {
        reference_conv2d_forward(a);
        return;
    }
    struct conv s = conv_of(a, x, y);
    const float *bias = tensor_f32(&a->in[2]);
    size_t x_group = s.channels * plane(s.height, s.width), y_plane = plane(s.out_height, s.out_width);
    size_t filter = (size_t)s.channels * s.k * s.k, row_bytes = (size_t)s.channels * s.width * s.stride * GROUP * 4;
    int band = row_bytes < BAND_BYTES ? (int)(BAND_BYTES / row_bytes) : 1;
    int tiles = tiles_of(s.out_width, FORWARD_TILE_MOST);
    for (int g = 0; g < s.groups; g++)
        for (int part = 0; part < PARTS; part++) {
            const float *xg = tensor_f32(x) + g * x_group + part * LANES;
            float *yg = tensor_f32(y) + (size_t)g * s.outputs * y_plane + part * LANES;
            for (int p0 = 0; p0 < s.out_height; p0 += band)
                for (int o = 0; o < s.outputs; o += 2)
                    for (int p = p0; p < p0 + band && p < s.out_height; p++) {
                        int o1 = o + 1 < s.outputs ? o + 1 : o; /* an odd channel is computed twice over */
                        size_t row = (size_t)p * s.out_width * GROUP;
                        const float *w[2] = {s.w + o * filter, s.w + o1 * filter};
                        float b[2] = {bias[o], bias[o1]}, *out[2] = {yg + o * y_plane + row, yg + o1 * y_plane + row};
                        for (int t = 0; t < tiles; t++) {
                            int q0 = tile_begin(t, tiles, s.out_width), q1 = tile_begin(t + 1, tiles, s.out_width);
                            forward_tiles[q1 - q0](&s, xg, w, b, out, p, q0);
                        }
                    }
        }
}
