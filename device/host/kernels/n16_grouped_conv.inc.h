/* Convolution with groups in N16. The common case is depthwise, one channel a group: a few products
 * for each pixel, so the loads of weights and the questions at the borders count. A vector is one
 * pixel of 16 samples; up to eight pixels of a row share each weight. */

struct grouped {
    int groups, channels, outputs, height, width, out_height, out_width;
    int of_group, each; /* channels of x and of y in a group of channels */
    int rows, columns;  /* of the window */
    struct grouped_conv_args p;
};

INLINE struct grouped grouped_of(const struct op_args *a, const struct tensor *x,
                                 const struct tensor *w, const struct tensor *y) {
    return (struct grouped){y->groups,  x->dims[1], y->dims[1],
                            x->dims[2], x->dims[3], y->dims[2],
                            y->dims[3], w->dims[1], y->dims[1] / a->p.grouped_conv.groups,
                            w->dims[2], w->dims[3], a->p.grouped_conv};
}

/* Taps first .. end-1 of a window of `taps` that begins at `start` lie on pixels 0 .. size-1. */
struct taps {
    int first, end;
};

INLINE struct taps taps_inside(int start, int taps, int dilation, int size) {
    int last = start + (taps - 1) * dilation;
    struct taps t = {0, taps};
    if (start < 0) t.first = (-start + dilation - 1) / dilation;
    if (last >= size) t.end = start >= size ? 0 : (size - 1 - start) / dilation + 1;
    if (t.end < t.first) t.end = t.first;
    return t;
}

/* Where the windows of row p and of column q begin. */
INLINE int start_of(const struct grouped *s, int side, int at) {
    return at * s->p.stride[side] - s->p.padding[side];
}

/* What the pixels of a run have in common: taps in three nested loops, each with the weight and the
 * pixel that go with it. Forward these are channels, rows and columns of a window; backward, where
 * a pixel of x collects from dy, they are outputs, and rows and columns from the last to the
 * first. */
struct tap_loop {
    int count;
    ptrdiff_t weight, pixel; /* from one tap to the next, in floats */
};

struct window_run {
    struct tap_loop loop[2];     /* the third is of the columns: struct row_run */
    const float *weights, *from; /* of the first tap, and of the first pixel of the run */
    float *to;
    ptrdiff_t from_step, to_step; /* from one pixel of the run to the next */
};

/* `count` pixels from `from` and `to` on, whose sums begin at `start`: a weight serves them all. */
INLINE void run_tile(const struct window_run *r, const struct tap_loop columns, const float *w,
                     const float *from, float *to, int count, float start) {
    const ptrdiff_t step = r->from_step, to_step = r->to_step;
    const struct tap_loop planes = r->loop[0], rows = r->loop[1];
    vec sum[8];
    UNROLL for (int i = 0; i < count; i++) sum[i] = splat(start);
    for (int i = 0; i < planes.count; i++, w += planes.weight, from += planes.pixel) {
        const float *w_row = w, *x_row = from;
        for (int j = 0; j < rows.count; j++, w_row += rows.weight, x_row += rows.pixel) {
            const float *tap = w_row, *x = x_row;
            for (int k = 0; k < columns.count; k++, tap += columns.weight, x += columns.pixel) {
                const vec weight = splat(*tap);
                UNROLL for (int l = 0; l < count; l++) sum[l] =
                    fused(load(x + l * step), weight, sum[l]);
            }
        }
    }
    UNROLL for (int i = 0; i < count; i++) store(to + i * to_step, sum[i]);
}

/* Runs of a row, which are those of every row; a row that has more is done in several goes. */
enum { MOST_RUNS = 64 };
struct row_runs {
    int count;
    struct row_run {
        int to, count;          /* its first pixel, and how many */
        ptrdiff_t weight, from; /* of its first tap, from those of the row */
        struct tap_loop columns;
    } run[MOST_RUNS];
};

