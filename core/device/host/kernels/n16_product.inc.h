/* A matrix product in N16 computes the fully connected layer and the 1 x 1 convolution with stride
 * 1, forward and backward to the data. Its columns are all pixels of all samples:
 *
 *     y[r] = start[r] + sum over s of W(r,s) x[s]        W(r,s) = w[r*by_row + s*by_sum]
 *
 * Neighbouring pixels are neighbours in memory, so a vector is full however few samples a group
 * has; W(r,s) is one number broadcast to all lanes. The two strides serve both passes and both
 * layouts of a weight matrix. A tile is ROWS x VECTORS sums. Its part of x is first copied to
 * contiguous memory, since planes of whole pages would map to the same few cache lines. Sum and
 * rows are divided into blocks, whose part of w stays in the second-level cache. Every output adds
 * its products in the order of s, one by one. n16_windows.inc.h has products whose x are the pixels
 * that the windows of a convolution reach. */

enum { PRODUCT_ROWS = 6, PRODUCT_VECTORS = ACCUMULATORS >= 28 ? 4 : 2 };
enum { PRODUCT_TERMS = 128, PRODUCT_BLOCK = 170 * PRODUCT_ROWS };

struct product {
    const float *w, *start; /* start NULL: sums start at 0 */
    const float *x;         /* [group][sums][plane] */
    float *y;               /* [group][rows][plane] */
    size_t by_row, by_sum;  /* strides of w */
    int rows, sums, groups;
    int plane;                     /* floats in all pixels and samples of a group */
    const struct windows *windows; /* NULL: x and y are matrices */
};

/* Some vectors of x and y. */
struct product_columns {
    float panel[PRODUCT_TERMS * PRODUCT_VECTORS * WIDE] __attribute__((aligned(64)));
    size_t w[PRODUCT_TERMS];                  /* floats from the row's first weight to a term's */
    float *y[PRODUCT_VECTORS];                /* addresses in row 0 */
    int lanes[PRODUCT_VECTORS];               /* WIDE, or what is left in the last vector */
    size_t to[PRODUCT_VECTORS][WIDE / LANES]; /* floats from y to each pixel of a vector */
    size_t y_row;                             /* floats from a row of y to the next */
    int whole;                                /* 1: all vectors are full, and y's pixels adjacent */
};

INLINE wide product_load(const struct product_columns *c, int j, const float *y, const int WHOLE) {
    float lanes[WIDE] = {0};
    if (WHOLE) return load_wide(y);
    ROLLED for (int i = 0; i * LANES < c->lanes[j]; i++)
        store(lanes + i * LANES, load(y + c->to[j][i]));
    return load_wide(lanes);
}

INLINE void product_store(const struct product_columns *c, int j, float *y, wide v,
                          const int WHOLE) {
    float lanes[WIDE];
    store_wide(WHOLE ? y : lanes, v);
    if (WHOLE) return;
    ROLLED for (int i = 0; i * LANES < c->lanes[j]; i++)
        store(y + c->to[j][i], load(lanes + i * LANES));
}

/* Adds terms s0 .. s0 + terms - 1 to rows r .. r + PRODUCT_ROWS - 1 of N vectors. If fewer rows are
 * left, the last one is computed again. */
INLINE void product_tile(const struct product *m, const struct product_columns *c, int r, int s0,
                         int terms, const int N, const int WHOLE) {
    wide acc[PRODUCT_ROWS][PRODUCT_VECTORS];
    const float *w[PRODUCT_ROWS], *panel = c->panel;
    size_t row[PRODUCT_ROWS];
    UNROLL for (int i = 0; i < PRODUCT_ROWS; i++) {
        row[i] = (size_t)(r + i < m->rows ? r + i : m->rows - 1);
        w[i] = m->w + row[i] * m->by_row;
        float start = m->start ? m->start[row[i]] : 0;
        UNROLL for (int j = 0; j < N; j++) acc[i][j] =
            s0 ? product_load(c, j, c->y[j] + row[i] * c->y_row, WHOLE) : splat_wide(start);
    }
    for (size_t s = 0; s < (size_t)terms; s++, panel += N * WIDE) {
        wide x[PRODUCT_VECTORS];
        UNROLL for (int j = 0; j < N; j++) x[j] = load_wide_once(panel + j * WIDE);
        UNROLL for (int i = 0; i < PRODUCT_ROWS; i++) {
            wide weight = splat_wide(w[i][c->w[s]]);
            UNROLL for (int j = 0; j < N; j++) acc[i][j] = fused_wide(weight, x[j], acc[i][j]);
        }
    }
    UNROLL for (int i = 0; i < PRODUCT_ROWS; i++) {
        UNROLL for (int j = 0; j < N; j++)
            product_store(c, j, c->y[j] + row[i] * c->y_row, acc[i][j], WHOLE);
    }
}

