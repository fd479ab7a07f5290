/* Products of row-major matrices: y[i][j] = sum over k of a(i,k) b(k,j).
 *
 * A block of b, MATMUL_DEPTH rows and MATMUL_WIDTH columns, lies in panels on the stack. A panel
 * has the columns of a register tile, one row after the other, whichever way b is stored. It stays
 * in the nearest cache while the rows of a pass by. MATMUL_TALL of them at a time stay in the
 * second-level cache for all panels. If there are many panels, these rows are packed, too: a tile's
 * rows lie side by side. A vector is LANES neighbours of a row of y, and an element of a is
 * broadcast to all lanes. Every element of y adds its products in the order of k, one by one, so
 * the bits do not depend on the tiles. A wider block packs a less often but takes more stack. */

enum { MATMUL_VECTORS = 2, MATMUL_COLUMNS = MATMUL_VECTORS * LANES };
enum { MATMUL_DEPTH = 256, MATMUL_WIDTH = 224 };
enum { MATMUL_TOGETHER = 4 * MATMUL_COLUMNS, MATMUL_TALL = 48 };
enum { MATMUL_ROWS = ACCUMULATORS >= 28 ? 12 : 6 };

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

/* The panels of columns first .. end - 1, `deep` rows apart:
 * panel[k - k0][j] = b(k, first + j) for k in k0 .. k1 - 1, or 0 beyond the last column. Several
 * panels are filled together, because rows of b may lie in different pages. */
static void matmul_fill(const struct matmul *m, int k0, int k1, int first, int end, float *panel,
                        size_t deep) {
    size_t b_i = m->b_i ? m->b_i : (size_t)(m->transposed ? m->depth : m->columns);
    for (int width, whole; first < end; panel += width * deep, first += width) {
        width = end - first < MATMUL_TOGETHER ? end - first : MATMUL_TOGETHER;
        whole = width - width % MATMUL_COLUMNS;
        if (whole < width)
            memset(panel + whole * deep, 0, (size_t)(k1 - k0) * MATMUL_COLUMNS * sizeof(float));
        for (int k = k0; !m->transposed && k < k1; k++) {
            const float *row = m->b + (size_t)k * b_i + first;
            float *to = panel + (size_t)(k - k0) * MATMUL_COLUMNS;
            for (int j = 0; j < whole; j += MATMUL_COLUMNS)
                memcpy(to + j * deep, row + j, MATMUL_COLUMNS * sizeof(float));
            memcpy(to + whole * deep, row + whole, (size_t)(width - whole) * sizeof(float));
        }
        for (int k, j = 0; m->transposed && j < width; j += LANES) {
            const float *rows = m->b + (size_t)(first + j) * b_i;
            float *to = panel + (j - j % MATMUL_COLUMNS) * deep + j % MATMUL_COLUMNS;
            for (k = k0; j + LANES <= width && k + LANES <= k1; k += LANES)
                transpose(rows + k, b_i, to + (size_t)(k - k0) * MATMUL_COLUMNS, MATMUL_COLUMNS);
            for (; k < k1; k++)
                for (int lane = 0; lane < LANES && j + lane < width; lane++)
                    to[(size_t)(k - k0) * MATMUL_COLUMNS + lane] = rows[(size_t)lane * b_i + k];
        }
    }
}

/* packed[k - k0][r] = a(i + r, k) for a tile's rows; the last row stands for those that a does not
 * have. A transposition writes whole vectors, whose excess is overwritten afterwards. */
static void matmul_pack(const struct matmul *m, int k0, int k1, int i, float *packed) {
    enum { WHOLE = (MATMUL_ROWS + LANES - 1) / LANES * LANES };
    const float *a = m->a + (size_t)i * m->a_i + (size_t)k0 * m->a_k;
    size_t k = 0, count = (size_t)(k1 - k0), last = (size_t)(m->rows - 1 - i);
    if (m->a_k == 1 && i + WHOLE <= m->rows)
        for (; k + LANES <= count; k += LANES)
            for (int r = WHOLE - LANES; r >= 0; r -= LANES)
                transpose(a + (size_t)r * m->a_i + k, m->a_i, packed + k * MATMUL_ROWS + r,
                          MATMUL_ROWS);
    for (; m->a_i == 1 && last + 1 >= MATMUL_ROWS && k < count; k++)
        memcpy(packed + k * MATMUL_ROWS, a + k * m->a_k, MATMUL_ROWS * sizeof *a);
    for (; k < count; k++)
        for (size_t r = 0; r < MATMUL_ROWS; r++)
            packed[k * MATMUL_ROWS + r] = a[(r < last ? r : last) * m->a_i + k * m->a_k];
}

/* acc[r][j] += the products of `count` terms. */
INLINE void matmul_terms(vec acc[][MATMUL_VECTORS], const float *const *a, size_t a_k,
                         const float *panel, size_t b_k, size_t count, const int ROWS) {
    for (size_t k = 0; k < count; k++, panel += b_k) {
        vec b[MATMUL_VECTORS];
        UNROLL for (int j = 0; j < MATMUL_VECTORS; j++) b[j] = load_once(panel + j * LANES);
        UNROLL for (int r = 0; r < ROWS; r++) {
            vec one = splat(a[r][k * a_k]);
            UNROLL for (int j = 0; j < MATMUL_VECTORS; j++) acc[r][j] = fused(one, b[j], acc[r][j]);
        }
    }
}