static void run_row(const struct row_runs *all, const struct window_run *r, float start) {
    for (const struct row_run *run = all->run; run < all->run + all->count; run++)
        for (size_t lane = 0; lane < GROUP; lane += LANES) {
            const float *w = r->weights + run->weight, *from = r->from + run->from + lane;
            float *to = r->to + (ptrdiff_t)run->to * GROUP + lane;
            int left = run->count;
            for (; left >= 8; left -= 8, from += 8 * r->from_step, to += 8 * r->to_step)
                run_tile(r, run->columns, w, from, to, 8, start);
            for (; left >= 4; left -= 4, from += 4 * r->from_step, to += 4 * r->to_step)
                run_tile(r, run->columns, w, from, to, 4, start);
            for (; left > 0; left--, from += r->from_step, to += r->to_step)
                run_tile(r, run->columns, w, from, to, 1, start);
        }
}

/* Forward: windows that lie inside from side to side are one run. The runs from output q on;
 * returns the output behind them. */
static int forward_runs(const struct grouped *s, int q, struct row_runs *all) {
    all->count = 0;
    for (int same; q < s->out_width && all->count < MOST_RUNS; q += same) {
        const int left = start_of(s, 1, q), dilation = s->p.dilation[1];
        const struct taps across = taps_inside(left, s->columns, dilation, s->width);
        const int room = s->width - 1 - left - (s->columns - 1) * dilation;
        same = left >= 0 && room >= 0 ? 1 + room / s->p.stride[1] : 1;
        if (same > s->out_width - q) same = s->out_width - q;
        all->run[all->count++] =
            (struct row_run){q,
                             same,
                             across.first,
                             (ptrdiff_t)(left + across.first * dilation) * GROUP,
                             {across.end - across.first, 1, (ptrdiff_t)dilation * GROUP}};
    }
    return q;
}

static void forward_rows(const struct grouped *s, const struct op_args *a,
                         const struct row_runs *runs) {
    const size_t row = (size_t)s->width * GROUP, filter = (size_t)s->rows * (size_t)s->columns,
                 x_plane = plane(s->height, s->width);
    float *y = tensor_f32(&a->out[0]);
    for (int n = 0; n < s->groups; n++)
        for (int o = 0; o < s->outputs; o++) {
            const float *w = tensor_f32(&a->in[1]) + (size_t)(o * s->of_group) * filter,
                        *x = tensor_f32(&a->in[0]) +
                             (size_t)(n * s->channels + o / s->each * s->of_group) * x_plane;
            for (int p = 0; p < s->out_height; p++, y += (size_t)s->out_width * GROUP) {
                const int top = start_of(s, 0, p), dilation = s->p.dilation[0];
                const struct taps down = taps_inside(top, s->rows, dilation, s->height);
                const struct window_run r = {
                    {{s->of_group, (ptrdiff_t)filter, (ptrdiff_t)x_plane},
                     {down.end - down.first, s->columns, dilation * (ptrdiff_t)row}},
                    w + down.first * s->columns,
                    x + (top + down.first * dilation) * (ptrdiff_t)row,
                    y,
                    (ptrdiff_t)s->p.stride[1] * GROUP,
                    GROUP};
                run_row(runs, &r, tensor_f32(&a->in[2])[o]);
            }
        }
}

static void n16_grouped_conv_forward(const struct op_args *a) {
    if (a->in[0].layout == LAYOUT_PLAIN) {
        reference_grouped_conv_forward(a);
        return;
    }
    const struct grouped s = grouped_of(a, &a->in[0], &a->in[1], &a->out[0]);
    struct row_runs runs;
    for (int q = 0; q < s.out_width;) {
        q = forward_runs(&s, q, &runs);
        forward_rows(&s, a, &runs);
    }
}

/* The taps that reach pixel `at` of a side of x, from the last to the first: as the windows are a
 * stride apart, every `every`th. The first of them is of output `output`. `same` pixels, a stride
 * apart from here, are reached by the same taps of the next outputs. */
struct reach {
    int count, tap, every, output, outputs_apart, same;
};

static struct reach reach_of(const struct grouped *s, int side, int at) {
    const int taps = side ? s->columns : s->rows, stride = s->p.stride[side],
              outputs = side ? s->out_width : s->out_height, size = side ? s->width : s->height;
    struct reach r = {.same = (size - 1 - at) / stride + 1};
    for (int tap = taps - 1; tap >= 0; tap--) {
        const int start = at + s->p.padding[side] - tap * s->p.dilation[side];
        const int output = start / stride, left = start < 0 ? -output : outputs - output;
        if (start % stride || left <= 0) continue;
        if (left < r.same) r.same = left;
        if (start < 0) continue;
        if (!r.count) r.tap = tap, r.output = output;
        if (r.count == 1) r.every = r.tap - tap, r.outputs_apart = output - r.output;
        r.count++;
    }
    return r;
}

