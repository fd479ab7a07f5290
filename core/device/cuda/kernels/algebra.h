/* Products of two data matrices, sums along a dimension, and the gradient of an embedding's table.
 *
 * A product of matrices is a product of product.h, batch after batch. tile.h multiplies; this file
 * only locates each batch. The depth is never split, so an element of y is one chain of fmaf in the
 * order of k, whatever the tile.
 *
 * In a sum x is (outer, length, inner). A block takes `columns` neighbours of one row of y, 32 if
 * they are contiguous and 1 if they are not, and divides the length among its threads:
 *
 *     inner > 1    thread t: column t % 32, elements t / 32, t / 32 + 8, ...   so a warp reads 128
 *     inner = 1    thread t: elements t, t + 256, ...                          bytes in a row
 *
 * Each thread adds in double, then the block adds its threads in halves. So the order depends only
 * on the shape. */
#ifndef DEVICE_CUDA_KERNELS_ALGEBRA_H
#define DEVICE_CUDA_KERNELS_ALGEBRA_H

#include "device/cuda/kernels/plan.h"

/* ---- products ---- */

struct matmul {
    struct product p;                /* for the first pair of matrices */
    size_t a_step, b_step, out_step; /* strides from one pair to the next */
    uint32_t batches, tiles;         /* tiles: blocks per product */
};

/* Writes the op as products of one kind, *kind. */
static inline struct matmul matmul_of(const struct op_args *a, enum product_kind *kind) {
    const struct tensor *x = &a->in[0], *y = &a->out[0];
    struct matmul m = ZEROED;
    int turn_a = a->p.matmul.turn_a, turn_b = a->p.matmul.turn_b;
    uint32_t rows = (uint32_t)y->dims[1], cols = (uint32_t)y->dims[2],
             depth = (uint32_t)x->dims[turn_a ? 1 : 2];
    *kind = turn_a ? PRODUCT_LINEAR_RC : turn_b ? PRODUCT_LINEAR_KK : PRODUCT_LINEAR_KC;
    m.p.a = tensor_f32(x), m.p.b = tensor_f32(&a->in[1]), m.p.out = tensor_f32(y);
    m.p.rows = rows, m.p.cols = cols, m.p.depth = depth;
    m.p.a_row = turn_a ? 1 : depth, m.p.a_depth = turn_a ? rows : 1;
    m.p.b_depth = turn_b ? 1 : cols, m.p.b_col = turn_b ? depth : 1;
    m.p.out_row = cols, m.p.out_col = 1;
    m.p.ones_row = m.p.ones_col = -1;
    m.a_step = (size_t)rows * depth, m.b_step = (size_t)depth * cols;
    m.out_step = (size_t)rows * cols;
    m.batches = (uint32_t)y->dims[0];
    return m;
}

/* The grid, with the blocks of all products. It has no workspace, so nothing is split. */
static inline uint32_t matmul_grid(struct matmul *m, enum product_kind kind, enum tile tile) {
    product_grid(&m->p, kind, tile, NULL, 0);
    m->tiles = m->p.row_tiles * m->p.col_tiles;
    return m->tiles * m->batches;
}

DUET_BLOCK void k_matmul(int kind, int tile, const struct matmul *m, struct product_shared *memory,
                         struct thread_index at) {
    uint32_t batch = at.block / m->tiles;
    struct product p = m->p;
    p.a += batch * m->a_step, p.b += batch * m->b_step, p.out += batch * m->out_step;
    at.block %= m->tiles;
    k_product(kind, tile, &p, memory, at);
}

/* ---- sums ---- */

enum { SUM_OVER_THREADS = 256, SUM_OVER_COLUMNS = 32 };

struct sum_over {
    const float *x;
    float *y;
    size_t outer, length, inner;
    uint32_t columns, lanes; /* in a block, with columns * lanes = SUM_OVER_THREADS */
    size_t tiles, row_tiles; /* blocks for all of y, and for one row of y */
    double divide;
};

struct sum_over_shared {
    double at[SUM_OVER_THREADS];
};

static inline struct sum_over sum_over_of(const struct op_args *a) {
    const struct tensor *x = &a->in[0];
    struct sum_over s = ZEROED;
    s.x = tensor_f32(x), s.y = tensor_f32(&a->out[0]);
    s.outer = (size_t)x->dims[0], s.length = (size_t)x->dims[1], s.inner = (size_t)x->dims[2];
    s.columns = s.inner > 1 ? SUM_OVER_COLUMNS : 1, s.lanes = SUM_OVER_THREADS / s.columns;
    s.row_tiles = (s.inner + s.columns - 1) / s.columns;
    s.tiles = s.outer * s.row_tiles;
    s.divide = a->p.sum.divide;
    return s;
}

DUET_BLOCK void k_sum_over(const struct sum_over *s, struct sum_over_shared *shared,
                           struct thread_index at) {
    for (size_t tile = at.block; tile < s->tiles; tile += at.blocks) {
        size_t o = tile / s->row_tiles, first = tile % s->row_tiles * s->columns;
        BLOCK_PHASE(at) {
            size_t i = first + at.thread % s->columns;
            const float *x = s->x + o * s->length * s->inner + i;
            double sum = 0;
            for (size_t l = at.thread / s->columns; i < s->inner && l < s->length; l += s->lanes)
                sum += x[l * s->inner];
            shared->at[at.thread] = sum;
        }
        BLOCK_FOLD(at, half, SUM_OVER_THREADS, s->columns) {
            shared->at[at.thread] += shared->at[at.thread + half];
        }
        BLOCK_PHASE(at) {
            size_t i = first + at.thread;
            if (at.thread < s->columns && i < s->inner)
                s->y[o * s->inner + i] = (float)(shared->at[at.thread] / s->divide);
        }
    }
}

