/* Winograd's minimal filtering, backward to the weights. With u, v and m as in
 * n16_winograd.inc.h, and e = A dy AT, the S x S numbers made of M x M pixels of dy:
 *
 *     du = sum over samples and tiles of e v, element by element
 *     dw = GT du G
 *
 * At each of the S x S positions du is a product of matrices (n16_transposed.inc.h). */

enum { CHANNELS = 16 };

struct winograd_weight {
    const struct conv *conv;
    int size;               /* M */
    int tiles_x, tiles;     /* of a row, of the image */
    struct transposed sums; /* v, e and du */
    struct {
        struct winograd_position position;
        const float *x, *dy;   /* channel 0 of the group; the tile's first pixel of output 0 */
        int height, width;     /* size of the part of the tile inside the image */
    } tile[TRANSPOSED_PIXELS]; /* of this block */
};

/* v of tile `t` of the block, of CHANNELS channels from c0 on, with channels innermost. */
INLINE void winograd_transposed(const int M, const struct winograd_weight *s, int t, int c0) {
    const struct conv *conv = s->conv;
    float samples[(M + 2) * (M + 2)][CHANNELS][GROUP]; /* [position][channel][sample] */
    for (int i = 0; i < CHANNELS; i++) {
        int c = c0 + i < conv->channels ? c0 + i : conv->channels - 1;
        const float *pixels = s->tile[t].x + c * plane(conv->height, conv->width);
        for (int lane = 0; lane < GROUP; lane += LANES) {
            vec d[6][6];
            winograd_patch(M + 2, pixels + lane, conv->width, &s->tile[t].position, d);
            winograd_v(M, d, &samples[0][i][lane], CHANNELS * GROUP);
        }
    }
    for (int position = 0; position < (M + 2) * (M + 2); position++) {
        float *to = s->sums.v + position * s->sums.v_step + (size_t)t * GROUP * s->sums.width + c0;
        for (int i = 0; i < CHANNELS; i += LANES)
            for (int lane = 0; lane < GROUP; lane += LANES)
                transpose(&samples[position][i][lane], GROUP, to + lane * s->sums.width + i,
                          s->sums.width);
    }
}

/* e = A dy AT of tile `t` of the block, of output o; dy is 0 outside the image. */
INLINE void winograd_gradient(const int M, const struct winograd_weight *s, int t, int o) {
    size_t row = (size_t)s->conv->out_width * GROUP, step = s->sums.e_step;
    const float *dy = s->tile[t].dy + o * plane(s->conv->out_height, s->conv->out_width);
    float *e = s->sums.e + ((size_t)o * s->sums.terms + (size_t)t * GROUP);
    for (int lane = 0; lane < GROUP; lane += LANES, dy += LANES, e += LANES) {
        vec columns[4][6];
        UNROLL for (int j = 0; j < M; j++) {
            vec column[4];
            UNROLL for (int i = 0; i < M; i++) {
                column[i] = splat(0);
                if (i < s->tile[t].height && j < s->tile[t].width)
                    column[i] = load(dy + i * row + j * GROUP);
            }
            winograd_values(M, winograd_a, M, column, columns[j]);
        }
        UNROLL for (int i = 0; i < M + 2; i++) {
            vec line[4], out[6];
            UNROLL for (int j = 0; j < M; j++) line[j] = columns[j][i];
            winograd_values(M, winograd_a, M, line, out);
            UNROLL for (int j = 0; j < M + 2; j++) store(e + ((M + 2) * i + j) * step, out[j]);
        }
    }
}

/* Finds tile `t` of the block, which has number `number` among those of all groups. */
static void winograd_find(struct winograd_weight *s, const struct op_args *a, int t, int number) {
    const struct conv *conv = s->conv;
    int group = number / s->tiles, tile = number % s->tiles, p = tile / s->tiles_x * s->size,
        q = tile % s->tiles_x * s->size;
    s->tile[t].position = winograd_position(s->size + 2, conv->height, conv->width,
                                            p - conv->padding, q - conv->padding);
    s->tile[t].x =
        tensor_f32(&a->in[0]) + group * conv->channels * plane(conv->height, conv->width);
    s->tile[t].dy = tensor_f32(&a->in[1]) +
                    group * conv->outputs * plane(conv->out_height, conv->out_width) +
                    ((size_t)p * conv->out_width + q) * GROUP;
    s->tile[t].height = conv->out_height - p;
    s->tile[t].width = conv->out_width - q;
}

/* dw = GT du G. */
void OF_ISA(winograd_filter_gradients)(int M, const struct transposed *sums, int channels,
                                       float *dw);

#if GROUP == 16
/* LANES filters at a time. */
INLINE void winograd_filter_gradients(const int M, const struct transposed *sums, int channels,
                                      float *dw) {
    for (int o = 0; o < sums->outputs; o++)
        for (int c = 0; c < channels; c += LANES) {
            const float *du = sums->du + o * sums->width + c;
            float elements[16 * LANES] = {0},
                                filters[LANES * 16]; /* [tap][filter], [filter][tap] */
            vec columns[6][3], out[3];
            UNROLL for (int j = 0; j < M + 2; j++) {
                vec column[6];
                UNROLL for (int i = 0; i < M + 2; i++) column[i] =
                    load(du + ((M + 2) * i + j) * sums->du_step);
                winograd_numbers(M, winograd_g, 3, column, columns[j]);
            }
            UNROLL for (int i = 0; i < 3; i++) {
                vec row[6];
                UNROLL for (int j = 0; j < M + 2; j++) row[j] = columns[j][i];
                winograd_numbers(M, winograd_g, 3, row, out);
                UNROLL for (int j = 0; j < 3; j++) store(elements + (3 * i + j) * LANES, out[j]);
            }
            for (int i = 0; i < 9; i += LANES)
                transpose(elements + i * LANES, LANES, filters + i, 16);
            for (int lane = 0; lane < LANES && c + lane < channels; lane++)
                memcpy(dw + ((size_t)o * channels + c + lane) * 9, filters + lane * 16,
                       9 * sizeof(float));
        }
}

void OF_ISA(winograd_filter_gradients)(int M, const struct transposed *sums, int channels,
                                       float *dw) {
    M == 4 ? winograd_filter_gradients(4, sums, channels, dw)
           : winograd_filter_gradients(2, sums, channels, dw);
}
#endif

/* Channel by channel, since the tiles of a block are side by side in each. */
INLINE void winograd_backward_weight(const int M, const struct op_args *a,
                                     const struct conv *conv) {
    struct winograd_weight s = {.conv = conv, .size = M};
    s.sums = transposed_of(conv, (M + 2) * (M + 2), (M + 2) * (M + 2), a->scratch);
    s.tiles_x = tiles_of(conv->out_width, M);
    s.tiles = s.tiles_x * tiles_of(conv->out_height, M);
    for (int first = 0, all = conv->groups * s.tiles; first < all; first += TRANSPOSED_PIXELS) {
        int count = all - first < TRANSPOSED_PIXELS ? all - first : TRANSPOSED_PIXELS;
        s.sums.terms = count * GROUP;
        for (int t = 0; t < count; t++)
            winograd_find(&s, a, t, first + t);
        for (int c = 0; c < conv->channels; c += CHANNELS)
            for (int t = 0; t < count; t++)
                winograd_transposed(M, &s, t, c);
        for (int o = 0; o < conv->outputs; o++)
            for (int t = 0; t < count; t++)
                winograd_gradient(M, &s, t, o);
        transposed_products(&s.sums);
    }
    OF_ISA(winograd_filter_gradients)(M, &s.sums, conv->channels, tensor_f32(&a->out[0]));
}
