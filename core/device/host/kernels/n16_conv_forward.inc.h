/* Convolution in N16: the forward pass, and what the backward pass to the data shares with it.
 *
 * Where a pixel fills whole vectors and there are few output channels, packing windows would not
 * pay: nothing is padded or repacked. For four output channels, some neighbouring pixels of a row
 * (4 x 7 on AVX-512) stay in registers while the loop over (c, ky, kx) runs. Each step of that loop
 * loads seven input pixels and four weights and does 28 multiply-adds. Otherwise windows are packed
 * (n16_windows.inc.h). Both start with the bias and make one fused multiply-add per (c, ky, kx) in
 * this order. */

enum { FORWARD_CHANNELS = ACCUMULATORS >= 28 ? 4 : 2, FEW_OUTPUTS = 63, BAND_BYTES = 512 << 10 };

/* What a tile works on: a row of FORWARD_CHANNELS output channels. If fewer are left, the last
 * channel is computed again. */
struct direct_row {
    const float *x;                   /* channel 0, the row of pixels of the first row of taps */
    int rows;                         /* of taps */
    const float *w[FORWARD_CHANNELS]; /* of the channel's first tap */
    float *y[FORWARD_CHANNELS],
        start[FORWARD_CHANNELS]; /* each channel's first sum, and its initial value */
    size_t ahead; /* floats to the next row, which is prefetched for storing; 0: none */
};

/* The sums from number `first` on, T of them; the first tap is on pixel `left` of its row. T is a
 * constant where this is inlined. */
INLINE void direct_tile(const struct conv *s, const struct direct_row *r, int first, int left,
                        int step, const int T) {
    vec acc[FORWARD_CHANNELS][TILE_MOST];
    size_t at = (size_t)first * GROUP, next = (size_t)step * GROUP,
           x_plane = plane(s->height, s->width);
    UNROLL for (int i = 0; i < FORWARD_CHANNELS; i++) {
        UNROLL for (int j = 0; j < T; j++) {
            acc[i][j] = splat(r->start[i]);
            __builtin_prefetch(r->y[i] + r->ahead + at + j * GROUP, 1);
        }
    }
    const float *image = r->x;
    size_t channel_tap = 0;
    for (int c = 0; c < s->channels; c++, image += x_plane, channel_tap += s->k * s->k) {
        const float *row = image;
        for (int ky = 0; ky < r->rows; ky++, row += (ptrdiff_t)s->width * GROUP) {
            size_t tap = channel_tap + ky * s->k;
            for (int column = left; column < left + s->k; column++, tap++) {
                vec w[FORWARD_CHANNELS];
                const float *pixels = row + (ptrdiff_t)column * GROUP;
                UNROLL for (int i = 0; i < FORWARD_CHANNELS; i++) w[i] = splat(r->w[i][tap]);
                if (column >= 0 && column + (T - 1) * step < s->width) {
                    UNROLL for (int j = 0; j < T; j++) {
                        vec pixel = load_once(pixels + j * next);
                        UNROLL for (int i = 0; i < FORWARD_CHANNELS; i++) {
                            acc[i][j] = fused(w[i], pixel, acc[i][j]);
                        }
                    }
                } else { /* at the image's edge */
                    UNROLL for (int j = 0; j < T; j++) {
                        if (column + j * step >= 0 && column + j * step < s->width) {
                            vec pixel = load_once(pixels + j * next);
                            UNROLL for (int i = 0; i < FORWARD_CHANNELS; i++) {
                                acc[i][j] = fused(w[i], pixel, acc[i][j]);
                            }
                        }
                    }
                }
            }
        }
    }
    UNROLL for (int i = 0; i < FORWARD_CHANNELS; i++) {
        UNROLL for (int j = 0; j < T; j++) store(r->y[i] + at + j * GROUP, acc[i][j]);
    }
}

#define DIRECT_TILE(T)                                                                       \
    static void direct_tile_##T(const struct conv *s, const struct direct_row *r, int first, \
                                int left) {                                                  \
        if (s->stride == 1)                                                                  \
            direct_tile(s, r, first, left, 1, T);                                            \
        else                                                                                 \
            direct_tile(s, r, first, left, s->stride, T);                                    \
    }
EACH_TILE(DIRECT_TILE)
#define DIRECT_NAME(T) direct_tile_##T,

/* Sets up FORWARD_CHANNELS of `count` channels, from `first` on; w, y and start are those of
 * channel 0. start NULL: 0. */
