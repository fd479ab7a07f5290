/* Products of row-major matrices: y[i][j] = sum over k of a(i,k) b(k,j).
 *
 * A block of b lies in panels on the stack: MATMUL_WIDTH columns and MATMUL_DEPTH rows, which stay
 * in the second-level cache. A panel holds PANEL_COLUMNS columns, one row after the other,
 * whichever way b is stored. Tiles of MATMUL_ROWS rows of a follow one another, and each stays in
 * the nearest cache while all panels are multiplied with it. A vector is LANES neighbours of a row
 * of y, and an element of a is broadcast to all lanes, as in the weight gradient of a linear layer.
 * Every element of y adds its products in the order of k, one by one, so the bits do not depend on
 * the tiles. */

enum { MATMUL_DEPTH = 256, MATMUL_WIDTH = 8 * PANEL_COLUMNS };
enum { MATMUL_ROWS = ACCUMULATORS >= 28 ? 12 : 6 };
/* Rows of a packed tile: whole vectors. The last of them are not used. */
enum { PACKED_ROWS = (MATMUL_ROWS + LANES - 1) / LANES * LANES };

struct matmul {
    const float *a, *b;
    float *y; /* (rows, columns) */
    int rows, columns, depth;
    size_t a_i, a_k;     /* a(i,k) = a[i * a_i + k * a_k] */
    size_t y_i;          /* from one row of y to the next */
    size_t b_i;          /* from one row of b, as stored, to the next; 0: they are dense */
    int transposed;      /* 1: b is stored as (columns, depth), not (depth, columns) */
    int adds;            /* 1: the products are added to y */
    const float *panels; /* panels of b from matmul_panels; NULL: make them on the stack */
};

/* panel[k - k0][j] = b(k, first + j) for k in k0 .. k1 - 1, or 0 beyond the last column. */
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

/* packed[k - k0][r] = a(i + r, k). Packs only whole tiles whose lines of a are half a page apart:
 * these lines share a few sets of the cache, which hold only some of them. Otherwise it returns
 * NULL, and a is read directly. */
static const float *matmul_pack(const struct matmul *m, int k0, int k1, int i, float *packed) {
    const float *a = m->a + (size_t)i * m->a_i + (size_t)k0 * m->a_k;
    size_t apart = m->a_k == 1 ? m->a_i : m->a_k, k = 0, count = (size_t)(k1 - k0);
    if (apart * sizeof(float) % 2048 || i + PACKED_ROWS > m->rows) return NULL;
    if (m->a_k == 1)
        for (; k + LANES <= count; k += LANES)
            for (size_t r = 0; r < PACKED_ROWS; r += LANES)
                transpose(a + r * apart + k, apart, packed + k * PACKED_ROWS + r, PACKED_ROWS);
    for (; k < count; k++)
        for (size_t r = 0; r < PACKED_ROWS; r++)
            packed[k * PACKED_ROWS + r] = a[r * m->a_i + k * m->a_k];
    return packed;
}

/* acc[r][j] += the products of `count` terms. */
INLINE void matmul_terms(vec acc[][PANEL_VECTORS], const float *const *a, size_t a_k,
                         const float *panel, size_t count, const int ROWS) {
    for (size_t k = 0; k < count; k++, panel += PANEL_COLUMNS) {
        vec b[PANEL_VECTORS];
        UNROLL for (int j = 0; j < PANEL_VECTORS; j++) b[j] = load_once(panel + j * LANES);
        UNROLL for (int r = 0; r < ROWS; r++) {
            vec one = splat(a[r][k * a_k]);
            UNROLL for (int j = 0; j < PANEL_VECTORS; j++) acc[r][j] = fused(one, b[j], acc[r][j]);
        }
    }
}

/* Adds terms k0 .. k1 - 1 to rows i .. i + ROWS - 1 of y, in PANEL_VECTORS vectors from `column`
 * on. Where fewer rows are left, the last one is computed again. */
INLINE void matmul_tile(const struct matmul *m, int k0, int k1, int i, int column,
                        const float *panel, const float *packed, const int ROWS) {
    vec acc[MATMUL_ROWS][PANEL_VECTORS];
    float edge[MATMUL_ROWS][PANEL_VECTORS * LANES]; /* used in place of y if y is narrower */
    const float *a[MATMUL_ROWS];
    float *y[MATMUL_ROWS];
    int width = m->columns - column,
        narrow = width<PANEL_VECTORS * LANES, goes_on = k0> 0 || m->adds;
    UNROLL for (int r = 0; r < ROWS; r++) {
        size_t row = (size_t)(i + r < m->rows ? i + r : m->rows - 1);
        a[r] = m->a + row * m->a_i + (size_t)k0 * m->a_k;
        y[r] = m->y + row * m->y_i + column;
        if (narrow) {
            memset(edge[r], 0, sizeof edge[r]);
            if (goes_on) memcpy(edge[r], y[r], (size_t)width * sizeof(float));
        }
        UNROLL for (int j = 0; j < PANEL_VECTORS; j++) {
            acc[r][j] = goes_on ? load((narrow ? edge[r] : y[r]) + j * LANES) : splat(0);
        }
    }
    if (packed) {
        UNROLL for (int r = 0; r < ROWS; r++) a[r] = packed + r;
        matmul_terms(acc, a, PACKED_ROWS, panel, (size_t)(k1 - k0), ROWS);
    } else {
        matmul_terms(acc, a, m->a_k, panel, (size_t)(k1 - k0), ROWS);
    }
    UNROLL for (int r = 0; r < ROWS; r++) {
        UNROLL for (int j = 0; j < PANEL_VECTORS; j++)
            store((narrow ? edge[r] : y[r]) + j * LANES, acc[r][j]);
        if (narrow) memcpy(y[r], edge[r], (size_t)width * sizeof(float));
    }
}

