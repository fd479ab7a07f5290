/* Winograd's minimal filtering, backward to the weights. With u, v and m as in
 * n16_winograd.inc.h, and e = A dy AT, the 4 x 4 numbers made of 2 x 2 pixels of dy:
 *
 *     du = sum over samples and tiles of e v, element by element
 *     dw = GT du G
 *
 * At each of the 16 places du is a product of matrices (n16_transposed.inc.h). */

enum { CHANNELS = 16 };

struct winograd_weight {
    const struct conv *conv;
    int tiles_x, tiles;     /* of a row, of the image */
    struct transposed sums; /* v, e and du */
    struct {
        struct winograd_place place;
        const float *x, *dy;   /* channel 0 of the group; the tile's first pixel of output 0 */
        int below, right;      /* 1: the tile has a second row, a second column */
    } tile[TRANSPOSED_PIXELS]; /* of this block */
};

/* v of tile `t` of the block, of CHANNELS channels from c0 on, with channels innermost.
 */
static void winograd_transposed(const struct winograd_weight *s, int t, int c0) {
    const struct conv *conv = s->conv;
    float samples[PLACES][CHANNELS][GROUP]; /* [place][channel][sample] */
    for (int i = 0; i < CHANNELS; i++) {
        int c = c0 + i < conv->channels ? c0 + i : conv->channels - 1;
        const float *pixels = s->tile[t].x + c * plane(conv->height, conv->width);
        for (int lane = 0; lane < GROUP; lane += LANES) {
            vec d[4][4];
            winograd_patch(pixels + lane, conv->width, &s->tile[t].place, d);
            winograd_v(d, &samples[0][i][lane], CHANNELS * GROUP);
        }
    }
    for (int place = 0; place < PLACES; place++) {
        float *to = s->sums.v + place * s->sums.v_step + (size_t)t * GROUP * s->sums.width + c0;
        for (int i = 0; i < CHANNELS; i += LANES)
            for (int lane = 0; lane < GROUP; lane += LANES)
                transpose(&samples[place][i][lane], GROUP, to + lane * s->sums.width + i,
                          s->sums.width);
    }
}

/* e = A dy AT of tile `t` of the block, of output o. */
INLINE void winograd_gradient(const struct winograd_weight *s, int t, int o) {
    size_t row = (size_t)s->conv->out_width * GROUP, step = s->sums.e_step;
    int below = s->tile[t].below, right = s->tile[t].right;
    const float *dy = s->tile[t].dy + o * plane(s->conv->out_height, s->conv->out_width);
    float *e = s->sums.e + ((size_t)o * s->sums.terms + (size_t)t * GROUP);
    for (int lane = 0; lane < GROUP; lane += LANES, dy += LANES, e += LANES) {
        vec none = splat(0), a = load(dy), b = right ? load(dy + GROUP) : none,
            c = below ? load(dy + row) : none, d = below && right ? load(dy + row + GROUP) : none;
        vec top[4] = {a, a + b, a - b, none - b}, bottom[4] = {c, c + d, c - d, none - d};
        UNROLL for (int j = 0; j < 4; j++) {
            store(e + j * step, top[j]);
            store(e + (4 + j) * step, top[j] + bottom[j]);
            store(e + (8 + j) * step, top[j] - bottom[j]);
            store(e + (12 + j) * step, none - bottom[j]);
        }
    }
}

/* The position of tile `t` of the block, which is number `number` over all groups. */
static void winograd_find(struct winograd_weight *s, const struct op_args *a, int t, int number) {
    const struct conv *conv = s->conv;
    int group = number / s->tiles, tile = number % s->tiles, p = tile / s->tiles_x * 2,
        q = tile % s->tiles_x * 2;
    s->tile[t].place =
        winograd_place(conv->height, conv->width, p - conv->padding, q - conv->padding);
    s->tile[t].x =
        tensor_f32(&a->in[0]) + group * conv->channels * plane(conv->height, conv->width);
    s->tile[t].dy = tensor_f32(&a->in[1]) +
                    group * conv->outputs * plane(conv->out_height, conv->out_width) +
                    ((size_t)p * conv->out_width + q) * GROUP;
    s->tile[t].below = p + 1 < conv->out_height;
    s->tile[t].right = q + 1 < conv->out_width;
}

INLINE void winograd_gt(const vec u[4], vec out[3]) {
    vec half = splat(0.5f), sum = (u[1] + u[2]) * half;
    out[0] = u[0] + sum;
    out[1] = (u[1] - u[2]) * half;
    out[2] = sum + u[3];
}

/* dw = GT du G, LANES filters at a time. */
static void winograd_filter_gradients(const struct winograd_weight *s, float *dw) {
    int channels = s->conv->channels, outputs = s->conv->outputs;
    for (int o = 0; o < outputs; o++)
        for (int c = 0; c < channels; c += LANES) {
            vec rows[3][4], out[3][3];
            UNROLL for (int j = 0; j < 4; j++) {
                vec column[4], made[3];
                UNROLL for (int i = 0; i < 4; i++) column[i] =
                    load(s->sums.du + (4 * i + j) * s->sums.du_step + o * s->sums.width + c);
                winograd_gt(column, made);
                UNROLL for (int i = 0; i < 3; i++) rows[i][j] = made[i];
            }
            UNROLL for (int i = 0; i < 3; i++) winograd_gt(rows[i], out[i]);
            for (int lane = 0; lane < LANES && c + lane < channels; lane++)
                for (int tap = 0; tap < 9; tap++)
                    dw[((size_t)o * channels + c + lane) * 9 + tap] = out[tap / 3][tap % 3][lane];
        }
}

/* Channel by channel, since the tiles of a block are side by side in each. */
static void winograd_backward_weight(const struct op_args *a, const struct conv *conv) {
    struct winograd_weight s = {.conv = conv};
    s.sums = transposed_of(conv, PLACES, PLACES, a->scratch);
    s.tiles_x = (conv->out_width + 1) / 2;
    s.tiles = s.tiles_x * ((conv->out_height + 1) / 2);
    for (int first = 0, all = conv->groups * s.tiles; first < all; first += TRANSPOSED_PIXELS) {
        int count = all - first < TRANSPOSED_PIXELS ? all - first : TRANSPOSED_PIXELS;
        s.sums.terms = count * GROUP;
        for (int t = 0; t < count; t++)
            winograd_find(&s, a, t, first + t);
        for (int c = 0; c < conv->channels; c += CHANNELS)
            for (int t = 0; t < count; t++)
                winograd_transposed(&s, t, c);
        for (int o = 0; o < conv->outputs; o++)
            for (int t = 0; t < count; t++)
                winograd_gradient(&s, t, o);
        transposed_products(&s.sums);
    }
    winograd_filter_gradients(&s, tensor_f32(&a->out[0]));
}
