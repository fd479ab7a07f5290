/* Pooling in N16: every pixel is a vector, and all planes (group, channel) are alike. These loops
 * do little arithmetic and are as fast as memory. Each plane is finished before the next begins, so
 * cleared memory is still in the cache when the backward pass adds. For the common 2 x 2 window the
 * size is a constant, so its loops are unrolled; the relu before a pool is a constant, too. */

struct pool {
    size_t planes;
    int height, width, out_height, out_width, size[2], stride[2];
};

INLINE struct pool pool_of(const struct op_args *a, const struct tensor *x,
                           const struct tensor *y) {
    return (struct pool){(size_t)x->groups * x->dims[1],
                         x->dims[2],
                         x->dims[3],
                         y->dims[2],
                         y->dims[3],
                         {a->p.pool.size[0], a->p.pool.size[1]},
                         {a->p.pool.stride[0], a->p.pool.stride[1]}};
}

INLINE int is_2x2(const struct pool *s) {
    return s->size[0] == 2 && s->size[1] == 2;
}

/* Floats from the start of a plane to the first pixel of window (p, q). */
INLINE size_t window_at(const struct pool *s, int p, int q) {
    return ((size_t)p * s->stride[0] * s->width + (size_t)q * s->stride[1]) * GROUP;
}

/* Floats from the first pixel of a window to its row i, column j. */
INLINE size_t tap_at(const struct pool *s, int i, int j) {
    return ((size_t)i * s->width + j) * GROUP;
}

/* Prepares a plane of dx. Adjacent windows will write every pixel except the margins at the right
 * and the bottom, so only these are cleared. Windows that overlap or leave gaps will add, so the
 * whole plane is cleared. */
INLINE void clear_uncovered(const struct pool *s, float *dx, int side_by_side) {
    int height = side_by_side ? s->out_height * s->size[0] : 0,
        width = side_by_side ? s->out_width * s->size[1] : 0;
    for (int h = 0; h < s->height; h++) {
        int begin = h < height ? width : 0;
        memset(dx + ((size_t)h * s->width + begin) * GROUP, 0,
               (size_t)(s->width - begin) * GROUP * sizeof(float));
    }
}

/* The value of a pixel of x for the pool, which is its relu if `relu` is 1. */
INLINE vec seen(const float *x, const int relu) {
    vec value = load(x);
    return relu ? select_vec(value < 0, splat(0), value) : value;
}

/* The part of a gradient that passes back through the relu of x. */
INLINE vec through_relu(const float *x, vec dx, const int relu) {
    return relu ? select_vec(load(x) > 0, dx, splat(0)) : dx;
}

/* The same for a plane, after all windows, which may overlap, have added to it. */
INLINE void plane_through_relu(const struct pool *s, const float *x, float *dx) {
    for (size_t i = 0; i < plane(s->height, s->width); i += LANES)
        store(dx + i, through_relu(x + i, load(dx + i), 1));
}

/* The largest value of a window and its tap, lane by lane: the first of equals; NaN is larger than
 * any number. */
struct peak {
    vec value;
    ivec tap;
};

INLINE struct peak peak_of(const struct pool *s, const float *window, const int rows,
                           const int columns, const int relu) {
    struct peak best = {seen(window, relu), (ivec){0}};
    for (int tap = 1; tap < rows * columns; tap++) {
        vec value = seen(window + tap_at(s, tap / columns, tap % columns), relu);
        ivec wins = (value > best.value) | (value != value);
        best.value = select_vec(wins, value, best.value);
        best.tap = (wins & tap) | (~wins & best.tap);
    }
    return best;
}

INLINE vec mean_of(const struct pool *s, const float *window, const int rows, const int columns,
                   const int relu) {
    vec sum = splat(0);
    for (int tap = 0; tap < rows * columns; tap++)
        sum += seen(window + tap_at(s, tap / columns, tap % columns), relu);
    return sum / splat((float)(rows * columns));
}

/* `max` 1: the maximum of each window; 0: its mean. */
INLINE void pool_forward(const struct pool *s, const float *x, float *y, const int max,
                         const int rows, const int columns, const int relu) {
    for (size_t i = 0; i < s->planes; i++, x += plane(s->height, s->width))
        for (int p = 0; p < s->out_height; p++)
            for (int q = 0; q < s->out_width; q++, y += GROUP)
                for (int lane = 0; lane < GROUP; lane += LANES) {
                    const float *window = x + window_at(s, p, q) + lane;
                    store(y + lane, max ? peak_of(s, window, rows, columns, relu).value
                                        : mean_of(s, window, rows, columns, relu));
                }
}

/* `apart` 1: the windows are side by side, so each pixel of dx is written once; 0: each window adds
 * its share. A mean without a relu has no x. */
INLINE void pool_backward(const struct pool *s, const float *x, const float *dy, float *dx,
                          const int max, const int rows, const int columns, const int apart,
                          const int relu) {
    vec area = splat((float)(rows * columns));
    for (size_t i = 0; i < s->planes; i++, dx += plane(s->height, s->width)) {
        clear_uncovered(s, dx, apart);
        for (int p = 0; p < s->out_height; p++)
            for (int q = 0; q < s->out_width; q++, dy += GROUP)
                for (int lane = 0; lane < GROUP; lane += LANES) {
                    size_t window = window_at(s, p, q) + (size_t)lane;
                    vec gradient = max ? load(dy + lane) : load(dy + lane) / area;
                    struct peak best = {0};
                    if (max) best = peak_of(s, x + window, rows, columns, relu);
                    for (int tap = 0; tap < rows * columns; tap++) {
                        size_t at = window + tap_at(s, tap / columns, tap % columns);
                        vec share = gradient;
                        if (max) share = select_vec(best.tap == tap, gradient, splat(0));
                        store(dx + at,
                              apart ? through_relu(x + at, share, relu) : load(dx + at) + share);
                    }
                }
        if (relu && !apart) plane_through_relu(s, x, dx);
        if (max || relu) x += plane(s->height, s->width);
    }
}

