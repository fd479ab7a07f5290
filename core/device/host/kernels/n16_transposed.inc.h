/* Convolution in N16, backward to the weights, with many channels:
 *
 *     dw[o][c] = sum over samples and pixels of dy[o] x[c],        at each tap of the filter
 *
 * is a matrix product, (outputs x samples and pixels) by (samples and pixels x channels). In N16
 * the samples are innermost, but the sum runs over them. So x is transposed so that its channels
 * are innermost. A vector then holds the sums of several channels, and a number of dy is broadcast.
 * No lanes need to be added at the end.
 *
 * The names suit products at several `positions`: here the taps, in n16_winograd_weight.inc.h the
 * positions of a tile. At each position du = sum of e v. A block is TRANSPOSED_PIXELS pixels, of
 * any groups. A sum goes pixel by pixel and sample by sample through a block, then block by block,
 * whatever the width of the vectors. Lanes past the segment's end are zero in dy and add
 * nothing. */

enum { WEIGHT_OUTPUTS = ACCUMULATORS >= 28 ? 6 : 3, WEIGHT_VECTORS = 4 }; /* in a register tile */

struct transposed {
    int positions, outputs, terms;  /* terms: samples and pixels of this block */
    size_t columns;                 /* channels, rounded up to whole vectors */
    size_t width;                   /* of a row, at least `columns` (transposed_width) */
    size_t v_step, e_step, du_step; /* floats between points; never whole pages, which would map all
                                     * points to the same few cache sets */
    float *v;                       /* [positions][terms][width] */
    float *e;                       /* [positions or 1][outputs][terms] */
    float *du;                      /* [positions][outputs][du_width] */
    size_t du_width;                /* `width`, or the channels where du is dw itself */
    int begun;                      /* 0: the first block writes du; later ones add to it */
};

/* In `scratch`; there are `gradients` different e: as many as positions, or 1. */
static struct transposed transposed_of(const struct conv *conv, int positions, int gradients,
                                       float *scratch) {
    struct transposed s = {.positions = positions, .outputs = conv->outputs};
    s.width = s.du_width = transposed_width(conv->channels);
    s.columns = (size_t)tiles_of(conv->channels, WIDE) * WIDE;
    s.v_step = (size_t)TRANSPOSED_PIXELS * GROUP * s.width + MOST_LANES;
    s.e_step = gradients > 1 ? (size_t)TRANSPOSED_PIXELS * GROUP * s.outputs + MOST_LANES : 0;
    s.du_step = s.outputs * s.width + MOST_LANES;
    s.du = scratch;
    s.v = s.du + positions * s.du_step;
    s.e = s.v + positions * s.v_step;
    if (!conv->groups) memset(s.du, 0, positions * s.du_step * sizeof(float));
    return s;
}

/* Adds a block to du at one position, for `vectors` vectors of channels from c0 on. */
INLINE void transposed_tile(const struct transposed *s, int position, size_t c0,
                            const int VECTORS) {
    int outputs = s->outputs, terms = s->terms;
    const float *v = s->v + position * s->v_step + c0;
    for (int o = 0; o < outputs; o += WEIGHT_OUTPUTS) {
        wide acc[WEIGHT_OUTPUTS][WEIGHT_VECTORS];
        const float *e[WEIGHT_OUTPUTS], *row = v;
        UNROLL for (int i = 0; i < WEIGHT_OUTPUTS; i++) {
            int output = o + i < outputs ? o + i : outputs - 1;
            e[i] = s->e + position * s->e_step + (size_t)output * terms;
            UNROLL for (int j = 0; j < VECTORS; j++) acc[i][j] = splat_wide(0);
        }
        for (int k = 0; k < terms; k++, row += s->width) {
            wide channels[WEIGHT_VECTORS];
            UNROLL for (int j = 0; j < VECTORS; j++) channels[j] = load_wide_once(row + j * WIDE);
            UNROLL for (int i = 0; i < WEIGHT_OUTPUTS; i++) {
                wide gradient = splat_wide(e[i][k]);
                UNROLL for (int j = 0; j < VECTORS; j++) {
                    acc[i][j] = fused_wide(gradient, channels[j], acc[i][j]);
                }
            }
        }
        UNROLL for (int i = 0; i < WEIGHT_OUTPUTS; i++) {
            if (o + i >= outputs) break;
            float *du = s->du + position * s->du_step + (size_t)(o + i) * s->du_width + c0;
            UNROLL for (int j = 0; j < VECTORS; j++) store_wide(
                du + j * WIDE, s->begun ? load_wide(du + j * WIDE) + acc[i][j] : acc[i][j]);
        }
    }
}

