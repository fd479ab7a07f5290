/* Attention with the formulas of device/attention.h, in double as in the reference
 * (host/kernels/reference_attention.c). A block has one query or, in backward, one query or one
 * key. Each of its threads first computes the weight of one partner in shared memory, and then one
 * column of the result. So nothing larger than a block is kept, and every sum is in the order of
 * the keys, or of the queries, whatever the grid. */
#ifndef DEVICE_CUDA_KERNELS_ATTENTION_H
#define DEVICE_CUDA_KERNELS_ATTENTION_H

#include "device/attention.h"
#include "device/cuda/kernels/kernel.h"

enum { ATTENTION_THREADS = 128 };

struct attention_shared {
    double weight[ATTENTION_THREADS], slope[ATTENTION_THREADS];
};

/* A thread's data about its row, and about its column of one or two results. */
struct attention_state {
    double lse, sum, second;
};

DUET_HD double attention_larger(double a, double b) {
    return b > a || b != b ? b : a;
}

/* The number of partners in a block's share from `first` on. */
DUET_HD size_t attention_tile(size_t first, size_t count) {
    size_t left = count - first;
    return left < ATTENTION_THREADS ? left : (size_t)ATTENTION_THREADS;
}

/* Puts log(sum of exp(score)) for query i into the state of all threads; 0 if every key is
 * hidden. */
DUET_BLOCK void attention_log_sum(const struct attention *p, struct attention_shared *shared,
                                  struct attention_state *state, size_t b, size_t i,
                                  struct thread_index at) {
    size_t keys = attention_keys(p, i);
    BLOCK_PHASE(at) {
        double max = -(double)INFINITY;
        for (size_t j = at.thread; j < keys; j += ATTENTION_THREADS)
            max = attention_larger(max, attention_score(p, b, i, j));
        shared->weight[at.thread] = max;
    }
    BLOCK_FOLD(at, half, ATTENTION_THREADS, 1) {
        shared->weight[at.thread] =
            attention_larger(shared->weight[at.thread], shared->weight[at.thread + half]);
    }
    BLOCK_PHASE(at) {
        double max = shared->weight[0], sum = 0;
        for (size_t j = at.thread; j < keys && max != -(double)INFINITY; j += ATTENTION_THREADS)
            sum += elementary_exp(attention_score(p, b, i, j) - max);
        shared->slope[at.thread] = sum;
    }
    BLOCK_FOLD(at, half, ATTENTION_THREADS, 1) {
        shared->slope[at.thread] += shared->slope[at.thread + half];
    }
    BLOCK_PHASE(at) {
        double max = shared->weight[0];
        state[STATE(at)].lse =
            max == -(double)INFINITY ? 0 : max + elementary_log(shared->slope[0]);
    }
}

DUET_BLOCK void k_attention_forward(const struct attention *p, struct attention_shared *shared,
                                    struct thread_index at) {
    struct attention_state state[STATES];
    for (size_t row = at.block; row < p->batches * p->queries; row += at.blocks) {
        size_t b = row / p->queries, i = row % p->queries, keys = attention_keys(p, i);
        attention_log_sum(p, shared, state, b, i, at);
        for (size_t first = 0; first < p->values; first += ATTENTION_THREADS) {
            for (size_t from = 0; from < keys; from += ATTENTION_THREADS) {
                BLOCK_PHASE(at) {
                    size_t j = from + at.thread;
                    if (from == 0) state[STATE(at)].sum = 0;
                    if (j < keys)
                        shared->weight[at.thread] =
                            elementary_exp(attention_score(p, b, i, j) - state[STATE(at)].lse) *
                            (double)attention_kept(p, b, i, j);
                }
                BLOCK_PHASE(at) {
                    size_t e = first + at.thread;
                    for (size_t t = 0; e < p->values && t < attention_tile(from, keys); t++)
                        state[STATE(at)].sum +=
                            shared->weight[t] * (double)attention_row(p, &p->v, b, from + t)[e];
                }
            }
            BLOCK_PHASE(at) {
                size_t e = first + at.thread;
                if (e < p->values) attention_row(p, &p->y, b, i)[e] = (float)state[STATE(at)].sum;
                if (first + at.thread == 0) p->lse[row] = (float)state[STATE(at)].lse;
            }
        }
    }
}

