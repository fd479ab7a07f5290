/* The fully connected layer in N16. Forward and backward to the data use the product of
 * n16_product.inc.h, with planes of one pixel.
 *
 * The weight gradient sums over samples: dw(a,b) = sum over n of A[n][a] * B[n][b]. B is transposed
 * into rows in a panel on the stack, 32 columns wide. A vector then has WIDE neighbours of dw, an
 * element of A is broadcast, and lanes are never added to each other. Each sum adds the samples in
 * order. */

static void n16_linear_forward(const struct op_args *a) {
    product_pass(a, tensor_f32(&a->in[2]), 1, a->p.linear.weight_is_in_out);
}

static void n16_linear_backward_data(const struct op_args *a) {
    product_pass(a, NULL, 1, !a->p.linear.weight_is_in_out);
}

/* ---- the weight gradient ---- */

enum { PANEL_COLUMNS = 32, PANEL_GROUPS = 32, PANEL_VECTORS = 2 };
enum { GRADIENT_ROWS = ACCUMULATORS >= 28 ? 12 : 6 };

struct gradient {
    const float *a, *b; /* N16 [group][rows][16] and [group][columns][16] */
    float *dw;          /* rows x columns, row-major */
    int rows, columns, groups;
};

/* panel[n][j] = b[n][first + j] for the samples n of groups g0 .. g1 - 1, or 0 beyond the last
 * column. */
static void fill_panel(const struct gradient *d, int g0, int g1, int first, float *panel) {
    int width = d->columns - first < PANEL_COLUMNS ? d->columns - first : PANEL_COLUMNS;
    if (width < PANEL_COLUMNS)
        memset(panel, 0, (size_t)(g1 - g0) * GROUP * PANEL_COLUMNS * sizeof(float));
    for (int g = g0; g < g1; g++) {
        const float *b = d->b + ((size_t)g * d->columns + first) * GROUP;
        float *rows = panel + (size_t)(g - g0) * GROUP * PANEL_COLUMNS;
        int j = 0;
        for (; j + LANES <= width; j += LANES)
            for (int lane = 0; lane < GROUP; lane += LANES)
                transpose(b + j * GROUP + lane, GROUP, rows + lane * PANEL_COLUMNS + j,
                          PANEL_COLUMNS);
        for (; j < width; j++)
            for (int lane = 0; lane < GROUP; lane++)
                rows[lane * PANEL_COLUMNS + j] = b[j * GROUP + lane];
    }
}

/* Adds the samples of groups g0 .. g1 - 1 to rows r .. r + GRADIENT_ROWS - 1 of dw, in
 * PANEL_VECTORS vectors from `column` on. */
static void gradient_tile(const struct gradient *d, int g0, int g1, int r, int column,
                          const float *panel) {
    wide acc[GRADIENT_ROWS][PANEL_VECTORS];
    float edge[GRADIENT_ROWS][PANEL_VECTORS * WIDE]; /* used in place of dw if dw is narrower */
    const float *a[GRADIENT_ROWS];
    float *dw[GRADIENT_ROWS];
    int width = d->columns - column, narrow = width < PANEL_VECTORS * WIDE;
    UNROLL for (int i = 0; i < GRADIENT_ROWS; i++) {
        int row = r + i < d->rows ? r + i : d->rows - 1;
        a[i] = d->a + ((size_t)g0 * d->rows + row) * GROUP;
        dw[i] = d->dw + (size_t)row * d->columns + column;
        if (narrow) {
            memset(edge[i], 0, sizeof edge[i]);
            if (g0) memcpy(edge[i], dw[i], width * sizeof(float));
        }
        UNROLL for (int j = 0; j < PANEL_VECTORS; j++) {
            acc[i][j] = g0 ? load_wide((narrow ? edge[i] : dw[i]) + j * WIDE) : splat_wide(0);
        }
    }
    size_t a_group = (size_t)d->rows * GROUP;
    for (int g = g0; g < g1; g++) {
        for (int lane = 0; lane < GROUP; lane++, panel += PANEL_COLUMNS) {
            wide b[PANEL_VECTORS];
            UNROLL for (int j = 0; j < PANEL_VECTORS; j++) b[j] = load_wide(panel + j * WIDE);
            UNROLL for (int i = 0; i < GRADIENT_ROWS; i++) {
                wide sample = splat_wide(a[i][lane]);
                UNROLL for (int j = 0; j < PANEL_VECTORS; j++) acc[i][j] =
                    fused_wide(sample, b[j], acc[i][j]);
            }
        }
        UNROLL for (int i = 0; i < GRADIENT_ROWS; i++) a[i] += a_group;
    }
    UNROLL for (int i = 0; i < GRADIENT_ROWS; i++) {
        UNROLL for (int j = 0; j < PANEL_VECTORS; j++)
            store_wide((narrow ? edge[i] : dw[i]) + j * WIDE, acc[i][j]);
        if (narrow) memcpy(dw[i], edge[i], width * sizeof(float));
    }
}

static void gradient_run(const struct gradient *d) {
    float panel[PANEL_GROUPS * GROUP * PANEL_COLUMNS] __attribute__((aligned(64)));
    if (d->groups == 0) memset(d->dw, 0, (size_t)d->rows * d->columns * sizeof(float));
    for (int first = 0; first < d->columns; first += PANEL_COLUMNS)
        for (int g0 = 0; g0 < d->groups; g0 += PANEL_GROUPS) {
            int g1 = g0 + PANEL_GROUPS < d->groups ? g0 + PANEL_GROUPS : d->groups;
            fill_panel(d, g0, g1, first, panel);
            for (int r = 0; r < d->rows; r += GRADIENT_ROWS)
                for (int j = 0; j < PANEL_COLUMNS && first + j < d->columns;
                     j += PANEL_VECTORS * WIDE)
                    gradient_tile(d, g0, g1, r, first + j, panel + j);
        }
}

static void n16_linear_backward_weight(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *dy = &a->in[1];
    int inputs = (int)tensor_sample_count(x), outputs = (int)tensor_sample_count(dy),
        groups = dy->groups;
    const float *xs = tensor_f32(x), *dys = tensor_f32(dy);
    float *dw = tensor_f32(&a->out[0]), *db = tensor_f32(&a->out[1]);
    if (a->p.linear.weight_is_in_out)
        gradient_run(&(struct gradient){xs, dys, dw, inputs, outputs, groups});
    else
        gradient_run(&(struct gradient){dys, xs, dw, outputs, inputs, groups});
    for (int m = 0; m < outputs; m++) {
        float lanes[GROUP] = {0};
        for (int g = 0; g < groups; g++)
            for (int lane = 0; lane < GROUP; lane++)
                lanes[lane] += dys[((size_t)g * outputs + m) * GROUP + lane];
        db[m] = sum_of_group(lanes);
    }
}
