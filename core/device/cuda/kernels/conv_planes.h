/* Convolutions with small filters, forward and for the data's gradient, without computing the
 * matrix b at all.
 *
 * tile.h fetches each element of b separately, with two comparisons, an address and a store to
 * shared memory for every (tap, pixel), though k * k taps read the same pixel. With few rows (20
 * channels) that costs more than the multiplications. Here a block keeps, for one channel at a
 * time, the piece of the image that its pixels read, with the zeros of the padding. A tap is then
 * only an offset, the same for all pixels. For each channel:
 *
 *     the next channel's piece and weights -> the other half of shared memory,
 *                                             by asynchronous copies (cp.async)
 *     acc += weights * piece, tap by tap
 *     wait for the thread's own copies; barrier
 *
 * A warp has PLANES_ROWS rows of c (output channels) and 32 * PLANES_COLS columns (pixels, counted
 * through the batch); a lane has every 32nd of these columns. For one tap all lanes read the same
 * weights, and their pixels are adjacent, in different banks.
 *
 * If columns are counted (sample, row, column), a warp's pixels come from many rows of an image. In
 * the gradient of a convolution without padding, many taps are then outside of dy for some of these
 * pixels: in LeNet's second convolution, 20 of the 65 rows of taps of an image's 13 rows. Such a
 * gradient counts its columns (row, sample, column) instead. A warp then has pixels of one row,
 * seldom of two, and skips the rows of taps that are outside for all:
 *
 *     row of dx     0   1   2   3   4 to 8   9  10  11  12
 *     rows of taps  1   2   3   4     5      4   3   2   1     45 in all
 *
 * An element of c is the same chain of fmaf, in the same order of d = (channel, ky, kx), as from
 * any tile, with the zeros of the padding or without them. A product with 0 changes a sum only if
 * the sum is -0, which store_c does not keep. So the bits are those of tile.h, and the choice
 * between the two changes only the time, except with infinite or NaN weights. */
#ifndef DEVICE_CUDA_KERNELS_PLANES_H
#define DEVICE_CUDA_KERNELS_PLANES_H

#include "device/cuda/kernels/conv_planes_plan.h"

#define PLANES_NOTHING 0xffffffffu

/* The pixels of a block, and the rows of its piece: first those of sample n0, then whole samples,
 * then the first rows of sample n1. If columns are counted by rows, the piece has k rows for each
 * line, which is one row of one sample. */
struct planes_range {
    uint32_t first, last; /* columns of c */
    uint32_t n0, row0, n1, row1;
    int by_row;           /* as in struct planes; a constant except for gradients */
    uint32_t line0;       /* if by_row: the first line, in (row, sample) order */
    uint32_t rows0, rows; /* rows in the piece: of sample n0, and in all */
    uint32_t floats;      /* floats in the piece */
};

struct planes_shared {
    float a[2][PLANES_WEIGHTS] __attribute__((aligned(16))); /* [tap][group][row] */
    float b[2][PLANES_PIECE];
};

/* A position in shared memory, i floats after `shared`. On a GPU it is an address, and is computed
 * only once. */
DUET_HD uint32_t place_in(const float *shared, uint32_t i) {
#ifdef __CUDA_ARCH__
    return (uint32_t)__cvta_generic_to_shared(shared) + 4 * i;
#else
    (void)shared;
    return i;
#endif
}

/* The host copies at once, unless a test delays the copy (tests/stand_ins/gpu_copies.h). */
#ifndef DUET_COPY_AHEAD
#define DUET_COPY_AHEAD(to, from) (*(to) = *(from))
#define DUET_COPIES_ARRIVED() ((void)0)
#endif

/* Copies 4 bytes, which need no larger alignment, from global memory to `behind` floats after a
 * position. The thread itself sees them once it has called copies_arrived, and the block after the
 * next barrier. */
DUET_HD void copy_ahead(float *shared, uint32_t address, uint32_t behind, const float *global) {
#ifdef __CUDA_ARCH__
    (void)shared;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address + 4 * behind), "l"(global)
                 : "memory");
#else
    DUET_COPY_AHEAD(&shared[address + behind], global);
#endif
}

DUET_HD void copies_arrived(void) {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_all;" ::: "memory");
#else
    DUET_COPIES_ARRIVED();
#endif
}

