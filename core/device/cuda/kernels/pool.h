/* Pooling, and its two gradients in gather form: a thread owns one pixel of dx and asks which
 * windows cover it, instead of owning a window and adding to pixels that other windows share. So no
 * two threads add to one pixel, no float atomics are needed, and the windows of a pixel are added
 * in row-major order, as in the reference. If windows do not overlap, a thread owns a window. Pool
 * and gradient may include a relu before the pool. Windows of 2 x 2 pixels side by side have their
 * own kernels, whose size is known when they are compiled.
 *
 * A pixel in row h is in the windows p with p * stride <= h < p * stride + size, that is
 *
 *     p from max(0, ceil((h - size + 1) / stride)) to min(P - 1, floor(h / stride)).
 *
 * With adaptive pools window p of P covers the rows floor(p H / P) to ceil((p+1) H / P) - 1, and by
 * the same formula row h is in the windows floor(h P / H) to ceil((h+1) P / H) - 1. */
#ifndef DEVICE_CUDA_KERNELS_POOL_H
#define DEVICE_CUDA_KERNELS_POOL_H

#include "device/cuda/kernels/kernel.h"

/* x and dx are (planes, height, width), y and dy are (planes, rows, columns); planes = N * C. */
struct pool {
    const float *x, *dy;
    float *out;
    uint32_t count;    /* elements of out, below 2^31; for gradients of adjacent windows: windows */
    float least;       /* smaller x count as this: 0 after a relu, else -infinity */
    const float *gate; /* gradients: x, where dx is 0 unless x > 0; NULL: no relu */
    int height, width, rows, columns;
    int size[2], stride[2]; /* for rows, then for columns */
    float area;             /* pixels in a window */
    float part; /* 1 / area if multiplying by it gives the same bits as dividing; else 0 */
    struct divider by_out_width, by_out_height; /* for out's own plane, or its windows */
    struct divider by_stride[2];
    struct divider by_rows, by_columns; /* for y's plane; adaptive backward */
};

/* 1 if an adaptive pool's products of an index and a side are too large for the dividers. */
static inline int pool_too_long(const struct pool *p) {
    const uint64_t rows = (uint64_t)(p->height + 1) * (uint64_t)(p->rows + 1),
                   columns = (uint64_t)(p->width + 1) * (uint64_t)(p->columns + 1);
    return rows >= (uint64_t)1 << 31 || columns >= (uint64_t)1 << 31;
}

/* 1 if the windows are adjacent and do not overlap. */
DUET_HD int pool_is_apart(const struct pool *p) {
    return p->size[0] == p->stride[0] && p->size[1] == p->stride[1];
}

/* The number of adjacent windows that cover all pixels of a side. */
static inline uint32_t windows_over(int pixels, int size) {
    return ((uint32_t)pixels + (uint32_t)size - 1) / (uint32_t)size;
}

static inline struct pool pool_of(enum op op, const struct op_args *a) {
    const struct tensor *out = &a->out[0];
    int by_x = op == OP_MAX_POOL_BACKWARD,
        adaptive = op == OP_ADAPTIVE_AVG_POOL_FORWARD || op == OP_ADAPTIVE_AVG_POOL_BACKWARD;
    int forward = op == OP_AVG_POOL_FORWARD || op == OP_MAX_POOL_FORWARD ||
                  op == OP_ADAPTIVE_AVG_POOL_FORWARD;
    const struct tensor *x = forward ? &a->in[0] : out;
    const struct tensor *y = forward ? out : &a->in[by_x];
    struct pool made = ZEROED;
    made.x = forward || by_x ? tensor_f32(&a->in[0]) : NULL;
    made.dy = forward ? NULL : tensor_f32(y);
    made.out = tensor_f32(out);
    made.count = (uint32_t)tensor_count(out);
    made.height = x->dims[2], made.width = x->dims[3], made.rows = y->dims[2],
    made.columns = y->dims[3];
    for (int i = 0; i < 2; i++) {
        made.size[i] = adaptive ? 1 : a->p.pool.size[i];
        made.stride[i] = adaptive ? 1 : a->p.pool.stride[i];
        made.by_stride[i] = divider_of((uint32_t)made.stride[i]);
    }
    const int area = made.size[0] * made.size[1];
    made.area = (float)area;
    made.part = (area & (area - 1)) == 0 ? 1 / made.area : 0; /* exact for powers of two */
    made.by_rows = divider_of((uint32_t)made.rows);
    made.by_columns = divider_of((uint32_t)made.columns);
    made.by_out_width = divider_of((uint32_t)out->dims[3]);
    made.by_out_height = divider_of((uint32_t)out->dims[2]);
    const int relu = !adaptive && a->p.pool.relu;
    made.least = relu ? 0 : -INFINITY;
    if (relu && !forward) made.gate = tensor_f32(&a->in[by_x ? 0 : 1]);
    if (!adaptive && !forward && pool_is_apart(&made)) {
        const uint32_t width = windows_over(made.width, made.size[1]),
                       height = windows_over(made.height, made.size[0]);
        made.count = (uint32_t)(out->dims[0] * out->dims[1]) * width * height;
        made.by_out_width = divider_of(width), made.by_out_height = divider_of(height);
    }
    return made;
}

