/* Convolution of 1 x 1 with stride 1 in N16, forward and backward to the data. It is a product of
 * matrices, of which the columns are all pixels of all samples of a group:
 *
 *     y[r] = start[r] + sum over s of W(r,s) x[s]        W(r,s) = w[r*by_row + s*by_sum]
 *
 * Neighbouring pixels are neighbours in memory, so a vector is full however few samples a group
 * has. A tile is ROWS x VECTORS sums. Its part of x is copied side by side first: planes of whole
 * pages would all fall into the same few lines of the cache. Each sum adds its products in the
 * order of s, as the other convolutions do (n16_conv_forward.inc.h, n16_conv_data.inc.h). */

enum { POINT_ROWS = 6, POINT_VECTORS = ACCUMULATORS >= 28 ? 4 : 2, POINT_TERMS = 128 };

struct pointwise {
    const float *w, *start; /* start NULL: 0 */
    size_t by_row, by_sum;
    int rows, sums;
    size_t plane; /* floats of a channel of a group, in x and in y */
};

/* Adds terms s0 .. s0 + terms - 1, whose N vectors of x each are in `panel`, to POINT_ROWS rows of
 * y from r on. Where fewer rows are left, the last one is computed again. The last vector has
 * `last` floats. */
INLINE void point_tile(const struct pointwise *m, const float *panel, float *y, int r, int s0,
                       int terms, const int N, int last) {
    wide acc[POINT_ROWS][POINT_VECTORS];
    const float *w[POINT_ROWS];
    float *out[POINT_ROWS];
    UNROLL for (int i = 0; i < POINT_ROWS; i++) {
        size_t row = (size_t)(r + i < m->rows ? r + i : m->rows - 1);
        w[i] = m->w + row * m->by_row + (size_t)s0 * m->by_sum;
        out[i] = y + row * m->plane;
        UNROLL for (int j = 0; j < N; j++) acc[i][j] =
            s0 ? load_some(out[i] + j * WIDE, j < N - 1 ? WIDE : last)
               : splat_wide(m->start ? m->start[row] : 0);
    }
    size_t by_sum = m->by_sum;
    for (size_t s = 0; s < (size_t)terms; s++, panel += N * WIDE) {
        wide x[POINT_VECTORS];
        UNROLL for (int j = 0; j < N; j++) x[j] = load_wide_once(panel + j * WIDE);
        UNROLL for (int i = 0; i < POINT_ROWS; i++) {
            wide weight = splat_wide(w[i][s * by_sum]);
            UNROLL for (int j = 0; j < N; j++) acc[i][j] = fused_wide(weight, x[j], acc[i][j]);
        }
    }
    UNROLL for (int i = 0; i < POINT_ROWS; i++) {
        UNROLL for (int j = 0; j < N; j++)
            store_some(out[i] + j * WIDE, acc[i][j], j < N - 1 ? WIDE : last);
    }
}

/* All rows of N vectors of the pixels. */
INLINE void point_column(const struct pointwise *m, float *panel, const float *x, float *y, int s0,
                         int terms, const int N, int last) {
    for (int s = 0; s < terms; s++)
        UNROLL for (int j = 0; j < N; j++) store_wide(
            panel + (s * N + j) * WIDE,
            load_some(x + (size_t)(s0 + s) * m->plane + j * WIDE, j < N - 1 ? WIDE : last));
    for (int r = 0; r < m->rows; r += POINT_ROWS)
        if (last == WIDE)
            point_tile(m, panel, y, r, s0, terms, N, WIDE);
        else
            point_tile(m, panel, y, r, s0, terms, N, last);
}

static void pointwise_run(const struct pointwise *m, int groups, const float *x, float *y) {
    float panel[POINT_TERMS * POINT_VECTORS * WIDE] __attribute__((aligned(64)));
    int vectors = (int)((m->plane + WIDE - 1) / WIDE), tiles = tiles_of(vectors, POINT_VECTORS);
    for (int g = 0; g < groups; g++, x += m->sums * m->plane, y += m->rows * m->plane)
        for (int s0 = 0; s0 < m->sums; s0 += POINT_TERMS) {
            int terms = m->sums - s0 < POINT_TERMS ? m->sums - s0 : POINT_TERMS;
            for (int t = 0; t < tiles; t++) {
                int first = tile_begin(t, tiles, vectors), end = tile_begin(t + 1, tiles, vectors);
                size_t at = (size_t)first * WIDE, left = m->plane - (size_t)(end - 1) * WIDE;
                int last = left < WIDE ? (int)left : WIDE;
                switch (end - first) {
                case 1: point_column(m, panel, x + at, y + at, s0, terms, 1, last); break;
                case 2: point_column(m, panel, x + at, y + at, s0, terms, 2, last); break;
#if ACCUMULATORS >= 28
                case 3: point_column(m, panel, x + at, y + at, s0, terms, 3, last); break;
                default: point_column(m, panel, x + at, y + at, s0, terms, 4, last);
#endif
                }
            }
        }
}

static int is_pointwise(const struct conv *s) {
    return s->k == 1 && s->stride == 1 && s->padding == 0;
}

static void pointwise_forward(const struct op_args *a, const struct conv *s) {
    const struct pointwise m = {.w = s->w,
                                .start = tensor_f32(&a->in[2]),
                                .by_row = (size_t)s->channels,
                                .by_sum = 1,
                                .rows = s->outputs,
                                .sums = s->channels,
                                .plane = plane(s->height, s->width)};
    pointwise_run(&m, s->groups, tensor_f32(&a->in[0]), tensor_f32(&a->out[0]));
}

static void pointwise_backward_data(const struct op_args *a, const struct conv *s) {
    const struct pointwise m = {.w = s->w,
                                .by_row = 1,
                                .by_sum = (size_t)s->channels,
                                .rows = s->channels,
                                .sums = s->outputs,
                                .plane = plane(s->height, s->width)};
    pointwise_run(&m, s->groups, tensor_f32(&a->in[0]), tensor_f32(&a->out[0]));
}
