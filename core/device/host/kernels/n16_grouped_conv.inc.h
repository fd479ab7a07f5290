/* Convolution with groups in N16. The common case is depthwise, with one channel per group and few
 * products per pixel, so loads and border checks dominate. A vector is one pixel of a group. Eight
 * pixels of a row are computed together, so a load serves all its windows. */

struct grouped {
    int groups, channels, outputs, height, width, out_height, out_width;
    int of_group, each; /* channels of x and of y in a group of channels */
    int rows, columns;  /* size of the window */
    struct conv_args p;
};

INLINE struct grouped grouped_of(const struct op_args *a, const struct tensor *x,
                                 const struct tensor *w, const struct tensor *y) {
    return (struct grouped){y->groups,  x->dims[1], y->dims[1],
                            x->dims[2], x->dims[3], y->dims[2],
                            y->dims[3], w->dims[1], y->dims[1] / a->p.conv.groups,
                            w->dims[2], w->dims[3], a->p.conv};
}

/* The taps first .. end-1 on pixels 0 .. size-1, in a window of `taps` that begins at `start`. */
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

/* Pixels along a side of `to` that are computed alike, each from a window of `from`. In forward
 * these are all outputs. In backward, where x collects from dy, these are pixels a stride apart,
 * which the same taps reach. Taps follow their pixels, so backward starts with the last. */
struct line {
    int first, apart, count; /* of the pixels */
    int start, step;         /* where the first one's window begins, and the step to the next */
    int taps, dilation;      /* taps of a window */
    int weight, weight_step; /* offset of the first tap's weight, and the step to the next */
    int size;                /* width of `from` */
};

static struct line forward_line(const struct grouped *s, int side) {
    return (struct line){.apart = 1,
                         .count = side ? s->out_width : s->out_height,
                         .start = -s->p.padding[side],
                         .step = s->p.stride[side],
                         .taps = side ? s->columns : s->rows,
                         .dilation = s->p.dilation[side],
                         .weight_step = 1,
                         .size = side ? s->width : s->height};
}

/* The line of pixel `at` of x. */
static struct line backward_line(const struct grouped *s, int side, int at) {
    const int stride = s->p.stride[side], size = side ? s->width : s->height;
    struct line l = {.first = at,
                     .apart = stride,
                     .count = (size - 1 - at) / stride + 1,
                     .step = 1,
                     .dilation = 1,
                     .size = side ? s->out_width : s->out_height};
    for (int tap = (side ? s->columns : s->rows) - 1; tap >= 0; tap--) {
        const int start = at + s->p.padding[side] - tap * s->p.dilation[side];
        if (start % stride) continue;
        if (l.taps == 0) l.weight = tap, l.start = start / stride;
        if (l.taps == 1) l.weight_step = tap - l.weight, l.dilation = start / stride - l.start;
        l.taps++;
    }
    return l;
}

/* What the pixels of a row share: two of the three nested loops over taps, each with its steps in
 * the weights and the pixels. The third loop, over columns, belongs to a line. */
struct tap_loop {
    int count;
    ptrdiff_t weight, pixel; /* from one tap to the next, in floats */
};

struct window_row {
    struct tap_loop planes, rows;
    const float *weights, *from; /* for the first row of taps, at column 0 */
    float *to;
};

/* One row of taps in the windows of eight pixels. */
struct taps_row {
    const float *weights, *from;
    int left, edge; /* `from` is column `left`; edge 0: all taps are inside */
};

/* Adds the row if windows of `taps` neighbours are `step` apart. */
INLINE void add_neighbours(vec *sums, const struct taps_row *r, const struct line *l, int taps,
                           int step) {
    vec weight[7];
    UNROLL for (int k = 0; k < taps; k++) weight[k] = splat(r->weights[k * l->weight_step]);
    UNROLL for (int i = 0; i < 7 * step + taps; i++) {
        if (r->edge && (unsigned)(r->left + i) >= (unsigned)l->size) continue;
        const vec pixel = load_once(r->from + i * GROUP);
        UNROLL for (int k = 0; k < 8; k++) {
            const int tap = i - k * step;
            if (tap >= 0 && tap < taps) sums[k] = fused(pixel, weight[tap], sums[k]);
        }
    }
}