DUET_HD struct planes_range planes_range_of(int kind, const struct planes *q, uint32_t col_tile,
                                            uint32_t cols_a_block) {
    struct planes_range r;
    uint32_t pixel, column, k = (uint32_t)q->p.k;
    r.first = col_tile * cols_a_block;
    r.last = q->p.cols - r.first < cols_a_block ? q->p.cols - 1 : r.first + cols_a_block - 1;
    r.by_row = is_conv_data(kind) && q->by_row;
    r.line0 = divide(q->to.by_width, r.first, &column);
    if (r.by_row) {
        uint32_t lines = divide(q->to.by_width, r.last, &column) - r.line0 + 1;
        r.n0 = r.row0 = r.n1 = r.row1 = r.rows0 = 0;
        r.rows = lines * k;
        r.floats = r.rows * q->pitch + lines * q->gap;
        return r;
    }
    r.n0 = divide(q->to.by_pixels, r.first, &pixel),
    r.row0 = divide(q->to.by_width, pixel, &column);
    r.n1 = divide(q->to.by_pixels, r.last, &pixel), r.row1 = divide(q->to.by_width, pixel, &column);
    uint32_t end0 = r.n1 > r.n0 ? (uint32_t)q->to.height - 1 : r.row1;
    r.rows0 = (end0 - r.row0) * q->stride + k;
    r.rows =
        r.n1 > r.n0 ? r.rows0 + (r.n1 - r.n0 - 1) * q->full_rows + r.row1 * q->stride + k : r.rows0;
    r.floats = r.rows * q->pitch;
    return r;
}

/* Finds row `row` of a piece in the batch. *n is its sample, and *below its row in `from`, as if
 * the zeros above belonged to the image. */
DUET_HD void planes_row(int k, const struct planes *q, const struct planes_range *r, uint32_t row,
                        uint32_t *n, uint32_t *below) {
    if (r->by_row) {
        *below = divide(q->by_samples, r->line0 + row / (uint32_t)k, n) + row % (uint32_t)k;
        return;
    }
    *n = r->n0, *below = row + r->row0 * q->stride;
    if (row >= r->rows0) *n += 1 + divide(q->by_full_rows, row - r->rows0, below);
}

/* Element e of a piece: *to is its offset in the piece. Returns its offset in channel 0 of `from`,
 * or PLANES_NOTHING if it is padding or does not exist. */
DUET_HD uint32_t planes_source(int k, const struct planes *q, const struct planes_range *r,
                               uint32_t e, uint32_t *to) {
    uint32_t column, row = divide(q->by_fetched, e, &column), n, below;
    if (r->by_row) column += q->zeros;
    *to = row * q->pitch + column;
    if (r->by_row) *to += row / (uint32_t)k * q->gap;
    if (row >= r->rows) return PLANES_NOTHING;
    planes_row(k, q, r, row, &n, &below);
    /* above or left of the image: wraps to a huge number */
    uint32_t y = below - (uint32_t)q->before, x = column - (uint32_t)q->before;
    if (y >= (uint32_t)q->from.height || x >= (uint32_t)q->from.width) return PLANES_NOTHING;
    return n * (uint32_t)q->from.channels * q->from.pixels + y * (uint32_t)q->from.width + x;
}

/* The offset in the piece of a pixel's first tap. For a pixel beyond the last it is arbitrary. */
DUET_HD uint32_t planes_pixel(const struct planes *q, const struct planes_range *r, uint32_t col) {
    uint32_t pixel, column, n, row;
    if (col > r->last) return 0;
    if (r->by_row) {
        uint32_t line = divide(q->to.by_width, col, &column) - r->line0;
        return line * ((uint32_t)q->p.k * q->pitch + q->gap) + column;
    }
    n = divide(q->to.by_pixels, col, &pixel);
    row = divide(q->to.by_width, pixel, &column);
    row = n == r->n0 ? (row - r->row0) * q->stride
                     : r->rows0 + (n - r->n0 - 1) * q->full_rows + row * q->stride;
    return row * q->pitch + column * q->stride;
}