#include "device/host/kernels/n16_windows.inc.h"

/* Adds the terms to a block of rows in N vectors, which begin at vector number `first`. */
INLINE void product_columns(const struct product *m, struct product_columns *c, int r0, int first,
                            int s0, int terms, const int N) {
    int of_plane = tiles_of(m->plane, WIDE);
    c->whole = 1;
    for (int j = 0; j < N; j++) {
        size_t group = (size_t)((first + j) / of_plane);
        int at = (first + j) % of_plane * WIDE, left = m->plane - at;
        const float *x = m->x + (group * m->sums + s0) * m->plane + at;
        c->y[j] = m->y + group * m->rows * c->y_row + at;
        c->lanes[j] = left < WIDE ? left : WIDE;
        if (left < WIDE) c->whole = 0;
        for (int i = 0; i < WIDE / LANES; i++)
            c->to[j][i] = (size_t)i * LANES;
        if (m->windows) {
            windows_vector(m, c, j, N, group, at, s0, terms);
            continue;
        }
        for (int s = 0; s < terms; s++)
            store_wide(c->panel + (s * N + j) * WIDE,
                       load_some(x + (size_t)s * m->plane, c->lanes[j]));
    }
    for (int r = r0; r < m->rows && r < r0 + PRODUCT_BLOCK; r += PRODUCT_ROWS)
        if (GROUP % WIDE == 0 || c->whole) // always true where a pixel fills whole vectors
            product_tile(m, c, r, s0, terms, N, 1);
        else
            product_tile(m, c, r, s0, terms, N, 0);
}

static void product_run(const struct product *m) {
    struct product_columns c;
    c.y_row = m->windows ? m->windows->y_plane : (size_t)m->plane;
    int all = m->groups * tiles_of(m->plane, WIDE), tiles = tiles_of(all, PRODUCT_VECTORS);
    for (int r0 = 0; r0 < m->rows; r0 += PRODUCT_BLOCK)
        for (int s0 = 0; s0 == 0 || s0 < m->sums; s0 += PRODUCT_TERMS) {
            int terms = m->sums - s0 < PRODUCT_TERMS ? m->sums - s0 : PRODUCT_TERMS;
            for (int s = 0; s < terms; s++)
                c.w[s] =
                    m->windows ? windows_weight(m->windows, s0 + s) : (size_t)(s0 + s) * m->by_sum;
            for (int t = 0; t < tiles; t++) {
                int first = tile_begin(t, tiles, all);
                switch (tile_begin(t + 1, tiles, all) - first) {
                case 1: product_columns(m, &c, r0, first, s0, terms, 1); break;
                case 2: product_columns(m, &c, r0, first, s0, terms, 2); break;
#if ACCUMULATORS >= 28
                case 3: product_columns(m, &c, r0, first, s0, terms, 3); break;
                default: product_columns(m, &c, r0, first, s0, terms, 4);
#endif
                }
            }
        }
}

/* A pass of a layer with `pixels` pixels a sample; `transposed` 1: w is stored as (sums, rows). */
static void product_pass(const struct op_args *a, const float *start, int pixels, int transposed) {
    const struct tensor *x = &a->in[0], *y = &a->out[0];
    int rows = (int)tensor_sample_count(y) / pixels, sums = (int)tensor_sample_count(x) / pixels;
    product_run(&(struct product){tensor_f32(&a->in[1]), start, tensor_f32(x), tensor_f32(y),
                                  transposed ? 1 : (size_t)sums, transposed ? (size_t)rows : 1,
                                  rows, sums, y->groups, pixels * GROUP, NULL});
}