INLINE void direct_channels(struct direct_row *r, int first, int count, const float *w,
                            size_t filter, float *y, size_t y_plane, const float *start) {
    for (int i = 0; i < FORWARD_CHANNELS; i++) {
        size_t channel = (size_t)(first + i < count ? first + i : count - 1);
        r->w[i] = w + channel * filter;
        r->y[i] = y + channel * y_plane;
        r->start[i] = start ? start[channel] : 0;
    }
}

/* `count` sums; the first tap of the first one is on pixel `left`. */
static void direct_sums(const struct conv *s, const struct direct_row *r, int left, int count) {
    static void (*const tile[])(const struct conv *, const struct direct_row *, int,
                                int) = {NULL, EACH_TILE(DIRECT_NAME)};
    for (int t = 0, tiles = tiles_of(count, TILE_MOST); t < tiles; t++) {
        int j0 = tile_begin(t, tiles, count), j1 = tile_begin(t + 1, tiles, count);
        tile[j1 - j0](s, r, j0, left + j0 * s->stride);
    }
}

/* Computes all output channels for a band of rows before the next band, so that the input rows of a
 * band stay in the second-level cache. */
static void direct_forward(const struct conv *s, const float *x, float *y, const float *bias) {
    size_t row_bytes = (size_t)s->channels * s->width * s->stride * GROUP * 4,
           to_row = (size_t)s->out_width * GROUP, filter = (size_t)s->channels * s->k * s->k;
    int band = row_bytes < BAND_BYTES ? (int)(BAND_BYTES / row_bytes) : 1, k = s->k;
    ptrdiff_t row = (ptrdiff_t)s->width * GROUP;
    for (int p0 = 0; p0 < s->out_height; p0 += band)
        for (int o = 0; o < s->outputs; o += FORWARD_CHANNELS)
            for (int p = p0; p < p0 + band && p < s->out_height; p++) {
                int top = p * s->stride - s->padding, ky = top < 0 ? -top : 0;
                struct direct_row r = {.x = x + (top + ky) * row,
                                       .rows = (top + k > s->height ? s->height - top : k) - ky,
                                       .ahead = p + 1 < s->out_height ? to_row : 0};
                direct_channels(&r, o, s->outputs, s->w + ky * k, filter, y + p * to_row,
                                plane(s->out_height, s->out_width), bias);
                direct_sums(s, &r, -s->padding, s->out_width);
            }
}

static void windows_forward(const struct op_args *a, const struct conv *s) {
    size_t k = (size_t)s->k, line = (size_t)s->out_width * GROUP;
    const struct windows windows = {
        s->out_width, s->k,     s->k,          -s->padding, -s->padding, s->stride,           1,
        s->height,    s->width, {k * k, k, 1}, line,        GROUP,       line * s->out_height};
    int sums = s->channels * s->k * s->k;
    product_run(&(struct product){s->w, tensor_f32(&a->in[2]), tensor_f32(&a->in[0]),
                                  tensor_f32(&a->out[0]), (size_t)sums, 1, s->outputs, sums,
                                  s->groups, (int)windows.y_plane, &windows});
}

/* Runs a forward pass or a backward pass to the data that consists of products of matrices. Returns
 * 0 if the convolution has to be computed directly. */
static int pass_by_products(enum op op, const struct op_args *a, const struct conv *s) {
    enum conv_way way = conv_way(op, a);
    int back = op == OP_CONV2D_BACKWARD_DATA;
    if (way >= WAY_WINOGRAD_2)
        winograd_pass(a, s, way, back);
    else if (s->k == 1 && s->stride == 1 && s->padding == 0)
        product_pass(a, back ? NULL : tensor_f32(&a->in[2]), s->height * s->width, back);
    else
        return 0;
    return 1;
}

static void square_conv_forward(const struct op_args *a) {
    struct conv s = conv_of(a, &a->in[0], &a->out[0]);
    if (pass_by_products(OP_CONV2D_FORWARD, a, &s)) return;
    if (GROUP % WIDE != 0 || s.outputs > FEW_OUTPUTS) {
        windows_forward(a, &s);
        return;
    }
    for (int g = 0; g < s.groups; g++)
        for (int part = 0; part < PARTS; part++)
            direct_forward(&s,
                           tensor_f32(&a->in[0]) + g * s.channels * plane(s.height, s.width) +
                               part * LANES,
                           tensor_f32(&a->out[0]) +
                               g * s.outputs * plane(s.out_height, s.out_width) + part * LANES,
                           tensor_f32(&a->in[2]));
}