/* The column's number if counted as (sample, row, column). */
DUET_HD uint32_t planes_plain_col(const struct planes *q, const struct planes_range *r,
                                  uint32_t col) {
    uint32_t column, n, row;
    if (!r->by_row) return col;
    row = divide(q->by_samples, divide(q->to.by_width, col, &column), &n);
    return n * q->to.pixels + row * (uint32_t)q->to.width + column;
}

/* The rows of taps inside dy for any pixel of a warp that begins with column `first`: bit ky is set
 * for row ky. dx's row h meets dy's row h - ky. All lanes have the same result. */
DUET_HD uint32_t planes_taps(int k, const struct planes *q, const struct planes_range *r,
                             uint32_t first) {
    uint32_t last = first + 32 * PLANES_COLS - 1, taps = 0, rest;
    if (!r->by_row) return ~0u;
    if (first > r->last) return 0;
    if (last > r->last) last = r->last;
    const int top = (int)divide(q->by_samples, divide(q->to.by_width, first, &rest), &rest),
              bottom = (int)divide(q->by_samples, divide(q->to.by_width, last, &rest), &rest);
    for (int ky = 0; ky < k; ky++)
        taps |= (uint32_t)(bottom - ky >= 0 && top - ky < q->from.height) << ky;
    return taps;
}

/* A thread's copies for one channel and its pixels: the sources in the next channel, the
 * destinations in the first half of shared memory, and a bit for each copy that exists, those of a
 * before those of b. */
struct planes_thread {
    const float *from_a[PLANES_FETCH_A], *from_b[PLANES_FETCH_B];
    uint32_t to_a[PLANES_FETCH_A], to_b[PLANES_FETCH_B], there;
    uint32_t pixel[PLANES_COLS];
    uint32_t taps; /* for a gradient: planes_taps */
};

DUET_CONSTANT int planes_fetch_a(int k) {
    return (PLANES_ROWS * k * k + 31) / 32;
}

/* This thread's first column. The warps of a block run over the groups of rows first. */
DUET_HD uint32_t planes_col(const struct planes *q, const struct planes_range *r, uint32_t thread) {
    return r->first + thread / 32 / q->groups * (32 * PLANES_COLS) + thread % 32;
}

DUET_HD void planes_find(int k, const struct planes *q, const struct planes_range *r, uint32_t row0,
                         uint32_t thread, uint32_t threads, const struct planes_shared *shared,
                         struct planes_thread *t) {
    const uint32_t taps = (uint32_t)(k * k);
    t->there = 0;
    DUET_UNROLL
    for (int i = 0; i < planes_fetch_a(k); i++) {
        uint32_t e = thread + (uint32_t)i * threads, row = e / taps, tap = e % taps;
        uint32_t there = row < q->groups * PLANES_ROWS && row0 + row < q->p.rows;
        t->from_a[i] = q->p.a + (there ? (row0 + row) * q->a_row + tap : 0);
        t->there |= there << i;
        t->to_a[i] = place_in(shared->a[0], tap * PLANES_PITCH + row / PLANES_ROWS * PLANES_GROUP +
                                                row % PLANES_ROWS);
    }
    DUET_UNROLL
    for (int i = 0; i < PLANES_FETCH_B; i++) {
        uint32_t to, from = planes_source(k, q, r, thread + (uint32_t)i * threads, &to);
        t->from_b[i] = q->p.b + (from != PLANES_NOTHING ? from : 0);
        t->there |= (uint32_t)(from != PLANES_NOTHING) << (PLANES_FETCH_A + i);
        t->to_b[i] = place_in(shared->b[0], to);
    }
    DUET_UNROLL
    for (int j = 0; j < PLANES_COLS; j++)
        t->pixel[j] = planes_pixel(q, r, planes_col(q, r, thread) + (uint32_t)(32 * j));
    t->taps = planes_taps(k, q, r, planes_col(q, r, thread) - thread % 32);
}

DUET_HD void planes_fetch(int k, const struct planes *q, struct planes_thread *t,
                          struct planes_shared *shared, uint32_t half) {
    DUET_UNROLL
    for (int i = 0; i < PLANES_FETCH_B; i++) {
        if (t->there >> (PLANES_FETCH_A + i) & 1)
            copy_ahead(shared->b[0], t->to_b[i], half * (uint32_t)PLANES_PIECE, t->from_b[i]);
        t->from_b[i] += q->from.pixels;
    }
    DUET_UNROLL
    for (int i = 0; i < planes_fetch_a(k); i++) {
        if (t->there >> i & 1)
            copy_ahead(shared->a[0], t->to_a[i], half * (uint32_t)PLANES_WEIGHTS, t->from_a[i]);
        t->from_a[i] += q->a_channel;
    }
}

