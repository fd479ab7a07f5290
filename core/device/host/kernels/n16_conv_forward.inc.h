/* Convolution in N16, computed directly: the forward pass, and what the backward pass to the data
 * shares with it.
 *
 * Nothing is padded or repacked. For four output channels, some neighbouring pixels of a row (4 x 7
 * on AVX-512) stay in registers while the loop over (c, ky, kx) runs. Each step of that loop loads
 * seven input pixels and four weights and does 28 multiply-adds.
 *
 * The lane of a sample starts with the bias and makes one fused multiply-add per (c, ky, kx) in
 * this order, without the taps outside the image. Tile, group and lane do not matter, so a sample
 * has the same bits whichever samples share its batch. */

/* A pass reads `channels` planes, each through windows of taps. */
struct direct {
    int channels, width;               /* width in pixels of the rows that are read */
    size_t plane;                      /* floats from channel to channel */
    ptrdiff_t row;                     /* floats from one row of taps to the next */
    size_t w_channel, w_row, w_column; /* floats from a tap's weight to the next one's */
    int column;                        /* the next tap is on the next pixel, 1, or the last, -1 */
    int step, apart; /* pixels between the windows of neighbouring sums, and between the sums */
};

/* What a tile works on: a row of FORWARD_CHANNELS output channels. If fewer are left, the last
 * channel is computed again. */
struct direct_row {
    const float *x;                   /* channel 0, the row of pixels of the first row of taps */
    int rows, columns;                /* of taps */
    const float *w[FORWARD_CHANNELS]; /* of the channel's first tap */
    float *y[FORWARD_CHANNELS],
        start[FORWARD_CHANNELS]; /* each channel's first sum, and its initial value */
    size_t ahead; /* floats to the next row, which is prefetched for storing; 0: none */
};

/* The sums from number `first` on, T of them; the first tap is on pixel `left` of its row. T is a
 * constant where this is inlined. */
INLINE void direct_tile(const struct direct *s, const struct direct_row *r, int first, int left,
                        int step, const int T) {
    vec acc[FORWARD_CHANNELS][TILE_MOST];
    size_t apart = (size_t)s->apart * GROUP, at = (size_t)first * apart,
           next = (size_t)step * GROUP;
    UNROLL for (int i = 0; i < FORWARD_CHANNELS; i++) {
        UNROLL for (int j = 0; j < T; j++) {
            acc[i][j] = splat(r->start[i]);
            __builtin_prefetch(r->y[i] + r->ahead + at + j * apart, 1);
        }
    }
    const float *plane = r->x;
    size_t channel_tap = 0;
    for (int c = 0; c < s->channels; c++, plane += s->plane, channel_tap += s->w_channel) {
        const float *row = plane;
        for (int ky = 0; ky < r->rows; ky++, row += s->row) {
            size_t tap = channel_tap + ky * s->w_row;
            int column = left;
            for (int kx = 0; kx < r->columns; kx++, tap += s->w_column, column += s->column) {
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
        UNROLL for (int j = 0; j < T; j++) store(r->y[i] + at + j * apart, acc[i][j]);
    }
}

#define DIRECT_TILE(T)                                                                         \
    static void direct_tile_##T(const struct direct *s, const struct direct_row *r, int first, \
                                int left) {                                                    \
        if (s->step == 1)                                                                      \
            direct_tile(s, r, first, left, 1, T);                                              \
        else                                                                                   \
            direct_tile(s, r, first, left, s->step, T);                                        \
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
static void direct_sums(const struct direct *s, const struct direct_row *r, int left, int count) {
    static void (*const tile[])(const struct direct *, const struct direct_row *, int,
                                int) = {NULL, EACH_TILE(DIRECT_NAME)};
    for (int t = 0, tiles = tiles_of(count, TILE_MOST); t < tiles; t++) {
        int j0 = tile_begin(t, tiles, count), j1 = tile_begin(t + 1, tiles, count);
        tile[j1 - j0](s, r, j0, left + j0 * s->step);
    }
}

/* Computes all output channels for a band of rows before the next band, so that the input rows of a
 * band stay in the second-level cache. */
enum { BAND_BYTES = 512 * 1024 };

static void direct_forward(const struct conv *s, const float *x, float *y, const float *bias) {
    size_t row_bytes = (size_t)s->channels * s->width * s->stride * GROUP * 4,
           to_row = (size_t)s->out_width * GROUP, filter = (size_t)s->channels * s->k * s->k;
    int band = row_bytes < BAND_BYTES ? (int)(BAND_BYTES / row_bytes) : 1, k = s->k;
    ptrdiff_t row = (ptrdiff_t)s->width * GROUP;
    const struct direct d = {
        s->channels, s->width, plane(s->height, s->width), row, (size_t)k * k, (size_t)k, 1, 1,
        s->stride,   1};
    for (int p0 = 0; p0 < s->out_height; p0 += band)
        for (int o = 0; o < s->outputs; o += FORWARD_CHANNELS)
            for (int p = p0; p < p0 + band && p < s->out_height; p++) {
                int top = p * s->stride - s->padding, ky = top < 0 ? -top : 0;
                struct direct_row r = {.x = x + (top + ky) * row,
                                       .rows = (top + k > s->height ? s->height - top : k) - ky,
                                       .columns = k,
                                       .ahead = p + 1 < s->out_height ? to_row : 0};
                direct_channels(&r, o, s->outputs, s->w + ky * k, filter, y + p * to_row,
                                plane(s->out_height, s->out_width), bias);
                direct_sums(&d, &r, -s->padding, s->out_width);
            }
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
    const struct tensor *x = &a->in[0], *y = &a->out[0];
    struct conv s = conv_of(a, x, y);
    if (pass_by_products(OP_CONV2D_FORWARD, a, &s)) return;
    for (int g = 0; g < s.groups; g++)
        for (int part = 0; part < PARTS; part++)
            direct_forward(
                &s, tensor_f32(x) + g * s.channels * plane(s.height, s.width) + part * LANES,
                tensor_f32(y) + g * s.outputs * plane(s.out_height, s.out_width) + part * LANES,
                tensor_f32(&a->in[2]));
}