static void transposed_products(struct transposed *s) {
    for (int position = 0; position < s->positions; position++)
        for (size_t c = 0; c < s->columns; c += WEIGHT_VECTORS * WIDE) {
            size_t left = (s->columns - c) / WIDE;
            if (left >= 4)
                transposed_tile(s, position, c, 4);
            else if (left == 3)
                transposed_tile(s, position, c, 3);
            else if (left == 2)
                transposed_tile(s, position, c, 2);
            else
                transposed_tile(s, position, c, 1);
        }
    s->begun = 1;
}

/* Fills v for one pixel of dy at one tap with the pixel of x that it reaches, or with 0 outside. */
static void transposed_pixel(const struct transposed *s, const struct conv *conv, const float *x,
                             int tap, int t, int h, int w) {
    float *v = s->v + tap * s->v_step + (size_t)t * GROUP * s->width;
    size_t step = plane(conv->height, conv->width);
    if (h < 0 || h >= conv->height || w < 0 || w >= conv->width) {
        memset(v, 0, GROUP * s->width * sizeof(float));
        return;
    }
    x += ((size_t)h * conv->width + w) * GROUP;
    for (int c = 0; c < conv->channels; c += LANES) {
        float last[LANES * GROUP]; /* repeats the last channel if fewer than LANES are left */
        int whole = c + LANES <= conv->channels;
        for (int i = 0; i < LANES && !whole; i++)
            memcpy(last + i * GROUP,
                   x + (c + i < conv->channels ? c + i : conv->channels - 1) * step,
                   GROUP * sizeof(float));
        for (int lane = 0; lane < GROUP; lane += LANES)
            transpose((whole ? x + c * step : last) + lane, whole ? step : GROUP,
                      v + lane * s->width + c, s->width);
    }
}

/* Fills v at all taps, and e, which is dy, for `count` pixels of dy from number `first` on. */
static void transposed_block(const struct transposed *s, const struct conv *conv,
                             const struct op_args *a, int first, int count) {
    const float *dy[TRANSPOSED_PIXELS];
    int pixels = conv->out_height * conv->out_width;
    for (int t = 0; t < count; t++) {
        int group = (first + t) / pixels, pixel = (first + t) % pixels;
        int top = pixel / conv->out_width * conv->stride - conv->padding,
            left = pixel % conv->out_width * conv->stride - conv->padding;
        const float *x =
            tensor_f32(&a->in[0]) + group * conv->channels * plane(conv->height, conv->width);
        dy[t] = tensor_f32(&a->in[1]) + ((size_t)group * conv->outputs * pixels + pixel) * GROUP;
        for (int tap = 0; tap < s->positions; tap++)
            transposed_pixel(s, conv, x, tap, t, top + tap / conv->k, left + tap % conv->k);
    }
    for (int o = 0; o < conv->outputs; o++)
        for (int t = 0; t < count; t++)
            memcpy(s->e + (size_t)o * s->terms + t * GROUP, dy[t] + (size_t)o * pixels * GROUP,
                   GROUP * sizeof(float));
}

static void transposed_backward_weight(const struct op_args *a, const struct conv *conv) {
    int taps = conv->k * conv->k, all = conv->groups * conv->out_height * conv->out_width;
    struct transposed s = transposed_of(conv, taps, 1, a->scratch);
    float *dw = tensor_f32(&a->out[0]);
    int in_place = taps == 1 && conv->channels % WIDE == 0 && all > 0;
    if (in_place) s.du = dw, s.du_width = (size_t)conv->channels;
    for (int first = 0; first < all; first += TRANSPOSED_PIXELS) {
        int count = all - first < TRANSPOSED_PIXELS ? all - first : TRANSPOSED_PIXELS;
        s.terms = count * GROUP;
        transposed_block(&s, conv, a, first, count);
        transposed_products(&s);
    }
    for (int o = 0; o < conv->outputs && !in_place; o++)
        for (int c = 0; c < conv->channels; c++)
            for (int tap = 0; tap < taps; tap++)
                *dw++ = s.du[tap * s.du_step + o * s.width + c];
}