INLINE void add_any(vec *sums, const struct taps_row *r, const struct line *l) {
    for (int tap = 0; tap < l->taps; tap++) {
        const vec weight = splat(r->weights[tap * l->weight_step]);
        const float *from = r->from + (ptrdiff_t)(tap * l->dilation) * GROUP;
        int at = r->left + tap * l->dilation;
        UNROLL for (int k = 0; k < 8; k++, at += l->step, from += l->step * GROUP) {
            if (r->edge && (unsigned)at >= (unsigned)l->size) continue;
            sums[k] = fused(load(from), weight, sums[k]);
        }
    }
}

/* Computes up to eight pixels of a line from `at` on. With taps 0 it takes any windows. */
INLINE void run_tile(const struct window_row *r, const struct line *line, int taps, int step,
                     int at, int edge, size_t lane, float start) {
    const struct line l = *line;
    const struct tap_loop planes = r->planes, rows = r->rows;
    const ptrdiff_t left = l.start + at * l.step, apart = (ptrdiff_t)l.apart * GROUP;
    struct taps_row plane = {r->weights, r->from + lane + left * GROUP, (int)left, edge};
    vec sums[8];
    UNROLL for (int k = 0; k < 8; k++) sums[k] = splat(start);
    for (int g = 0; g < planes.count;
         g++, plane.weights += planes.weight, plane.from += planes.pixel) {
        struct taps_row row = plane;
        for (int j = 0; j < rows.count; j++, row.weights += rows.weight, row.from += rows.pixel)
            if (taps)
                add_neighbours(sums, &row, &l, taps, step);
            else
                add_any(sums, &row, &l);
    }
    float *to = r->to + lane + l.first * GROUP + at * apart;
    UNROLL for (int k = 0; k < 8; k++, to += apart) {
        if (edge && at + k >= l.count) break;
        store(to, sums[k]);
    }
}

INLINE void run_tiles(const struct window_row *r, const struct line *l, int taps, int step, int at,
                      int end, float start) {
    for (; at < end; at += 8) {
        const int left = l->start + at * l->step,
                  right = left + 7 * l->step + (l->taps - 1) * l->dilation;
        for (size_t lane = 0; lane < GROUP; lane += LANES)
            if (left < 0 || right >= l->size || at + 8 > l->count)
                run_tile(r, l, taps, step, at, 1, lane, start);
            else
                run_tile(r, l, taps, step, at, 0, lane, start);
    }
}

/* Computes the pixels at .. end-1 of a line, as far as it has them. */
static void run_line(const struct window_row *r, const struct line *l, int at, int end,
                     float start) {
    if (end > l->count) end = l->count;
    switch (!FUSED_IS_CALL && l->dilation == 1 && l->taps < 10 ? 10 * l->step + l->taps : 0) {
    case 11: run_tiles(r, l, 1, 1, at, end, start); break;
    case 12: run_tiles(r, l, 2, 1, at, end, start); break;
    case 13: run_tiles(r, l, 3, 1, at, end, start); break;
    case 14: run_tiles(r, l, 4, 1, at, end, start); break;
    case 15: run_tiles(r, l, 5, 1, at, end, start); break;
    case 17: run_tiles(r, l, 7, 1, at, end, start); break;
    case 23: run_tiles(r, l, 3, 2, at, end, start); break;
    case 25: run_tiles(r, l, 5, 2, at, end, start); break;
    default: run_tiles(r, l, 0, 0, at, end, start);
    }
}

/* Lines of a side, the longest first. A side with more lines takes several rounds. */
struct lines {
    int count;
    struct line line[8];
};

struct grouped_pass {
    struct lines down, across;
    struct tap_loop planes;
    int columns;                /* of the window */
    ptrdiff_t from_row, to_row; /* in floats */
};

/* Computes a plane of `to`, in the order of its rows. Interleaved lines advance together, while
 * their pixels are in the cache. */