/* Adds the products of one channel. The taps of a gradient run through the piece backwards. */
DUET_HD void planes_multiply(int kind, int k, const struct planes *q, const struct planes_thread *t,
                             const struct planes_shared *shared, uint32_t half, uint32_t group,
                             float *acc) {
    const float *a = shared->a[half] + group * PLANES_GROUP;
    DUET_UNROLL
    for (int ky = 0; ky < k; ky++) {
        const float *b[PLANES_COLS];
        if (is_conv_data(kind) && !(t->taps >> ky & 1)) continue;
        DUET_UNROLL
        for (int j = 0; j < PLANES_COLS; j++)
            b[j] = shared->b[half] + t->pixel[j] +
                   (uint32_t)(is_conv_data(kind) ? k - 1 - ky : ky) * q->pitch;
        DUET_UNROLL
        for (int kx = 0; kx < k; kx++) {
            float of_a[PLANES_GROUP];
            read_own(PLANES_GROUP, of_a, a + (ky * k + kx) * PLANES_PITCH);
            DUET_UNROLL
            for (int j = 0; j < PLANES_COLS; j++) {
                float of_b = b[j][is_conv_data(kind) ? k - 1 - kx : kx];
                DUET_UNROLL
                for (int i = 0; i < PLANES_ROWS; i++)
                    acc[i * PLANES_COLS + j] = fmaf(of_a[i], of_b, acc[i * PLANES_COLS + j]);
            }
        }
    }
}

DUET_HD void planes_store(int kind, const struct planes *q, const struct planes_range *r,
                          uint32_t row0, uint32_t thread, const float *acc) {
    DUET_UNROLL
    for (int j = 0; j < PLANES_COLS; j++) {
        uint32_t col = planes_col(q, r, thread) + (uint32_t)(32 * j);
        DUET_UNROLL
        for (int i = 0; i < PLANES_ROWS; i++) {
            uint32_t row = row0 + thread / 32 % q->groups * PLANES_ROWS + (uint32_t)i;
            if (col <= r->last && row < q->p.rows)
                store_c(kind, &q->p, row, planes_plain_col(q, r, col), acc[i * PLANES_COLS + j]);
        }
    }
}

/* Blocks run over the row tiles first, as in k_product. */
DUET_BLOCK void k_planes(int kind, int k, const struct planes *q, struct planes_shared *shared,
                         struct thread_index at) {
    float acc[STATES][PLANES_ROWS * PLANES_COLS];
    struct planes_thread t[STATES];
    const uint32_t row0 = at.block % q->p.row_tiles * q->groups * PLANES_ROWS,
                   channels = (uint32_t)q->from.channels;
    const struct planes_range r = planes_range_of(kind, q, at.block / q->p.row_tiles,
                                                  q->col_groups * (uint32_t)(32 * PLANES_COLS));
    BLOCK_PHASE(at) {
        for (uint32_t i = at.thread; i < r.floats; i += at.threads)
            shared->b[0][i] = shared->b[1][i] = 0;
        planes_find(k, q, &r, row0, at.thread, at.threads, shared, &t[STATE(at)]);
        DUET_UNROLL
        for (int i = 0; i < PLANES_ROWS * PLANES_COLS; i++)
            acc[STATE(at)][i] = 0;
    }
    BLOCK_PHASE(at) {
        planes_fetch(k, q, &t[STATE(at)], shared, 0);
        copies_arrived();
    }
    for (uint32_t channel = 0; channel < channels; channel++) {
        BLOCK_PHASE(at) {
            if (channel + 1 < channels) planes_fetch(k, q, &t[STATE(at)], shared, ~channel % 2);
            planes_multiply(kind, k, q, &t[STATE(at)], shared, channel % 2,
                            at.thread / 32 % q->groups, acc[STATE(at)]);
            copies_arrived();
        }
    }
    BLOCK_PHASE(at) {
        planes_store(kind, q, &r, row0, at.thread, acc[STATE(at)]);
    }
}

#endif
