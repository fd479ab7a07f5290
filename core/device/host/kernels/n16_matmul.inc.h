/* Products of matrices in plain layout: y[i][j] = sum over k of a(i,k) b(k,j).
 *
 * A panel on the stack holds PANEL_COLUMNS columns of b and MATMUL_DEPTH of its rows, one row
 * behind the other, whichever way b is stored. A vector is LANES neighbours of a row of y, and an
 * element of a is a number broadcast, as in the weight gradient of a linear layer. Every element of
 * y adds its products in the order of k, one by one, so the bits do not depend on the tiles.
 *
 * Many rows are cut into equal blocks, whose parts of a and y stay in the caches. */

enum { MATMUL_DEPTH = 256, MATMUL_WIDTH = 2 * PANEL_COLUMNS, MATMUL_BLOCK = 480 };
#if ACCUMULATORS >= 28
#define MATMUL_ROWS 12
#else
#define MATMUL_ROWS 6
#endif

struct matmul {
    const float *a, *b;
    float *y; /* (rows, columns) */
    int rows, columns, depth;
    size_t a_i, a_k;     /* a(i,k) = a[i * a_i + k * a_k] */
    size_t y_i, b_i;     /* from one row of y, or of b as stored, to the next; 0: they are dense */
    int transposed;      /* 1: b is stored as (columns, depth), not (depth, columns) */
    int adds;            /* 1: the products are added to what y holds */
    const float *panels; /* of b, from matmul_panels; NULL: they are made on the stack */
};

/* panel[k - k0][j] = b(k, first + j) for k in k0 .. k1 - 1; 0 where there is no such column. */
static void matmul_panel(const struct matmul *m, int k0, int k1, int first, float *panel) {
    int width = m->columns - first < PANEL_COLUMNS ? m->columns - first : PANEL_COLUMNS;
    size_t b_i = m->b_i ? m->b_i : (size_t)(m->transposed ? m->depth : m->columns);
    if (width < PANEL_COLUMNS) memset(panel, 0, (size_t)(k1 - k0) * PANEL_COLUMNS * sizeof(float));
    if (!m->transposed) {
        for (int k = k0; k < k1; k++)
            memcpy(panel + (size_t)(k - k0) * PANEL_COLUMNS, m->b + (size_t)k * b_i + first,
                   (size_t)width * sizeof(float));
        return;
    }
    int j = 0;
    for (; j + LANES <= width; j += LANES) {
        const float *rows = m->b + (size_t)(first + j) * b_i;
        int k = k0;
        for (; k + LANES <= k1; k += LANES)
            transpose(rows + k, b_i, panel + (size_t)(k - k0) * PANEL_COLUMNS + j, PANEL_COLUMNS);
        for (; k < k1; k++)
            for (int lane = 0; lane < LANES; lane++)
                panel[(size_t)(k - k0) * PANEL_COLUMNS + j + lane] = rows[(size_t)lane * b_i + k];
    }
    for (; j < width; j++)
        for (int k = k0; k < k1; k++)
            panel[(size_t)(k - k0) * PANEL_COLUMNS + j] = m->b[(size_t)(first + j) * b_i + k];
}

/* packed[k - k0][r] = a(i + r, k). Returns NULL, and a is read directly, unless the tile is whole
 * and the elements of a row of a are whole pages apart: then all of them fall into one set of the
 * cache, which holds only a few. */
static const float *matmul_pack(const struct matmul *m, int k0, int k1, int i, float *packed) {
    if (m->a_k == 0 || m->a_k * sizeof(float) % 4096 || m->a_i != 1 || i + MATMUL_ROWS > m->rows)
        return NULL;
    for (int k = k0; k < k1; k++)
        memcpy(packed + (k - k0) * MATMUL_ROWS, m->a + i + (size_t)k * m->a_k,
               MATMUL_ROWS * sizeof(float));
    return packed;
}

static size_t matmul_y_i(const struct matmul *m) {
    return m->y_i ? m->y_i : (size_t)m->columns;
}

/* Asks the caches for the part of y that matmul_tile will add to, one tile ahead. */
static __attribute__((noinline)) void matmul_fetch(const struct matmul *m, int i, int column) {
    for (int r = i; r < i + MATMUL_ROWS && r < m->rows; r++)
        for (int j = 0; j < PANEL_VECTORS * LANES; j += 16) // floats in a line of the cache
            __builtin_prefetch(m->y + (size_t)r * matmul_y_i(m) + column + j, 1);
}

/* Adds terms k0 .. k1 - 1 to rows i .. i + MATMUL_ROWS - 1 of y, in PANEL_VECTORS vectors from
 * `column` on. Where fewer rows are left, the last one is computed again. */