/* The offset of element i of out. */
struct pixel {
    size_t plane;
    int row, column;
};

DUET_HD struct pixel pixel_of(const struct pool *p, uint32_t i) {
    struct pixel at;
    uint32_t column, row;
    at.plane = divide(p->by_out_height, divide(p->by_out_width, i, &column), &row);
    at.row = (int)row, at.column = (int)column;
    return at;
}

#define FOR_EACH_PIXEL(i, p, at) \
    for (size_t i = thread_first(at); i < (p)->count; i += thread_stride(at))

/* The first pixel of a window, in its plane of x. */
DUET_HD const float *window_of(const struct pool *p, size_t plane, int row, int column) {
    return p->x + (plane * (size_t)p->height + (size_t)(row * p->stride[0])) * (size_t)p->width +
           (size_t)(column * p->stride[1]);
}

/* The value of a pixel for the pool. A NaN stays a NaN. */
DUET_HD float seen(const struct pool *p, float x) {
    return x < p->least ? p->least : x;
}

/* In functions that take it, `is_2x2` is a constant, 1 if the size is known to be 2 x 2. */
static inline int pool_is_2x2(const struct pool *p) {
    return pool_is_apart(p) && p->size[0] == 2 && p->size[1] == 2;
}

/* Rows (side 0) or columns (side 1) of a window. */
DUET_HD int size_of(const struct pool *p, int is_2x2, int side) {
    return is_2x2 ? 2 : p->size[side];
}

DUET_HD float over_area(const struct pool *p, int is_2x2, float x) {
    if (is_2x2) return x * 0.25f;
    return p->part != 0 ? x * p->part : x / p->area;
}

DUET_HD void avg_forward(const struct pool *p, int is_2x2, struct thread_index at) {
    FOR_EACH_PIXEL(i, p, at) {
        struct pixel y = pixel_of(p, (uint32_t)i);
        const float *window = window_of(p, y.plane, y.row, y.column);
        float sum = 0;
        for (int a = 0; a < size_of(p, is_2x2, 0); a++)
            for (int b = 0; b < size_of(p, is_2x2, 1); b++)
                sum += seen(p, window[a * p->width + b]);
        p->out[i] = over_area(p, is_2x2, sum);
    }
}

DUET_HD void k_avg_pool_forward(const struct pool *p, struct thread_index at) {
    avg_forward(p, 0, at);
}

DUET_HD void k_avg_pool_2x2_forward(const struct pool *p, struct thread_index at) {
    avg_forward(p, 1, at);
}

/* The position of the window's maximum, as an offset from its first pixel; its value goes into
 * *most. The first of equal maxima wins; a NaN beats all numbers, the last NaN all others. */
DUET_HD int window_argmax(const struct pool *p, int is_2x2, const float *window, float *most) {
    int best = 0;
    *most = seen(p, window[0]);
    for (int a = 0; a < size_of(p, is_2x2, 0); a++)
        for (int b = a == 0; b < size_of(p, is_2x2, 1); b++) {
            float value = seen(p, window[a * p->width + b]);
            if (value > *most || is_nan(value)) {
                *most = value;
                best = a * p->width + b;
            }
        }
    return best;
}

