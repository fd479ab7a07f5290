/* Convolution in N16, backward to the data:
 *
 *     dx[c][p*s - pad + ky][q*s - pad + kx] += w[o][c][ky][kx] * dy[o][p][q]
 *
 * With stride 1 and the common filter widths K, the accumulators are some neighbouring pixels of a
 * row of dx. Each pixel of dy is loaded once and added to the K accumulators that its K taps
 * reach. T pixels of dy reach T + K - 1 pixels of dx; the last K - 1 are passed to the next tile
 * through memory. All other shapes are products of windows (n16_windows.inc.h).
 *
 * The order in which a pixel's terms are added depends only on the shape, so a sample has the same
 * bits whichever samples share its batch. */

#if ACCUMULATORS >= 28
#define DATA_CHANNELS 2
#else
#define DATA_CHANNELS 1
#endif

/* Pixels of dx in the largest tile for a filter width. */
enum { DATA_TILE_MOST = 13 };

/* Adds the contribution of pixels q0 .. q0 + T - 1, in the rows of dy that reach row h of dx, to
 * that row in DATA_CHANNELS channels, whose filters begin at w_offset. */
INLINE void data_tile(const struct conv *s, const float *dy, const size_t w_offset[],
                      float *const dx[], int h, int q0, const int K, const int T) {
    vec acc[DATA_CHANNELS][DATA_TILE_MOST];
    int left = q0 - s->padding; /* column of the first accumulator */
    UNROLL for (int i = 0; i < DATA_CHANNELS; i++) {
        UNROLL for (int j = 0; j < T + K - 1; j++) {
            acc[i][j] = splat(0);
            if (PARTS == 1) /* for the stores at the end */
                __builtin_prefetch(dx[i] + (left + j) * GROUP, 1);
        }
        if (q0 > 0) {
            UNROLL for (int j = 0; j < K - 1; j++) {
                if (left + j >= 0 && left + j < s->width)
                    acc[i][j] = load(dx[i] + (left + j) * GROUP);
            }
        }
    }
    size_t dy_plane = plane(s->out_height, s->out_width), filter = (size_t)s->channels * K * K;
    int top = h + s->padding; /* tap ky comes from row top - ky of dy */
    int ky_begin = top >= s->out_height ? top - s->out_height + 1 : 0,
        ky_end = top < K ? top + 1 : K;
    for (int o = 0; o < s->outputs; o++)
        for (int ky = ky_begin; ky < ky_end; ky++) {
            const float *row = dy + o * dy_plane + ((size_t)(top - ky) * s->out_width + q0) * GROUP;
            const float *w = s->w + o * filter + (size_t)ky * K;
            UNROLL for (int kx = 0; kx < K; kx++) {
                vec weight[DATA_CHANNELS];
                UNROLL for (int i = 0; i < DATA_CHANNELS; i++) weight[i] =
                    splat(w[w_offset[i] + kx]);
                UNROLL for (int j = 0; j < T; j++) {
                    vec pixel = load(row + j * GROUP);
                    UNROLL for (int i = 0; i < DATA_CHANNELS; i++) {
                        acc[i][j + kx] = fused(weight[i], pixel, acc[i][j + kx]);
                    }
                }
            }
        }
    UNROLL for (int i = 0; i < DATA_CHANNELS; i++) {
        UNROLL for (int j = 0; j < T + K - 1; j++) {
            if (left + j >= 0 && left + j < s->width) store(dx[i] + (left + j) * GROUP, acc[i][j]);
        }
    }
}

typedef void data_tile_function(const struct conv *, const float *, const size_t[], float *const[],
                                int h, int q0);

#define DATA_TILE(K, T)                                                                          \
    static void data_tile_##K##_##T(const struct conv *s, const float *dy,                       \
                                    const size_t w_offset[], float *const dx[], int h, int q0) { \
        data_tile(s, dy, w_offset, dx, h, q0, K, T);                                             \
    }
#define DATA_NAME(K, T) data_tile_##K##_##T,
#define EACH_TO_NINE(TILE, K) \
    TILE(K, 1)                \
    TILE(K, 2) TILE(K, 3) TILE(K, 4) TILE(K, 5) TILE(K, 6) TILE(K, 7) TILE(K, 8) TILE(K, 9)
#define EACH_OF_3(TILE) EACH_TO_NINE(TILE, 3) TILE(3, 10) TILE(3, 11)
EACH_OF_3(DATA_TILE)
EACH_TO_NINE(DATA_TILE, 5)

/* The tiles for filter width K, by T; T + K - 1 is at most DATA_TILE_MOST. */
static data_tile_function *const data_tiles_3[] = {NULL, EACH_OF_3(DATA_NAME)};
static data_tile_function *const data_tiles_5[] = {NULL, EACH_TO_NINE(DATA_NAME, 5)};

