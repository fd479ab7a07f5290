/* Convolution in N16, the forward pass.
 *
 * Nothing is padded or repacked. For four output channels, some neighbouring pixels of a row (4 x 7
 * on AVX-512) stay in registers while the loop over (c, ky, kx) runs. Each step of that loop loads
 * seven input pixels and four weights and does 28 multiply-adds.
 *
 * The lane of a sample takes the bias, then one fused multiply-add per (c, ky, kx) in this order,
 * without the taps outside the picture. Tile, group and lane do not matter, so a sample gets the
 * same bits whichever samples share its batch. */

/* What a tile works on: row p of FORWARD_CHANNELS output channels. If fewer are left, the last
 * channel is computed again. */
struct forward_rows {
    const float *w[FORWARD_CHANNELS]; /* the channel's filter [c][ky][kx] */
    float *y[FORWARD_CHANNELS];       /* row p of the channel */
    float bias[FORWARD_CHANNELS];
    int p;
    size_t ahead; /* floats to the next row, which is prefetched for its stores; 0: none follows */
};

/* Computes pixels q0 .. q0 + T - 1 of these rows. T is a constant where this is inlined. */
INLINE void forward_tile(const struct conv *s, const float *x, const struct forward_rows *rows,
                         int q0, int stride, const int T) {
    vec acc[FORWARD_CHANNELS][TILE_MOST];
    UNROLL for (int i = 0; i < FORWARD_CHANNELS; i++) {
        UNROLL for (int j = 0; j < T; j++) {
            acc[i][j] = splat(rows->bias[i]);
            __builtin_prefetch(rows->y[i] + rows->ahead + (q0 + j) * GROUP, 1);
        }
    }
    size_t step = (size_t)stride * GROUP;
    int k = s->k, width = s->width, top = rows->p * stride - s->padding,
        left = q0 * stride - s->padding;
    int ky_begin = top < 0 ? -top : 0, ky_end = top + k > s->height ? s->height - top : k;
    for (int c = 0; c < s->channels; c++)
        for (int ky = ky_begin; ky < ky_end; ky++) {
            const float *row = x + ((size_t)c * s->height + (top + ky)) * width * GROUP;
            size_t tap = (size_t)(c * k + ky) * k;
            for (int kx = 0; kx < k; kx++, tap++) {
                vec w[FORWARD_CHANNELS];
                UNROLL for (int i = 0; i < FORWARD_CHANNELS; i++) w[i] = splat(rows->w[i][tap]);
                int first = left + kx;
                if (first >= 0 && first + (T - 1) * stride < width) {
                    const float *pixels = row + (ptrdiff_t)first * GROUP;
                    UNROLL for (int j = 0; j < T; j++) {
                        vec pixel = load_once(pixels + j * step);
                        UNROLL for (int i = 0; i < FORWARD_CHANNELS; i++) {
                            acc[i][j] = fused(w[i], pixel, acc[i][j]);
                        }
                    }
                } else { /* the image's edge */
                    UNROLL for (int j = 0; j < T; j++) {
                        int column = first + j * stride;
                        if (column >= 0 && column < width) {
                            vec pixel = load_once(row + column * GROUP);
                            UNROLL for (int i = 0; i < FORWARD_CHANNELS; i++) {
                                acc[i][j] = fused(w[i], pixel, acc[i][j]);
                            }
                        }
                    }
                }
            }
        }
    UNROLL for (int i = 0; i < FORWARD_CHANNELS; i++) {
        UNROLL for (int j = 0; j < T; j++) store(rows->y[i] + (q0 + j) * GROUP, acc[i][j]);
    }
}

typedef void forward_tile_function(const struct conv *, const float *, const struct forward_rows *,
                                   int q0);

#define FORWARD_TILE(T)                                                     \
    static void forward_tile_##T(const struct conv *s, const float *x,      \
                                 const struct forward_rows *rows, int q0) { \
        if (s->stride == 1)                                                 \
            forward_tile(s, x, rows, q0, 1, T);                             \
        else                                                                \
            forward_tile(s, x, rows, q0, s->stride, T);                     \
    }
EACH_TILE(FORWARD_TILE)

#define FORWARD_NAME(T) forward_tile_##T,
static forward_tile_function *const forward_tiles[] = {NULL, EACH_TILE(FORWARD_NAME)};

/* All output channels are computed for a band of rows before the next band, so that the input
 * rows of a band stay in the second-level cache. */
enum { BAND_BYTES = 512 * 1024 };

static void square_conv_forward(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *y = &a->out[0];
    struct conv s = conv_of(a, x, y);
    if (a->scratch && conv_way(OP_CONV2D_FORWARD, a) == WAY_WINOGRAD) {
        winograd_forward(a, &s);
        return;
    }
    if (is_pointwise(&s)) {
        pointwise_forward(a, &s);
        return;
    }
    const float *bias = tensor_f32(&a->in[2]);
    size_t x_group = s.channels * plane(s.height, s.width),
           y_plane = plane(s.out_height, s.out_width);
    size_t filter = (size_t)s.channels * s.k * s.k,
           row_bytes = (size_t)s.channels * s.width * s.stride * GROUP * 4;
    int band = row_bytes < BAND_BYTES ? (int)(BAND_BYTES / row_bytes) : 1;
    int tiles = tiles_of(s.out_width, TILE_MOST);
    for (int g = 0; g < s.groups; g++)
        for (int part = 0; part < PARTS; part++) {
            const float *xg = tensor_f32(x) + g * x_group + part * LANES;
            float *yg = tensor_f32(y) + (size_t)g * s.outputs * y_plane + part * LANES;
            for (int p0 = 0; p0 < s.out_height; p0 += band)
                for (int o = 0; o < s.outputs; o += FORWARD_CHANNELS)
                    for (int p = p0; p < p0 + band && p < s.out_height; p++) {
                        size_t row = (size_t)s.out_width * GROUP;
                        struct forward_rows rows = {.p = p,
                                                    .ahead = p + 1 < s.out_height ? row : 0};
                        for (int i = 0; i < FORWARD_CHANNELS; i++) {
                            int channel = o + i < s.outputs ? o + i : s.outputs - 1;
                            rows.w[i] = s.w + channel * filter;
                            rows.y[i] = yg + channel * y_plane + p * row;
                            rows.bias[i] = bias[channel];
                        }
                        for (int t = 0; t < tiles; t++) {
                            int q0 = tile_begin(t, tiles, s.out_width),
                                q1 = tile_begin(t + 1, tiles, s.out_width);
                            forward_tiles[q1 - q0](&s, xg, &rows, q0);
                        }
                    }
        }
}