/* The runs from pixel w on, those of a stride's first pixels before those of its second; returns
 * the first pixel of the next run, or -1. */
static int backward_runs(const struct grouped *s, int w, struct row_runs *all) {
    const int stride = s->p.stride[1], firsts = stride < s->width ? stride : s->width;
    all->count = 0;
    while (w >= 0 && all->count < MOST_RUNS) {
        const struct reach across = reach_of(s, 1, w);
        all->run[all->count++] = (struct row_run){
            w,
            across.same,
            across.tap,
            (ptrdiff_t)across.output * GROUP,
            {across.count, -across.every, (ptrdiff_t)across.outputs_apart * GROUP}};
        const int next = w % stride + 1;
        w += across.same * stride;
        if (w >= s->width) w = next < firsts ? next : -1;
    }
    return w;
}

static void backward_rows(const struct grouped *s, const struct op_args *a,
                          const struct row_runs *runs) {
    const size_t row = (size_t)s->out_width * GROUP, filter = (size_t)s->rows * (size_t)s->columns,
                 y_plane = plane(s->out_height, s->out_width), taps = (size_t)s->of_group * filter;
    float *dx = tensor_f32(&a->out[0]);
    for (int n = 0; n < s->groups; n++)
        for (int c = 0; c < s->channels; c++) {
            const size_t first = (size_t)(c / s->of_group * s->each);
            const float *w = tensor_f32(&a->in[1]) + first * taps +
                             (size_t)(c % s->of_group) * filter,
                        *dy = tensor_f32(&a->in[0]) +
                              ((size_t)n * (size_t)s->outputs + first) * y_plane;
            for (int h = 0; h < s->height; h++, dx += (size_t)s->width * GROUP) {
                const struct reach down = reach_of(s, 0, h);
                const struct window_run r = {{{s->each, (ptrdiff_t)taps, (ptrdiff_t)y_plane},
                                              {down.count, -(ptrdiff_t)down.every * s->columns,
                                               down.outputs_apart * (ptrdiff_t)row}},
                                             w + down.tap * s->columns,
                                             dy + (size_t)down.output * row,
                                             dx,
                                             GROUP,
                                             (ptrdiff_t)s->p.stride[1] * GROUP};
                run_row(runs, &r, 0);
            }
        }
}

/* Each pixel of x collects from the outputs whose window it lies in. */
static void n16_grouped_conv_backward_data(const struct op_args *a) {
    if (a->in[0].layout == LAYOUT_PLAIN) {
        reference_grouped_conv_backward_data(a);
        return;
    }
    const struct grouped s = grouped_of(a, &a->out[0], &a->in[1], &a->in[0]);
    struct row_runs runs;
    for (int w = s.width ? 0 : -1; w >= 0;) {
        w = backward_runs(&s, w, &runs);
        backward_rows(&s, a, &runs);
    }
}

/* The outputs first .. end-1 whose tap lies inside, where a row of outputs begins at `start`. */
INLINE struct taps outputs_inside(int start, int stride, int size, int outputs) {
    struct taps t = {0, outputs};
    if (start < 0) t.first = (-start + stride - 1) / stride;
    if (start >= size) t.end = 0;
    if (start < size && (size - 1 - start) / stride + 1 < outputs)
        t.end = (size - 1 - start) / stride + 1;
    if (t.first > t.end) t.first = t.end;
    return t;
}

/* The sum of dy, times x where it is not NULL, along the outputs `across` of a row; `dy` and `x`
 * are at the lane. Four chains of sums at a time. */
