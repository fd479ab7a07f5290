/* The gradient of a grouped convolution's weights in N16. Each row of dy contributes a sum to each
 * tap; neighbouring taps are summed together, because they use the same pixels. */

/* Where the windows in row p and in column q begin. */
INLINE int start_of(const struct grouped *s, int side, int at) {
    return at * s->p.stride[side] - s->p.padding[side];
}

/* The outputs first .. end-1 whose tap is inside, if a row of outputs begins at `start`. */
INLINE struct taps outputs_inside(int start, int stride, int size, int outputs) {
    struct taps t = {0, outputs};
    if (start < 0) t.first = (-start + stride - 1) / stride;
    if (start >= size) t.end = 0;
    if (start < size && (size - 1 - start) / stride + 1 < outputs)
        t.end = (size - 1 - start) / stride + 1;
    if (t.first > t.end) t.first = t.end;
    return t;
}

/* The most taps of a window whose gradients are summed together, as a block. */
enum { TAPS_TOGETHER = 64 };

struct window_block {
    int row, column, rows, columns; /* its first tap, and the number of taps */
    struct column {
        struct taps across; /* the outputs whose tap is inside */
        int left;           /* the tap's column for the first of them */
        int sharing;        /* number of neighbours computed together */
    } at[TAPS_TOGETHER];
};

/* Neighbouring taps use the same pixels of dy, and pixels of x a constant distance further on. */
struct sharing {
    int taps, stride, dy[3], x[3];
};
static const struct sharing sharings[] = {
    {3, 1, {2, 1, 0}, {0, 0, 0}}, {3, 1, {1, 0, 0}, {0, 0, 1}}, {3, 1, {0, 0, 0}, {0, 1, 2}},
    {3, 2, {1, 1, 0}, {0, 1, 0}}, {3, 2, {1, 0, 0}, {1, 0, 1}}, {3, 2, {0, 0, 0}, {0, 1, 2}},
    {2, 1, {0, 0}, {0, 1}},       {2, 2, {0, 0}, {0, 1}},
};
enum { SHARINGS = sizeof sharings / sizeof *sharings };

static int sharing_of(const struct column *at, int columns, int stride) {
    for (int i = 0; i < SHARINGS; i++) {
        const struct sharing *share = &sharings[i];
        int same = stride == share->stride && columns >= share->taps;
        for (int k = 1; same && k < share->taps; k++)
            same = at[k].across.first - at->across.first == share->dy[k] - share->dy[0] &&
                   at[k].left - at->left == share->x[k] - share->x[0];
        if (same) return i;
    }
    return SHARINGS;
}

/* Finds the columns of the window, from `column` on, that are computed together. */
static void block_columns(const struct grouped *s, int column, struct window_block *b) {
    const int left = s->columns - column;
    b->column = column;
    b->columns = left < TAPS_TOGETHER ? left : TAPS_TOGETHER;
    for (int k = 0; k < b->columns; k++) {
        const int start = (column + k) * s->p.dilation[1] - s->p.padding[1];
        const struct taps across = outputs_inside(start, s->p.stride[1], s->width, s->out_width);
        b->at[k] = (struct column){across, start + across.first * s->p.stride[1], 0};
    }
    for (int k = 0; k < b->columns; k++)
        b->at[k].sharing = sharing_of(b->at + k, b->columns - k, s->p.stride[1]);
}

static void block_rows(const struct grouped *s, int row, struct window_block *b) {
    const int left = s->rows - row, most = TAPS_TOGETHER / b->columns;
    b->row = row;
    b->rows = left < most ? left : most;
}

/* A row of dy, and the rows of x that its outputs' taps use. */
struct meeting {
    const float *dy, *x;
    size_t x_step;     /* from a row of x to that of the next tap */
    int rows, columns; /* of taps; a row has `columns` sums */
};

/* Adds four outputs to each tap, or with `left` only the remaining ones. */
INLINE void add_four(vec chain[3][4], const float *dy, const float *x, const struct sharing share,
                     const int *left) {
    UNROLL for (int i = 0; i < 4; i++) {
        UNROLL for (int k = 0; k < share.taps; k++) {
            if (!left || i < left[k])
                chain[k][i] = fused(load(dy + (i + share.dy[k]) * GROUP),
                                    load(x + (i * share.stride + share.x[k]) * GROUP), chain[k][i]);
        }
    }
}

/* Adds the row's contribution to the weights of the taps to sums[], in four chains each. */
INLINE void add_taps(vec *sums, const struct meeting *m, const struct column *at,
                     const struct sharing share) {
    const float *dy_row = m->dy + (at->across.first - share.dy[0]) * GROUP,
                *x_row = m->x + (at->left - share.x[0]) * GROUP;
    int count[3], least, most;
    UNROLL for (int k = 0; k < share.taps; k++) {
        count[k] = at[k].across.end - at[k].across.first;
        if (!k || count[k] < least) least = count[k];
        if (!k || count[k] > most) most = count[k];
    }
    for (int row = 0; row < m->rows; row++, sums += m->columns, x_row += m->x_step) {
        const float *dy = dy_row, *x = x_row;
        vec chain[3][4];
        UNROLL for (int k = 0; k < share.taps; k++) {
            UNROLL for (int i = 0; i < 4; i++) chain[k][i] = splat(0);
        }
        int q = 0;
        for (; q + 4 <= least; q += 4, dy += 4 * GROUP, x += 4 * share.stride * GROUP)
            add_four(chain, dy, x, share, NULL);
        for (; q < most; q += 4, dy += 4 * GROUP, x += 4 * share.stride * GROUP)
            add_four(chain, dy, x, share, (int[]){count[0] - q, count[1] - q, count[2] - q});
        UNROLL for (int k = 0; k < share.taps; k++) sums[k] +=
            (chain[k][0] + chain[k][1]) + (chain[k][2] + chain[k][3]);
    }
}