/* Makes all panels of b, matmul_panel_floats floats, for products that share it. */
static size_t matmul_panel_floats(int depth, int columns) {
    return (size_t)(columns + PANEL_COLUMNS - 1) / PANEL_COLUMNS * PANEL_COLUMNS * (size_t)depth;
}

static void matmul_panels(const struct matmul *m, float *panels) {
    for (int first = 0; first < m->columns; first += PANEL_COLUMNS)
        matmul_panel(m, 0, m->depth, first, panels + (size_t)first * (size_t)m->depth);
}

/* A tile as high as the rows that are left from i on, in thirds of MATMUL_ROWS. */
static void matmul_rows(const struct matmul *m, int k0, int k1, int i, int column,
                        const float *panel, const float *packed) {
    enum { THIRD = MATMUL_ROWS / 3 };
    if (m->rows - i > 2 * THIRD)
        matmul_tile(m, k0, k1, i, column, panel, packed, MATMUL_ROWS);
    else if (m->rows - i > THIRD)
        matmul_tile(m, k0, k1, i, column, panel, packed, 2 * THIRD);
    else
        matmul_tile(m, k0, k1, i, column, panel, packed, THIRD);
}

/* Adds terms k0 .. k1 - 1 to columns first .. first + width - 1 of all rows. */
static __attribute__((noinline)) void matmul_block(const struct matmul *m, int k0, int k1,
                                                   int first, int width) {
    float panels[MATMUL_DEPTH * MATMUL_WIDTH] __attribute__((aligned(64)));
    float packed[MATMUL_DEPTH * PACKED_ROWS] __attribute__((aligned(64)));
    const float *b = m->panels ? m->panels + (size_t)first * (size_t)m->depth : panels;
    size_t deep = m->panels ? (size_t)m->depth : MATMUL_DEPTH, from = m->panels ? (size_t)k0 : 0;
    for (int j = 0; !m->panels && j < width; j += PANEL_COLUMNS)
        matmul_panel(m, k0, k1, first + j, panels + j * MATMUL_DEPTH);
    for (int i = 0; i < m->rows; i += MATMUL_ROWS) {
        const float *a = matmul_pack(m, k0, k1, i, packed);
        for (int j = 0; j < width; j += PANEL_VECTORS * LANES) {
            size_t in_panel = (size_t)j % PANEL_COLUMNS, panel = (size_t)j - in_panel;
            matmul_rows(m, k0, k1, i, first + j, b + panel * deep + from * PANEL_COLUMNS + in_panel,
                        a);
        }
    }
}

static void matmul_run(const struct matmul *m) {
    if (m->depth == 0 && !m->adds)
        memset(m->y, 0, (size_t)m->rows * (size_t)m->columns * sizeof(float));
    for (int first = 0; first < m->columns; first += MATMUL_WIDTH)
        for (int k0 = 0; k0 < m->depth; k0 += MATMUL_DEPTH)
            matmul_block(m, k0, m->depth - k0 < MATMUL_DEPTH ? m->depth : k0 + MATMUL_DEPTH, first,
                         m->columns - first < MATMUL_WIDTH ? m->columns - first : MATMUL_WIDTH);
}

static void fast_matmul(const struct op_args *p) {
    const struct tensor *x = &p->in[0], *y = &p->out[0];
    int turn_a = p->p.matmul.turn_a;
    struct matmul m = {.rows = y->dims[1],
                       .columns = y->dims[2],
                       .depth = x->dims[turn_a ? 1 : 2],
                       .y_i = (size_t)y->dims[2],
                       .transposed = p->p.matmul.turn_b};
    m.a_i = turn_a ? 1 : (size_t)m.depth, m.a_k = turn_a ? (size_t)m.rows : 1;
    for (size_t n = 0; n < (size_t)y->dims[0]; n++) {
        m.a = tensor_f32(x) + n * (size_t)m.rows * (size_t)m.depth;
        m.b = tensor_f32(&p->in[1]) + n * (size_t)m.depth * (size_t)m.columns;
        m.y = tensor_f32(y) + n * (size_t)m.rows * (size_t)m.columns;
        matmul_run(&m);
    }
}