INLINE vec row_sum(const float *dy, const float *x, int left, int stride, struct taps across) {
    vec sum[4] = {splat(0), splat(0), splat(0), splat(0)};
    const size_t step = (size_t)stride * GROUP;
    const int count = across.end - across.first;
    dy += across.first * GROUP;
    if (x) x += (left + across.first * stride) * GROUP;
    int q = 0;
    for (; q + 4 <= count; q += 4, dy += 4 * GROUP) {
        UNROLL for (size_t i = 0; i < 4; i++) {
            const vec share = load(dy + i * GROUP);
            sum[i] = x ? fused(share, load(x + i * step), sum[i]) : sum[i] + share;
        }
        if (x) x += 4 * step;
    }
    UNROLL for (size_t i = 0; i < 3; i++) {
        if ((int)i >= count - q) break;
        const vec share = load(dy + i * GROUP);
        sum[i] = x ? fused(share, load(x + i * step), sum[i]) : sum[i] + share;
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Taps of a window whose gradients are summed side by side: a block of it, of at most so many. */
enum { TAPS_TOGETHER = 64 };

struct window_block {
    int row, column, rows, columns;    /* its first tap, and how many */
    struct taps across[TAPS_TOGETHER]; /* of each column: the outputs whose tap lies inside */
};

/* Columns of the window from `column` on, as many as go together. */
static void block_columns(const struct grouped *s, int column, struct window_block *b) {
    const int left = s->columns - column;
    b->column = column;
    b->columns = left < TAPS_TOGETHER ? left : TAPS_TOGETHER;
    for (int k = 0; k < b->columns; k++)
        b->across[k] = outputs_inside((column + k) * s->p.dilation[1] - s->p.padding[1],
                                      s->p.stride[1], s->width, s->out_width);
}

static void block_rows(const struct grouped *s, int row, struct window_block *b) {
    const int left = s->rows - row, most = TAPS_TOGETHER / b->columns;
    b->row = row;
    b->rows = left < most ? left : most;
}

/* Adds to sums[] what row p of dy gives to the weights of those taps. */
INLINE void add_row(const struct grouped *s, const struct window_block *b, vec *sums, int p,
                    const float *dy_row, const float *x) {
    for (int i = 0; i < b->rows; i++, sums += b->columns) {
        const int h = start_of(s, 0, p) + (b->row + i) * s->p.dilation[0];
        if (h < 0 || h >= s->height) continue;
        const float *x_row = x + (size_t)h * (size_t)s->width * GROUP;
        int left = b->column * s->p.dilation[1] - s->p.padding[1];
        for (int k = 0; k < b->columns; k++, left += s->p.dilation[1])
            sums[k] += row_sum(dy_row, x_row, left, s->p.stride[1], b->across[k]);
    }
}

/* dw of those taps, a window of channel plane x, of which the groups are x_step apart; with x NULL
 * the gradient of the bias. A row of x and dy is read for all taps while the cache has it. */
INLINE void grouped_weights(const struct grouped *s, const struct window_block *b, float *dw,
                            const float *dy, const float *x, int o, size_t x_step) {
    const int count = x ? b->rows * b->columns : 1;
    const size_t y_row = (size_t)s->out_width * GROUP;
    float lanes[TAPS_TOGETHER][GROUP];
    for (size_t lane = 0; lane < GROUP; lane += LANES) {
        vec sums[TAPS_TOGETHER];
        for (int i = 0; i < count; i++)
            sums[i] = splat(0);
        for (int n = 0; n < s->groups; n++) {
            const float *row =
                dy + lane + (size_t)(n * s->outputs + o) * (size_t)s->out_height * y_row;
            for (int p = 0; p < s->out_height; p++, row += y_row)
                if (x)
                    add_row(s, b, sums, p, row, x + lane + (size_t)n * x_step);
                else
                    sums[0] += row_sum(row, NULL, 0, 1, (struct taps){0, s->out_width});
        }
        for (int i = 0; i < count; i++)
            store(lanes[i] + lane, sums[i]);
    }
    if (!x) *dw = sum_of_group(lanes[0]);
    for (int i = 0; x && i < count; i++)
        dw[(b->row + i / b->columns) * s->columns + b->column + i % b->columns] =
            sum_of_group(lanes[i]);
}

static void n16_grouped_conv_backward_weight(const struct op_args *a) {
    if (a->in[0].layout == LAYOUT_PLAIN) {
        reference_grouped_conv_backward_weight(a);
        return;
    }
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
            for (int g = 0; g < s.of_group; g++, x += x_plane, dw += filter)
                for (int row = 0; row < s.rows; row += b.rows) {
                    block_rows(&s, row, &b);
                    grouped_weights(&s, &b, dw, dy, x, o, x_step);
                }
            if (!column) grouped_weights(&s, &b, tensor_f32(&a->out[1]) + o, dy, NULL, o, 0);
        }
    }
}