INLINE void pool_forward_of(const struct op_args *a, const int max) {
    const struct pool s = pool_of(a, &a->in[0], &a->out[0]);
    const float *x = tensor_f32(&a->in[0]);
    float *y = tensor_f32(&a->out[0]);
    if (is_2x2(&s) && a->p.pool.relu)
        pool_forward(&s, x, y, max, 2, 2, 1);
    else if (is_2x2(&s))
        pool_forward(&s, x, y, max, 2, 2, 0);
    else
        pool_forward(&s, x, y, max, s.size[0], s.size[1], a->p.pool.relu);
}

/* dy is operand 1 of the maximum's op and 0 of the mean's; x is the other one. */
INLINE void pool_backward_of(const struct op_args *a, const int max) {
    const struct pool s = pool_of(a, &a->out[0], &a->in[max]);
    const float *x = tensor_f32(&a->in[!max]), *dy = tensor_f32(&a->in[max]);
    float *dx = tensor_f32(&a->out[0]);
    const int apart = is_2x2(&s) && s.stride[0] == 2 && s.stride[1] == 2;
    if (apart && a->p.pool.relu)
        pool_backward(&s, x, dy, dx, max, 2, 2, 1, 1);
    else if (apart)
        pool_backward(&s, x, dy, dx, max, 2, 2, 1, 0);
    else
        pool_backward(&s, x, dy, dx, max, s.size[0], s.size[1], 0, a->p.pool.relu);
}

#define POOL_KERNEL(pass, kind, max)                                \
    static void n16_##kind##_pool_##pass(const struct op_args *a) { \
        pool_##pass##_of(a, max);                                   \
    }
POOL_KERNEL(forward, avg, 0)
POOL_KERNEL(backward, avg, 0)
POOL_KERNEL(forward, max, 1)
POOL_KERNEL(backward, max, 1)

/* ---- adaptive pools: a given number of windows ---- */

/* The mean over a window in a plane of x, `width` pixels wide; `x` points to the lane. */
INLINE vec mean_of_span(const float *x, int width, struct pool_span rows,
                        struct pool_span columns) {
    vec sum = splat(0);
    for (int h = rows.begin; h < rows.end; h++) {
        const float *pixel = x + ((size_t)h * width + columns.begin) * GROUP;
        vec row = splat(0);
        for (int w = columns.begin; w < columns.end; w++, pixel += GROUP)
            row += load(pixel);
        sum += row;
    }
    return sum / splat(pool_area(rows, columns));
}

static void n16_adaptive_avg_pool_forward(const struct op_args *a) {
    struct pool s = pool_of(a, &a->in[0], &a->out[0]);
    const float *x = tensor_f32(&a->in[0]);
    float *y = tensor_f32(&a->out[0]);
    for (size_t i = 0; i < s.planes; i++, x += plane(s.height, s.width))
        for (int p = 0; p < s.out_height; p++)
            for (int q = 0; q < s.out_width; q++, y += GROUP)
                for (int lane = 0; lane < GROUP; lane += LANES)
                    store(y + lane,
                          mean_of_span(x + lane, s.width, pool_span(p, s.height, s.out_height),
                                       pool_span(q, s.width, s.out_width)));
}

/* Adds dy / area to the pixels of a window. With `alone` 1 the window is the whole plane, and it
 * writes instead. */
INLINE void spread_over_span(const struct pool *s, vec dy, float *dx, struct pool_span rows,
                             struct pool_span columns, const int alone) {
    vec share = dy / splat(pool_area(rows, columns));
    for (int h = rows.begin; h < rows.end; h++) {
        float *pixel = dx + ((size_t)h * s->width + columns.begin) * GROUP;
        for (int w = columns.begin; w < columns.end; w++, pixel += GROUP)
            store(pixel, alone ? share : load(pixel) + share);
    }
}

static void n16_adaptive_avg_pool_backward(const struct op_args *a) {
    struct pool s = pool_of(a, &a->out[0], &a->in[0]);
    const float *dy = tensor_f32(&a->in[0]);
    float *dx = tensor_f32(&a->out[0]);
    int alone = s.out_height == 1 && s.out_width == 1;
    for (size_t i = 0; i < s.planes; i++, dx += plane(s.height, s.width)) {
        if (!alone) memset(dx, 0, plane(s.height, s.width) * sizeof(float));
        for (int p = 0; p < s.out_height; p++)
            for (int q = 0; q < s.out_width; q++, dy += GROUP)
                for (int lane = 0; lane < GROUP; lane += LANES) {
                    struct pool_span rows = pool_span(p, s.height, s.out_height),
                                     columns = pool_span(q, s.width, s.out_width);
                    spread_over_span(&s, load(dy + lane), dx + lane, rows, columns, alone);
                }
    }
}
