/* LayerNorm and GroupNorm, in double as in the reference (host/kernels/reference_layer_norm.c).
 *
 * Forward and the gradient of x use 32 threads per row (rows.h).
 *
 * The gradients of w and b are sums over rows. A block takes `columns` weights, 32 if each element
 * has its own weight and 1 if neighbours share one, and divides the terms of each among its
 * threads, like sums in algebra.h. */
#ifndef DEVICE_CUDA_KERNELS_LAYER_NORM_H
#define DEVICE_CUDA_KERNELS_LAYER_NORM_H

#include "device/cuda/kernels/rows.h"

enum { NORM_WEIGHT_THREADS = 256, NORM_COLUMNS = 32 };

/* ---- rows ---- */

/* forward: out is y; backward: dx. w and b may be NULL. */
struct norm_rows {
    const float *x, *dy, *w, *b;
    float *out;
    double *moments;
    int rows, columns, groups, weights; /* weights: of one group */
    struct divider by_inner;
    double epsilon;
};

struct norm_rows_shared {
    double sum[ROW_THREADS], product[ROW_THREADS];
};

static inline struct norm_rows norm_rows_of(enum op op, const struct op_args *a) {
    const struct layer_norm_args *p = &a->p.layer_norm;
    struct norm_rows r = ZEROED;
    int forward = op == OP_LAYER_NORM_FORWARD;
    r.x = tensor_f32(&a->in[0]), r.out = tensor_f32(&a->out[0]);
    r.w = tensor_f32(&a->in[forward ? 1 : 2]);
    if (forward) r.b = tensor_f32(&a->in[2]), r.moments = (double *)a->out[1].data;
    if (!forward) r.dy = tensor_f32(&a->in[1]);
    r.rows = a->in[0].dims[0], r.columns = a->in[0].dims[1], r.groups = p->groups;
    r.weights = r.columns / p->inner, r.by_inner = divider_of((uint32_t)p->inner);
    r.epsilon = p->epsilon;
    return r;
}

/* The weight of element i of a row; if `values` is NULL, 1 for w and 0 for b. */
DUET_HD double norm_weight(const struct norm_rows *p, const float *values, double none, int row,
                           int i) {
    uint32_t rest, k = divide(p->by_inner, (uint32_t)i, &rest);
    return values ? (double)values[(size_t)(row % p->groups) * (size_t)p->weights + k] : none;
}

/* A thread's data about its row. */
struct norm_state {
    double mean, scale;
};

/* Puts the moments of each row into the state of its threads. */
DUET_BLOCK void norm_moments(const struct norm_rows *p, struct norm_rows_shared *shared,
                             struct norm_state *state, int first, struct thread_index at) {
    BLOCK_PHASE(at) {
        const float *x = p->x + (size_t)row_of(first, at) * (size_t)p->columns;
        double sum = 0;
        FOR_EACH_COLUMN(i, p, first, at) sum += (double)x[i];
        shared->sum[at.thread] = sum;
    }
    ROW_FOLD(at, half) {
        shared->sum[at.thread] += shared->sum[at.thread + half];
    }
    BLOCK_PHASE(at) {
        const float *x = p->x + (size_t)row_of(first, at) * (size_t)p->columns;
        double mean = shared->sum[row_cell(at)] / p->columns, squares = 0;
        FOR_EACH_COLUMN(i, p, first, at)
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
        shared->product[at.thread] = squares;
        state[STATE(at)].mean = mean;
    }
    ROW_FOLD(at, half) {
        shared->product[at.thread] += shared->product[at.thread + half];
    }
    BLOCK_PHASE(at) {
        state[STATE(at)].scale = 1 / sqrt(shared->product[row_cell(at)] / p->columns + p->epsilon);
    }
}

DUET_BLOCK void k_layer_norm_forward(const struct norm_rows *p, struct norm_rows_shared *shared,
                                     struct thread_index at) {
    struct norm_state state[STATES];
    FOR_EACH_ROW_GROUP(first, p, at) {
        norm_moments(p, shared, state, first, at);
        BLOCK_PHASE(at) {
            int row = row_of(first, at);
            size_t start = (size_t)row * (size_t)p->columns;
            struct norm_state m = state[STATE(at)];
            if (lane_of(at) == 0 && row < p->rows)
                p->moments[2 * row] = m.mean, p->moments[2 * row + 1] = m.scale;
            FOR_EACH_COLUMN(i, p, first, at) {
                double xhat = ((double)p->x[start + (size_t)i] - m.mean) * m.scale;
                p->out[start + (size_t)i] = (float)(xhat * norm_weight(p, p->w, 1, row, i) +
                                                    norm_weight(p, p->b, 0, row, i));
            }
        }
    }
}