DUET_HD void max_forward(const struct pool *p, int is_2x2, struct thread_index at) {
    FOR_EACH_PIXEL(i, p, at) {
        struct pixel y = pixel_of(p, (uint32_t)i);
        float most;
        window_argmax(p, is_2x2, window_of(p, y.plane, y.row, y.column), &most);
        p->out[i] = most;
    }
}

DUET_HD void k_max_pool_forward(const struct pool *p, struct thread_index at) {
    max_forward(p, 0, at);
}

DUET_HD void k_max_pool_2x2_forward(const struct pool *p, struct thread_index at) {
    max_forward(p, 1, at);
}

/* The windows first .. last cover coordinate h of a side (0: rows, 1: columns); none if last <
 * first. */
DUET_HD int first_window(const struct pool *p, int side, int h) {
    uint32_t rest;
    int before = h - p->size[side] + 1;
    if (before <= 0) return 0;
    return (int)divide(p->by_stride[side], (uint32_t)(before + p->stride[side] - 1), &rest);
}

DUET_HD int last_window(const struct pool *p, int side, int h, int windows) {
    uint32_t rest;
    int last = (int)divide(p->by_stride[side], (uint32_t)h, &rest);
    return last < windows ? last : windows - 1;
}

DUET_HD float avg_of_windows(const struct pool *p, const float *dy, struct pixel x) {
    int first_column = first_window(p, 1, x.column),
        last_column = last_window(p, 1, x.column, p->columns);
    int last_row = last_window(p, 0, x.row, p->rows);
    float sum = 0;
    for (int r = first_window(p, 0, x.row); r <= last_row; r++)
        for (int c = first_column; c <= last_column; c++)
            sum += over_area(p, 0, dy[r * p->columns + c]);
    return sum;
}

/* Stores dx of pixel i, after the gradient of the relu. */
DUET_HD void store_dx(const struct pool *p, size_t i, float dx) {
    p->out[i] = p->gate && !(p->gate[i] > 0) ? 0 : dx;
}

/* For adjacent windows: each pixel of a window gets its part of dy, or only the one at offset
 * `mine` if that is not -1. Pixels at the edge may have no window. Sums begin with 0, so that -0
 * also has the bits of the gather form. */
DUET_HD void spread_window(const struct pool *p, int is_2x2, struct pixel w, float dy, int mine) {
    const int first_row = w.row * size_of(p, is_2x2, 0),
              first_column = w.column * size_of(p, is_2x2, 1), rows = p->height - first_row,
              columns = p->width - first_column;
    const size_t first =
        (w.plane * (size_t)p->height + (size_t)first_row) * (size_t)p->width + (size_t)first_column;
    for (int a = 0; a < size_of(p, is_2x2, 0); a++)
        for (int b = 0; b < size_of(p, is_2x2, 1); b++) {
            const int offset = a * p->width + b;
            if (a < rows && b < columns)
                store_dx(p, first + (size_t)offset, mine == -1 || mine == offset ? 0 + dy : 0);
        }
}

/* dy of a window; 0 for the remaining pixels at the edge. */
DUET_HD float dy_of_window(const struct pool *p, struct pixel w) {
    return w.row < p->rows && w.column < p->columns
               ? p->dy[(w.plane * (size_t)p->rows + (size_t)w.row) * (size_t)p->columns +
                       (size_t)w.column]
               : 0;
}

DUET_HD void avg_of_window(const struct pool *p, int is_2x2, struct pixel w) {
    spread_window(p, is_2x2, w, over_area(p, is_2x2, dy_of_window(p, w)), -1);
}

DUET_HD void max_of_window(const struct pool *p, int is_2x2, struct pixel w) {
    float most;
    int mine = 0, whole = w.row < p->rows && w.column < p->columns;
    if (whole) mine = window_argmax(p, is_2x2, window_of(p, w.plane, w.row, w.column), &most);
    spread_window(p, is_2x2, w, dy_of_window(p, w), mine);
}

DUET_HD void k_avg_pool_2x2_backward(const struct pool *p, struct thread_index at) {
    FOR_EACH_PIXEL(i, p, at)
    avg_of_window(p, 1, pixel_of(p, (uint32_t)i));
}