static void matmul_tile(const struct matmul *m, int k0, int k1, int i, int column,
                        const float *panel, const float *packed) {
    vec acc[MATMUL_ROWS][PANEL_VECTORS];
    float edge[MATMUL_ROWS][PANEL_VECTORS * LANES]; /* in place of y where y is narrower */
    const float *a[MATMUL_ROWS];
    float *y[MATMUL_ROWS];
    int width = m->columns - column,
        narrow = width<PANEL_VECTORS * LANES, goes_on = k0> 0 || m->adds;
    UNROLL for (int r = 0; r < MATMUL_ROWS; r++) {
        size_t row = (size_t)(i + r < m->rows ? i + r : m->rows - 1);
        a[r] = packed ? packed + r : m->a + row * m->a_i + (size_t)k0 * m->a_k;
        y[r] = m->y + row * matmul_y_i(m) + column;
        if (narrow) {
            memset(edge[r], 0, sizeof edge[r]);
            if (goes_on) memcpy(edge[r], y[r], (size_t)width * sizeof(float));
        }
        UNROLL for (int j = 0; j < PANEL_VECTORS; j++) {
            acc[r][j] = goes_on ? load((narrow ? edge[r] : y[r]) + j * LANES) : splat(0);
        }
    }
    size_t a_k = packed ? MATMUL_ROWS : m->a_k;
    for (size_t k = 0, count = (size_t)(k1 - k0); k < count; k++, panel += PANEL_COLUMNS) {
        vec b[PANEL_VECTORS];
        UNROLL for (int j = 0; j < PANEL_VECTORS; j++) b[j] = load(panel + j * LANES);
        UNROLL for (int r = 0; r < MATMUL_ROWS; r++) {
            vec one = splat(a[r][k * a_k]);
            UNROLL for (int j = 0; j < PANEL_VECTORS; j++) acc[r][j] = fused(one, b[j], acc[r][j]);
        }
    }
    UNROLL for (int r = 0; r < MATMUL_ROWS; r++) {
        UNROLL for (int j = 0; j < PANEL_VECTORS; j++)
            store((narrow ? edge[r] : y[r]) + j * LANES, acc[r][j]);
        if (narrow) memcpy(y[r], edge[r], (size_t)width * sizeof(float));
    }
}

/* All panels of b, for products that share it: matmul_panel_floats of them. */
static size_t matmul_panel_floats(int depth, int columns) {
    return (size_t)(columns + PANEL_COLUMNS - 1) / PANEL_COLUMNS * PANEL_COLUMNS * (size_t)depth;
}

static void matmul_panels(const struct matmul *m, float *panels) {
    for (int first = 0; first < m->columns; first += PANEL_COLUMNS)
        matmul_panel(m, 0, m->depth, first, panels + (size_t)first * (size_t)m->depth);
}

/* Adds terms k0 .. k1 - 1 to columns first .. first + width - 1 of all rows. */
static __attribute__((noinline)) void matmul_block(const struct matmul *m, int k0, int k1,
                                                   int first, int width) {
    float panels[MATMUL_DEPTH * MATMUL_WIDTH] __attribute__((aligned(64)));
    float packed[MATMUL_DEPTH * MATMUL_ROWS];
    const float *from[MATMUL_WIDTH / PANEL_COLUMNS];
    for (int n = 0, j = 0; j < width; n++, j += PANEL_COLUMNS) {
        float *panel = panels + j * MATMUL_DEPTH;
        if (!m->panels) matmul_panel(m, k0, k1, first + j, panel);
        from[n] = m->panels ? m->panels + (size_t)(first + j) * (size_t)m->depth +
                                  (size_t)k0 * PANEL_COLUMNS
                            : panel;
    }
    for (int i = 0; i < m->rows; i += MATMUL_ROWS) {
        const float *a = matmul_pack(m, k0, k1, i, packed);
        for (int j = 0; j < width; j += PANEL_VECTORS * LANES) {
            if (k0 > 0) matmul_fetch(m, i + MATMUL_ROWS, first + j);
            matmul_tile(m, k0, k1, i, first + j, from[j / PANEL_COLUMNS] + j % PANEL_COLUMNS, a);
        }
    }
}

static void matmul_run_block(const struct matmul *m) {
    for (int first = 0; first < m->columns; first += MATMUL_WIDTH)
        for (int k0 = 0; k0 < m->depth; k0 += MATMUL_DEPTH)
            matmul_block(m, k0, m->depth - k0 < MATMUL_DEPTH ? m->depth : k0 + MATMUL_DEPTH, first,
                         m->columns - first < MATMUL_WIDTH ? m->columns - first : MATMUL_WIDTH);
}

static void matmul_run(const struct matmul *m) {
    if (m->depth == 0 && !m->adds)
        memset(m->y, 0, (size_t)m->rows * (size_t)m->columns * sizeof(float));
    int blocks = (m->rows + MATMUL_BLOCK / 2) / MATMUL_BLOCK, most = m->rows;
    if (blocks > 1) most = (m->rows / blocks + MATMUL_ROWS) / MATMUL_ROWS * MATMUL_ROWS;
    for (int i = 0; i < m->rows; i += most) {
        struct matmul block = *m;
        block.a += (size_t)i * m->a_i;
        block.y += (size_t)i * matmul_y_i(m);
        block.rows = m->rows - i < most ? m->rows - i : most;
        matmul_run_block(&block);
    }
}

static void fast_matmul(const struct op_args *p) {
    const struct tensor *x = &p->in[0], *y = &p->out[0];
    int turn_a = p->p.matmul.turn_a;
    struct matmul m = {.rows = y->dims[1],
                       .columns = y->dims[2],
                       .depth = x->dims[turn_a ? 1 : 2],
                       .transposed = p->p.matmul.turn_b};
    m.a_i = turn_a ? 1 : (size_t)m.depth, m.a_k = turn_a ? (size_t)m.rows : 1;
    for (size_t n = 0; n < (size_t)y->dims[0]; n++) {
        m.a = tensor_f32(x) + n * (size_t)m.rows * (size_t)m.depth;
        m.b = tensor_f32(&p->in[1]) + n * (size_t)m.depth * (size_t)m.columns;
        m.y = tensor_f32(y) + n * (size_t)m.rows * (size_t)m.columns;
        matmul_run(&m);
    }
}