/* Its contribution to one tap, over `count` outputs; x NULL: only the sum of dy. */
INLINE vec row_sum(const float *dy, const float *x, int count, size_t step) {
    vec chain[4] = {splat(0), splat(0), splat(0), splat(0)};
    for (int q = 0; q < count; q += 4, dy += 4 * GROUP) {
        UNROLL for (size_t i = 0; i < 4; i++) {
            if (q + (int)i >= count) break;
            const vec share = load(dy + i * GROUP);
            chain[i] = x ? fused(share, load(x + i * step), chain[i]) : chain[i] + share;
        }
        if (x) x += 4 * step;
    }
    return (chain[0] + chain[1]) + (chain[2] + chain[3]);
}

static void add_row(vec *sums, const struct meeting *m, const struct column *at, int stride) {
    for (int taps, k = 0; k < m->columns; k += taps, at += taps) {
        taps = at->sharing < SHARINGS ? sharings[at->sharing].taps : 1;
        switch (at->sharing) { /* the kernels need a constant for `sharing` */
        case 0: add_taps(sums + k, m, at, sharings[0]); break;
        case 1: add_taps(sums + k, m, at, sharings[1]); break;
        case 2: add_taps(sums + k, m, at, sharings[2]); break;
        case 3: add_taps(sums + k, m, at, sharings[3]); break;
        case 4: add_taps(sums + k, m, at, sharings[4]); break;
        case 5: add_taps(sums + k, m, at, sharings[5]); break;
        case 6: add_taps(sums + k, m, at, sharings[6]); break;
        case 7: add_taps(sums + k, m, at, sharings[7]); break;
        default:
            for (int row = 0; row < m->rows; row++)
                sums[row * m->columns + k] +=
                    row_sum(m->dy + at->across.first * GROUP,
                            m->x + (size_t)row * m->x_step + at->left * GROUP,
                            at->across.end - at->across.first, (size_t)stride * GROUP);
        }
    }
}

/* dw for those taps, a window in channel plane x, whose groups are x_step apart; also the bias's
 * gradient unless db is NULL. A row of x and dy serves all taps while the cache has it. */
static void grouped_weights(const struct grouped *s, const struct window_block *b, float *dw,
                            float *db, const float *dy, const float *x, int o, size_t x_step) {
    const int count = b->rows * b->columns, dilation = s->p.dilation[0];
    const size_t x_row = (size_t)s->width * GROUP, y_row = (size_t)s->out_width * GROUP;
    vec sums[PARTS][TAPS_TOGETHER + 1];
    for (int part = 0; part < PARTS; part++)
        for (int i = 0; i <= count; i++)
            sums[part][i] = splat(0);
    for (int n = 0; n < s->groups; n++, x += x_step) {
        const float *row = dy + (size_t)(n * s->outputs + o) * (size_t)s->out_height * y_row;
        for (int p = 0; p < s->out_height; p++, row += y_row) {
            const int top = start_of(s, 0, p) + b->row * dilation;
            const struct taps down = taps_inside(top, b->rows, dilation, s->height);
            for (int part = 0; part < PARTS; part++) {
                const struct meeting m = {
                    row + part * LANES,
                    x + part * LANES + (ptrdiff_t)(top + down.first * dilation) * (ptrdiff_t)x_row,
                    (size_t)dilation * x_row, down.end - down.first, b->columns};
                add_row(sums[part] + down.first * b->columns, &m, b->at, s->p.stride[1]);
                if (db) sums[part][count] += row_sum(m.dy, NULL, s->out_width, 0);
            }
        }
    }
    float lanes[GROUP];
    for (int i = 0; i <= count; i++) {
        for (int part = 0; part < PARTS; part++)
            store(lanes + part * LANES, sums[part][i]);
        if (i < count)
            dw[(b->row + i / b->columns) * s->columns + b->column + i % b->columns] =
                sum_of_group(lanes);
        else if (db)
            *db = sum_of_group(lanes);
    }
}

static void grouped_conv_backward_weight(const struct op_args *a) {
    const struct grouped s = grouped_of(a, &a->in[0], &a->out[0], &a->in[1]);
    const size_t x_plane = plane(s.height, s.width), x_step = (size_t)s.channels * x_plane,
                 filter = (size_t)s.rows * (size_t)s.columns;
    const float *dy = tensor_f32(&a->in[1]);
    struct window_block b;
    for (int column = 0; column < s.columns; column += b.columns) {
        block_columns(&s, column, &b);
        float *dw = tensor_f32(&a->out[0]);
        for (int o = 0; o < s.outputs; o++) {
            const float *x = tensor_f32(&a->in[0]) + (size_t)(o / s.each * s.of_group) * x_plane;
            float *db = column ? NULL : tensor_f32(&a->out[1]) + o;
            for (int g = 0; g < s.of_group; g++, x += x_plane, dw += filter)
                for (int row = 0; row < s.rows; row += b.rows, db = NULL) {
                    block_rows(&s, row, &b);
                    grouped_weights(&s, &b, dw, db, dy, x, o, x_step);
                }
        }
    }
}