DUET_HD void k_max_pool_2x2_backward(const struct pool *p, struct thread_index at) {
    FOR_EACH_PIXEL(i, p, at)
    max_of_window(p, 1, pixel_of(p, (uint32_t)i));
}

DUET_HD void k_avg_pool_backward(const struct pool *p, struct thread_index at) {
    FOR_EACH_PIXEL(i, p, at) {
        struct pixel x = pixel_of(p, (uint32_t)i);
        const float *dy = p->dy + x.plane * (size_t)p->rows * (size_t)p->columns;
        if (pool_is_apart(p))
            avg_of_window(p, 0, x);
        else
            store_dx(p, i, avg_of_windows(p, dy, x));
    }
}

DUET_HD void k_max_pool_backward(const struct pool *p, struct thread_index at) {
    FOR_EACH_PIXEL(i, p, at) {
        if (pool_is_apart(p)) {
            max_of_window(p, 0, pixel_of(p, (uint32_t)i));
            continue;
        }
        struct pixel x = pixel_of(p, (uint32_t)i);
        const float *dy = p->dy + x.plane * (size_t)p->rows * (size_t)p->columns;
        int last_row = last_window(p, 0, x.row, p->rows);
        int last_column = last_window(p, 1, x.column, p->columns);
        int first_column = first_window(p, 1, x.column);
        float sum = 0, most;
        for (int r = first_window(p, 0, x.row); r <= last_row; r++) {
            for (int c = first_column; c <= last_column; c++) {
                int mine = (x.row - r * p->stride[0]) * p->width + x.column - c * p->stride[1];
                if (window_argmax(p, 0, window_of(p, x.plane, r, c), &most) == mine)
                    sum += dy[r * p->columns + c];
            }
        }
        store_dx(p, i, sum);
    }
}

/* ---- adaptive pools: a given number of windows ---- */

struct cover {
    int begin, end; /* the first coordinate, and the one after the last */
};

/* The range that coordinate i of one side covers on the other, of length `other`; `by` divides by
 * its own side. */
DUET_HD struct cover cover_of(struct divider by, int i, int other) {
    uint32_t rest;
    struct cover made;
    made.begin = (int)divide(by, (uint32_t)(i * other), &rest);
    made.end = (int)divide(by, (uint32_t)(i + 1) * (uint32_t)other + by.d - 1, &rest);
    return made;
}

DUET_HD float area_of(struct cover rows, struct cover columns) {
    return (float)((rows.end - rows.begin) * (columns.end - columns.begin));
}

DUET_HD void k_adaptive_avg_pool_forward(const struct pool *p, struct thread_index at) {
    FOR_EACH_PIXEL(i, p, at) {
        struct pixel y = pixel_of(p, (uint32_t)i);
        struct cover rows = cover_of(p->by_out_height, y.row, p->height),
                     columns = cover_of(p->by_out_width, y.column, p->width);
        const float *x = p->x + y.plane * (size_t)p->height * (size_t)p->width;
        float sum = 0;
        for (int h = rows.begin; h < rows.end; h++) {
            float row = 0;
            for (int w = columns.begin; w < columns.end; w++)
                row += x[h * p->width + w];
            sum += row;
        }
        p->out[i] = sum / area_of(rows, columns);
    }
}

DUET_HD void k_adaptive_avg_pool_backward(const struct pool *p, struct thread_index at) {
    FOR_EACH_PIXEL(i, p, at) {
        struct pixel x = pixel_of(p, (uint32_t)i);
        struct cover rows = cover_of(p->by_out_height, x.row, p->rows),
                     columns = cover_of(p->by_out_width, x.column, p->columns);
        const float *dy = p->dy + x.plane * (size_t)p->rows * (size_t)p->columns;
        float sum = 0;
        for (int r = rows.begin; r < rows.end; r++)
            for (int c = columns.begin; c < columns.end; c++)
                sum += dy[r * p->columns + c] / area_of(cover_of(p->by_rows, r, p->height),
                                                        cover_of(p->by_columns, c, p->width));
        p->out[i] = sum;
    }
}

#endif