/* Adds terms k0 .. k1 - 1 to rows i .. i + ROWS - 1 of y, in MATMUL_VECTORS vectors from `column`
 * on. Where fewer rows are left, the last one is computed again. */
INLINE void matmul_tile(const struct matmul *m, int k0, int k1, int i, int column,
                        const float *panel, size_t b_k, const float *packed, const int ROWS) {
    vec acc[MATMUL_ROWS][MATMUL_VECTORS];
    float edge[MATMUL_ROWS][MATMUL_VECTORS * LANES]; /* used in place of y if y is narrower */
    const float *a[MATMUL_ROWS];
    float *y[MATMUL_ROWS];
    int width = m->columns - column, narrow = width < MATMUL_VECTORS * LANES;
    int goes_on = k0 > 0 || m->adds;
    UNROLL for (int r = 0; r < ROWS; r++) {
        size_t row = (size_t)(i + r < m->rows ? i + r : m->rows - 1);
        a[r] = m->a + row * m->a_i + (size_t)k0 * m->a_k;
        y[r] = m->y + row * m->y_i + column;
        if (narrow) {
            memset(edge[r], 0, sizeof edge[r]);
            if (goes_on) memcpy(edge[r], y[r], (size_t)width * sizeof(float));
        }
        UNROLL for (int j = 0; j < MATMUL_VECTORS; j++) {
            acc[r][j] = goes_on ? load((narrow ? edge[r] : y[r]) + j * LANES) : splat(0);
            __builtin_prefetch(y[r] + ROWS * m->y_i + j * LANES, 1); /* for the next tile */
        }
    }
    if (packed) {
        UNROLL for (int r = 0; r < ROWS; r++) a[r] = packed + r;
        matmul_terms(acc, a, MATMUL_ROWS, panel, b_k, (size_t)(k1 - k0), ROWS);
    } else {
        matmul_terms(acc, a, m->a_k, panel, b_k, (size_t)(k1 - k0), ROWS);
    }
    UNROLL for (int r = 0; r < ROWS; r++) {
        UNROLL for (int j = 0; j < MATMUL_VECTORS; j++)
            store((narrow ? edge[r] : y[r]) + j * LANES, acc[r][j]);
        if (narrow) memcpy(y[r], edge[r], (size_t)width * sizeof(float));
    }
}

/* Makes all panels of b, matmul_panel_floats floats, for products that share it. */
static size_t matmul_panel_floats(int depth, int columns) {
    return (size_t)(columns + MATMUL_COLUMNS - 1) / MATMUL_COLUMNS * MATMUL_COLUMNS * (size_t)depth;
}

static void matmul_panels(const struct matmul *m, float *panels) {
    matmul_fill(m, 0, m->depth, 0, m->columns, panels, (size_t)m->depth);
}

/* A tile as high as the rows that are left from i on, in thirds of MATMUL_ROWS. */
static void matmul_rows(const struct matmul *m, int k0, int k1, int i, int column,
                        const float *panel, size_t b_k, const float *packed) {
    enum { THIRD = MATMUL_ROWS / 3 };
    if (m->rows - i > 2 * THIRD)
        matmul_tile(m, k0, k1, i, column, panel, b_k, packed, MATMUL_ROWS);
    else if (m->rows - i > THIRD)
        matmul_tile(m, k0, k1, i, column, panel, b_k, packed, 2 * THIRD);
    else
        matmul_tile(m, k0, k1, i, column, panel, b_k, packed, THIRD);
}

/* Adds terms k0 .. k1 - 1 to columns first .. first + width - 1 of all rows. Few rows of y read b
 * where it lies, if its rows are whole. */
static __attribute__((noinline)) void matmul_block(const struct matmul *m, int k0, int k1,
                                                   int first, int width) {
    float panels[MATMUL_DEPTH * MATMUL_WIDTH] __attribute__((aligned(64)));
    float packed[MATMUL_DEPTH * MATMUL_TALL + MATMUL_ROWS + LANES] __attribute__((aligned(64)));
    size_t b_i = m->b_i ? m->b_i : (size_t)m->columns, deep = (size_t)(k1 - k0);
    int few = !m->panels && !m->transposed && m->rows <= 3 * MATMUL_ROWS,
        in_place = few ? width - width % MATMUL_COLUMNS : 0;
    if (!m->panels)
        matmul_fill(m, k0, k1, first + in_place, first + width, panels + in_place * deep, deep);
    /* lines of a that are half a page apart share a few sets of the cache */
    int packs = width > 128 || m->a_k != 1 || m->a_i * sizeof(float) % 2048 == 0;
    for (int top = 0, end; top < m->rows; top = end) {
        end = m->rows - top < MATMUL_TALL ? m->rows : top + MATMUL_TALL;
        for (int i = top; packs && i < end; i += MATMUL_ROWS)
            matmul_pack(m, k0, k1, i, packed + (i - top) * deep);
        for (int j = 0; j < width; j += MATMUL_COLUMNS) {
            const float *b = j < in_place ? m->b + (size_t)k0 * b_i + first + j
                             : m->panels  ? m->panels + (size_t)(first + j) * (size_t)m->depth +
                                               (size_t)k0 * MATMUL_COLUMNS
                                         : panels + j * deep;
            for (int i = top; i < end; i += MATMUL_ROWS)
                matmul_rows(m, k0, k1, i, first + j, b, j < in_place ? b_i : MATMUL_COLUMNS,
                            packs ? packed + (i - top) * deep : NULL);
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