DUET_BLOCK void attention_query_gradient(const struct attention *p, struct attention_shared *shared,
                                         struct attention_state *state, size_t row,
                                         struct thread_index at) {
    size_t b = row / p->queries, i = row % p->queries, keys = attention_keys(p, i);
    for (size_t first = 0; first < p->width; first += ATTENTION_THREADS) {
        for (size_t from = 0; from < keys; from += ATTENTION_THREADS) {
            BLOCK_PHASE(at) {
                size_t j = from + at.thread;
                if (from == 0) state[STATE(at)].sum = 0;
                if (j < keys)
                    shared->slope[at.thread] = attention_slope(
                        p, b, i, j, attention_weight(p, b, i, j), attention_kept(p, b, i, j));
            }
            BLOCK_PHASE(at) {
                size_t e = first + at.thread;
                for (size_t t = 0; e < p->width && t < attention_tile(from, keys); t++)
                    state[STATE(at)].sum +=
                        shared->slope[t] * (double)attention_row(p, &p->k, b, from + t)[e];
            }
        }
        BLOCK_PHASE(at) {
            size_t e = first + at.thread;
            if (e < p->width) attention_row(p, &p->dq, b, i)[e] = (float)state[STATE(at)].sum;
        }
    }
}

/* Adds the contributions of the queries from `from` on to the columns from `first` on. */
DUET_BLOCK void attention_add_queries(const struct attention *p, struct attention_shared *shared,
                                      struct attention_state *state, size_t b, size_t j,
                                      size_t first, size_t from, struct thread_index at) {
    BLOCK_PHASE(at) {
        size_t i = from + at.thread;
        if (i < p->queries) {
            double weight = attention_weight(p, b, i, j);
            float kept = attention_kept(p, b, i, j);
            shared->slope[at.thread] = attention_slope(p, b, i, j, weight, kept);
            shared->weight[at.thread] = weight * (double)kept;
        }
    }
    BLOCK_PHASE(at) {
        size_t e = first + at.thread;
        struct attention_state *s = &state[STATE(at)];
        for (size_t t = 0; t < attention_tile(from, p->queries); t++) {
            if (e < p->width)
                s->sum += shared->slope[t] * (double)attention_row(p, &p->q, b, from + t)[e];
            if (e < p->values)
                s->second += shared->weight[t] * (double)attention_row(p, &p->dy, b, from + t)[e];
        }
    }
}

DUET_BLOCK void attention_key_gradients(const struct attention *p, struct attention_shared *shared,
                                        struct attention_state *state, size_t row,
                                        struct thread_index at) {
    size_t b = row / p->keys, j = row % p->keys, most = p->width > p->values ? p->width : p->values;
    for (size_t first = 0; first < most; first += ATTENTION_THREADS) {
        BLOCK_PHASE(at) {
            state[STATE(at)].sum = state[STATE(at)].second = 0;
        }
        for (size_t from = p->causal ? j : 0; from < p->queries; from += ATTENTION_THREADS)
            attention_add_queries(p, shared, state, b, j, first, from, at);
        BLOCK_PHASE(at) {
            size_t e = first + at.thread;
            if (e < p->width) attention_row(p, &p->dk, b, j)[e] = (float)state[STATE(at)].sum;
            if (e < p->values) attention_row(p, &p->dv, b, j)[e] = (float)state[STATE(at)].second;
        }
    }
}

/* The first blocks work on the queries, and the others work on the keys. */
DUET_BLOCK void k_attention_backward(const struct attention *p, struct attention_shared *shared,
                                     struct thread_index at) {
    struct attention_state state[STATES];
    size_t queries = p->batches * p->queries, all = queries + p->batches * p->keys;
    for (size_t row = at.block; row < all; row += at.blocks) {
        if (row < queries)
            attention_query_gradient(p, shared, state, row, at);
        else
            attention_key_gradients(p, shared, state, row - queries, at);
    }
}

#endif