DUET_BLOCK void k_layer_norm_backward_data(const struct norm_rows *p,
                                           struct norm_rows_shared *shared,
                                           struct thread_index at) {
    struct norm_state state[STATES];
    FOR_EACH_ROW_GROUP(first, p, at) {
        norm_moments(p, shared, state, first, at);
        BLOCK_PHASE(at) {
            int row = row_of(first, at);
            size_t start = (size_t)row * (size_t)p->columns;
            struct norm_state m = state[STATE(at)];
            double sum = 0, product = 0;
            FOR_EACH_COLUMN(i, p, first, at) {
                double g = p->dy[start + (size_t)i] * norm_weight(p, p->w, 1, row, i);
                sum += g;
                product += g * (((double)p->x[start + (size_t)i] - m.mean) * m.scale);
            }
            shared->sum[at.thread] = sum, shared->product[at.thread] = product;
        }
        ROW_FOLD(at, half) {
            shared->sum[at.thread] += shared->sum[at.thread + half];
            shared->product[at.thread] += shared->product[at.thread + half];
        }
        BLOCK_PHASE(at) {
            int row = row_of(first, at);
            size_t start = (size_t)row * (size_t)p->columns;
            struct norm_state m = state[STATE(at)];
            double sum = shared->sum[row_cell(at)] / p->columns,
                   product = shared->product[row_cell(at)] / p->columns;
            FOR_EACH_COLUMN(i, p, first, at) {
                double g = p->dy[start + (size_t)i] * norm_weight(p, p->w, 1, row, i),
                       xhat = ((double)p->x[start + (size_t)i] - m.mean) * m.scale;
                p->out[start + (size_t)i] = (float)((g - sum - xhat * product) * m.scale);
            }
        }
    }
}

/* ---- weights ---- */

struct norm_weights {
    const float *x, *dy;
    const double *moments;
    float *dw, *db;
    uint32_t length, groups, inner, weights; /* weights: of one group */
    uint32_t columns, lanes;                 /* columns * lanes = NORM_WEIGHT_THREADS */
    uint32_t all, tiles;                     /* weights of all groups, and blocks for them */
    uint32_t terms; /* per weight: rows of a group times inner; below 2^31 */
    struct divider by_inner;
};

struct norm_weights_shared {
    double dw[NORM_WEIGHT_THREADS], db[NORM_WEIGHT_THREADS];
};

static inline struct norm_weights norm_weights_of(const struct op_args *a) {
    struct norm_weights p = ZEROED;
    p.x = tensor_f32(&a->in[0]), p.dy = tensor_f32(&a->in[1]);
    p.moments = (const double *)a->in[2].data;
    p.dw = tensor_f32(&a->out[0]), p.db = tensor_f32(&a->out[1]);
    p.length = (uint32_t)a->in[0].dims[1], p.groups = (uint32_t)a->p.layer_norm.groups;
    p.inner = (uint32_t)a->p.layer_norm.inner, p.weights = p.length / p.inner;
    p.columns = p.inner == 1 ? NORM_COLUMNS : 1, p.lanes = NORM_WEIGHT_THREADS / p.columns;
    p.all = p.groups * p.weights, p.tiles = (p.all + p.columns - 1) / p.columns;
    p.terms = (uint32_t)a->in[0].dims[0] / p.groups * p.inner;
    p.by_inner = divider_of(p.inner);
    return p;
}

DUET_BLOCK void k_layer_norm_backward_weight(const struct norm_weights *p,
                                             struct norm_weights_shared *shared,
                                             struct thread_index at) {
    for (uint32_t tile = at.block; tile < p->tiles; tile += at.blocks) {
        BLOCK_PHASE(at) {
            uint32_t k = tile * p->columns + at.thread % p->columns;
            double dw = 0, db = 0;
            for (uint32_t t = at.thread / p->columns; k < p->all && t < p->terms; t += p->lanes) {
                uint32_t s, n = divide(p->by_inner, t, &s), row = n * p->groups + k / p->weights,
                            i = row * p->length + k % p->weights * p->inner + s;
                double dy = p->dy[i];
                dw += dy * (((double)p->x[i] - p->moments[2 * (size_t)row]) *
                            p->moments[2 * (size_t)row + 1]);
                db += dy;
            }
            shared->dw[at.thread] = dw, shared->db[at.thread] = db;
        }
        BLOCK_FOLD(at, half, NORM_WEIGHT_THREADS, p->columns) {
            shared->dw[at.thread] += shared->dw[at.thread + half];
            shared->db[at.thread] += shared->db[at.thread + half];
        }
        BLOCK_PHASE(at) {
            uint32_t k = tile * p->columns + at.thread;
            if (at.thread < p->columns && k < p->all) {
                p->dw[k] = (float)shared->dw[at.thread];
                p->db[k] = (float)shared->db[at.thread];
            }
        }
    }
}

#endif