struct spread {
    const float *dy;
    float *dx;
    size_t all; /* elements of dx; below 2^31 */
    struct divider by_row, by_inner;
    float divide;
};

static inline struct spread spread_of(const struct op_args *a) {
    const struct tensor *dx = &a->out[0];
    struct spread s = ZEROED;
    s.dy = tensor_f32(&a->in[0]), s.dx = tensor_f32(dx), s.all = tensor_count(dx);
    s.by_inner = divider_of((uint32_t)(dx->dims[2] ? dx->dims[2] : 1));
    s.by_row = divider_of((uint32_t)(s.all ? tensor_sample_count(dx) : 1));
    s.divide = (float)a->p.sum.divide;
    return s;
}

DUET_HD void k_spread(const struct spread *s, struct thread_index at) {
    for (size_t e = thread_first(at); e < s->all; e += thread_stride(at)) {
        uint32_t in_row, i, o = divide(s->by_row, (uint32_t)e, &in_row);
        divide(s->by_inner, in_row, &i);
        s->dx[e] = s->dy[(size_t)o * s->by_inner.d + i] / s->divide;
    }
}

/* ---- the order of dimensions ---- */

/* A thread owns elements in the order of the dimensions. If the last dimension of x or y is not
 * contiguous, its accesses are not either; the cache holds the lines for the next warps. */
struct permute {
    const float *x;
    float *y;
    size_t all;                      /* elements; below 2^31 */
    struct divider by[MAX_RANK - 1]; /* by the elements below each dimension except the last */
    int first;                       /* the first dimension in use; the last one is MAX_RANK - 1 */
    uint32_t step[MAX_RANK], to[MAX_RANK]; /* steps in x and y, for each dimension */
};

static inline struct permute permute_of(const struct op_args *a) {
    struct tensor x = a->in[0], y = a->out[0];
    struct permute p = ZEROED;
    uint32_t below = 1;
    p.x = tensor_f32(&x), p.y = tensor_f32(&y), p.all = tensor_count(&y);
    tensor_strides(&x, x.stride);
    tensor_strides(&y, y.stride);
    int rank = tensor_merge(y.rank, y.dims, x.stride, y.stride);
    p.first = MAX_RANK - rank;
    for (int i = 0; i < MAX_RANK - 1; i++)
        p.by[i] = divider_of(1);
    for (int i = rank - 1, at = MAX_RANK - 1; i >= 0; below *= (uint32_t)y.dims[i--], at--) {
        p.step[at] = (uint32_t)x.stride[i], p.to[at] = (uint32_t)y.stride[i];
        if (at < MAX_RANK - 1) p.by[at] = divider_of(below ? below : 1);
    }
    return p;
}

DUET_HD void k_permute(const struct permute *p, struct thread_index at) {
    for (size_t e = thread_first(at); e < p->all; e += thread_stride(at)) {
        uint32_t rest = (uint32_t)e, from = 0, to = 0;
        DUET_UNROLL
        for (int i = 0; i < MAX_RANK - 1; i++)
            if (i >= p->first) {
                uint32_t index = divide(p->by[i], rest, &rest);
                from += index * p->step[i], to += index * p->to[i];
            }
        p->y[to + rest * p->to[MAX_RANK - 1]] = p->x[from + rest * p->step[MAX_RANK - 1]];
    }
}

/* ---- embeddings ---- */

struct to_index {
    const float *x;
    int32_t *y;
    size_t all;
};

static inline struct to_index to_index_of(const struct op_args *a) {
    struct to_index t = ZEROED;
    t.x = tensor_f32(&a->in[0]), t.y = (int32_t *)a->out[0].data, t.all = tensor_count(&a->in[0]);
    return t;
}

DUET_HD void k_to_index(const struct to_index *t, struct thread_index at) {
    for (size_t i = thread_first(at); i < t->all; i += thread_stride(at))
        t->y[i] = index_of_float(t->x[i]);
}

/* A thread owns one element of dw and looks through all indices. Neighbouring threads have the same
 * row, so they load an index once, and the sum has the reference's order. Atomic additions would
 * change their order from run to run. */
struct embedding {
    const float *dy;
    const int32_t *index;
    float *dw;
    uint32_t n, width, left_out; /* left_out: 1 + a row, or 0 */
    size_t all;                  /* elements of dw; below 2^31 */
    struct divider by_width;
};

static inline struct embedding embedding_of(const struct op_args *a) {
    struct embedding e = ZEROED;
    e.dy = tensor_f32(&a->in[0]), e.index = (const int32_t *)a->in[1].data;
    e.dw = tensor_f32(&a->out[0]), e.left_out = (uint32_t)a->p.embedding.left_out;
    e.n = (uint32_t)a->in[0].dims[0], e.width = (uint32_t)a->in[0].dims[1];
    e.all = tensor_count(&a->out[0]);
    e.by_width = divider_of(e.width ? e.width : 1);
    return e;
}

DUET_HD void k_embedding_backward(const struct embedding *e, struct thread_index at) {
    for (size_t i = thread_first(at); i < e->all; i += thread_stride(at)) {
        uint32_t d, row = divide(e->by_width, (uint32_t)i, &d);
        float sum = 0;
        for (uint32_t n = 0; n < e->n && row + 1 != e->left_out; n++)
            if (e->index[n] == (int32_t)row) sum += e->dy[(size_t)n * e->width + d];
        e->dw[i] = sum;
    }
}

#endif