/* dx for one part of a group. If fewer than DATA_CHANNELS are left, the last channel is computed
 * again. Meanwhile it prefetches the `lines` pixels of dy from `ahead` on for the next group. In
 * this pass only AVX-512 prefetches, since narrower vectors take so long for a pixel that they
 * never wait for the next one. */
static void data_by_tiles(const struct conv *s, const float *dy, float *dx,
                          data_tile_function *const *tile, int most, const float *ahead,
                          int lines) {
    int tiles = tiles_of(s->out_width, most);
    int rows_left = tiles_of(s->channels, DATA_CHANNELS) * s->height;
    for (int c = 0; c < s->channels; c += DATA_CHANNELS)
        for (int h = 0; h < s->height; h++, rows_left--) {
            ahead = prefetch_share(ahead, &lines, rows_left);
            size_t w_offset[DATA_CHANNELS];
            float *rows[DATA_CHANNELS];
            for (int i = 0; i < DATA_CHANNELS; i++) {
                int channel = c + i < s->channels ? c + i : s->channels - 1;
                w_offset[i] = (size_t)channel * s->k * s->k;
                rows[i] = dx + channel * plane(s->height, s->width) + (size_t)h * s->width * GROUP;
            }
            for (int t = 0; t < tiles; t++) {
                int q0 = tile_begin(t, tiles, s->out_width),
                    q1 = tile_begin(t + 1, tiles, s->out_width);
                tile[q1 - q0](s, dy, w_offset, rows, h, q0);
            }
        }
}

/* For any stride and any filter: the pixels of dx that are `stride` rows and columns apart are
 * windows on dy, which the same taps reach. The first tap comes from pixel (h + padding) / stride
 * of dy, the next one, ky + stride, from the pixel before. */
static void data_by_windows(const struct conv *s, const float *dy, float *dx) {
    int k = s->k, stride = s->stride;
    size_t line = (size_t)s->width * GROUP, filter = (size_t)k * k;
    for (int h = 0; h < stride && h < s->height; h++)
        for (int w = 0; w < stride && w < s->width; w++) {
            int top = h + s->padding, left = w + s->padding, ky = top % stride, kx = left % stride;
            const struct windows windows = {
                .across = tiles_of(s->width - w, stride),
                .rows = tiles_of(k - ky, stride), /* 0 if ky is past the filter */
                .columns = tiles_of(k - kx, stride),
                .top = top / stride,
                .left = left / stride,
                .step = 1,
                .next = -1,
                .height = s->out_height,
                .width = s->out_width,
                .w = {s->channels * filter, (size_t)stride * k, (size_t)stride},
                .y_line = stride * line,
                .y_apart = (size_t)stride * GROUP,
                .y_plane = line * s->height};
            float *y = dx + h * line + (size_t)w * GROUP;
            int pixels = windows.across * tiles_of(s->height - h, stride);
            product_run(&(struct product){s->w + ky * k + kx, NULL, dy, y, filter, 1, s->channels,
                                          s->outputs * windows.rows * windows.columns, s->groups,
                                          pixels * GROUP, &windows});
        }
}

static void square_conv_backward_data(const struct op_args *a) {
    const struct tensor *dy = &a->in[0], *dx = &a->out[0];
    struct conv s = conv_of(a, dx, dy);
    if (pass_by_products(OP_CONV2D_BACKWARD_DATA, a, &s)) return;
    /* A row of one tile adds in the same order. Small tiles have too few sums to be fast. */
    int one_tile = s.out_width + s.k - 1 <= DATA_TILE_MOST && (GROUP < WIDE || s.out_width <= 4);
    if (s.stride > 1 || (s.k != 3 && s.k != 5) || one_tile) {
        data_by_windows(&s, tensor_f32(dy), tensor_f32(dx));
        return;
    }
    size_t dy_group = s.outputs * plane(s.out_height, s.out_width);
    for (int g = 0; g < s.groups; g++)
        for (int part = 0; part < PARTS; part++) {
            const float *from = tensor_f32(dy) + g * dy_group + part * LANES;
            float *to = tensor_f32(dx) + g * s.channels * plane(s.height, s.width) + part * LANES;
            const float *ahead = from + dy_group;
            int lines = PARTS == 1 && g + 1 < s.groups ? (int)(dy_group / GROUP) : 0;
            data_by_tiles(&s, from, to, s.k == 3 ? data_tiles_3 : data_tiles_5,
                          DATA_TILE_MOST + 1 - s.k, ahead, lines);
        }
}