static void grouped_plane(const struct grouped_pass *s, const float *weights, const float *from,
                          float *to, float start) {
    const struct line *down = s->down.line, *across = s->across.line;
    const int columns = across->count, span = s->across.count > 1 ? 8 : columns;
    for (int i = 0; i < down->count; i++)
        for (const struct line *l = down; l < down + s->down.count && i < l->count; l++) {
            const int top = l->start + i * l->step;
            const struct taps in = taps_inside(top, l->taps, l->dilation, l->size);
            struct window_row r = {
                .planes = s->planes,
                .rows = {in.end - in.first, l->weight_step * s->columns, l->dilation * s->from_row},
                .from = from + (top + in.first * l->dilation) * s->from_row,
                .to = to + (l->first + i * l->apart) * s->to_row};
            const float *row = weights + (l->weight + in.first * l->weight_step) * s->columns;
            for (int at = 0; at < columns; at += span)
                for (int k = 0; k < s->across.count; k++) {
                    r.weights = row + across[k].weight;
                    run_line(&r, &across[k], at, at + span, start);
                }
        }
}

static void grouped_conv_forward(const struct op_args *a) {
    const struct grouped s = grouped_of(a, &a->in[0], &a->in[1], &a->out[0]);
    const size_t filter = (size_t)s.rows * (size_t)s.columns, x_plane = plane(s.height, s.width),
                 y_plane = plane(s.out_height, s.out_width);
    const struct grouped_pass pass = {{1, {forward_line(&s, 0)}},
                                      {1, {forward_line(&s, 1)}},
                                      {s.of_group, (ptrdiff_t)filter, (ptrdiff_t)x_plane},
                                      s.columns,
                                      (ptrdiff_t)s.width * GROUP,
                                      (ptrdiff_t)s.out_width * GROUP};
    const float *x = tensor_f32(&a->in[0]), *w = tensor_f32(&a->in[1]);
    float *y = tensor_f32(&a->out[0]);
    for (int n = 0; n < s.groups; n++, x += (size_t)s.channels * x_plane)
        for (int o = 0; o < s.outputs; o++, y += y_plane) {
            const size_t taps = (size_t)s.of_group * filter, first = (size_t)(o / s.each);
            grouped_plane(&pass, w + (size_t)o * taps, x + first * (size_t)s.of_group * x_plane, y,
                          tensor_f32(&a->in[2])[o]);
        }
}

/* The lines of the pixels at .. end-1 of x. */
static struct lines backward_lines(const struct grouped *s, int side, int at, int end) {
    struct lines all = {0};
    for (; at < end && all.count < 8; at++)
        all.line[all.count++] = backward_line(s, side, at);
    return all;
}

static void backward_planes(const struct grouped *s, const struct op_args *a,
                            const struct grouped_pass *pass) {
    const size_t filter = (size_t)s->rows * (size_t)s->columns,
                 y_plane = plane(s->out_height, s->out_width), taps = (size_t)s->of_group * filter;
    const float *dy = tensor_f32(&a->in[0]), *w = tensor_f32(&a->in[1]);
    float *dx = tensor_f32(&a->out[0]);
    for (int n = 0; n < s->groups; n++, dy += (size_t)s->outputs * y_plane)
        for (int c = 0; c < s->channels; c++, dx += plane(s->height, s->width)) {
            const size_t first = (size_t)(c / s->of_group * s->each);
            grouped_plane(pass, w + first * taps + (size_t)(c % s->of_group) * filter,
                          dy + first * y_plane, dx, 0);
        }
}

static void grouped_conv_backward_data(const struct op_args *a) {
    const struct grouped s = grouped_of(a, &a->out[0], &a->in[1], &a->in[0]);
    const int *stride = s.p.stride, rows = stride[0] < s.height ? stride[0] : s.height,
              columns = stride[1] < s.width ? stride[1] : s.width;
    const ptrdiff_t taps = (ptrdiff_t)s.of_group * s.rows * s.columns;
    struct grouped_pass pass = {
        .planes = {s.each, taps, (ptrdiff_t)plane(s.out_height, s.out_width)},
        .columns = s.columns,
        .from_row = (ptrdiff_t)s.out_width * GROUP,
        .to_row = (ptrdiff_t)s.width * GROUP};
    for (int h = 0; h < rows; h += pass.down.count) {
        pass.down = backward_lines(&s, 0, h, rows);
        for (int w = 0; w < columns; w += pass.across.count) {
            pass.across = backward_lines(&s, 1, w, columns);
            backward_planes(&s, a, &pass);
        }
    }
}
