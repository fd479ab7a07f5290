/* Kernels that write one number of each step into a log, at row step->row: the loss of a segment,
 * and the hash of a tensor. The file also sums the squares of the gradients' pieces, with one block
 * per piece, in the order of device/clip.h: each thread has one lane.
 *
 * The loss is summed in double in the order of the samples, as on the host, by one thread. Its bits
 * are part of the proof that all modes train the same model, and one thread is fast enough for a
 * batch of a few hundred rows. The other threads load the rows into shared memory.
 *
 * The hash is a sum mod 2^64, whose order does not matter, so the blocks may add their parts to the
 * log's cell with atomic additions. A small tensor takes one block, which stores its sum. A large
 * one takes two kernels: the first zeroes the cell, and the blocks of the second add to it. */
#ifndef DEVICE_CUDA_KERNELS_LOG_H
#define DEVICE_CUDA_KERNELS_LOG_H

#include "device/clip.h"
#include "device/cuda/kernels/kernel.h"
#include "device/host/kernels/hash_mix.h"

enum { LOG_THREADS = 256 };

/* The largest tensor that a single block hashes, and the elements per block in larger ones. */
enum { HASH_ALONE = 16384, HASH_A_BLOCK = 4096 };

struct loss_sum {
    const double *loss;
    const int32_t *hits;
    double *loss_log;
    int64_t *hit_log;
    int rows, columns, column, positions;
    const struct step_block *step;
};

struct loss_sum_shared {
    double loss[LOG_THREADS], loss_sum;
    int32_t hits[LOG_THREADS];
    int64_t hit_sum;
};

static inline struct loss_sum loss_sum_of(const struct op_args *a) {
    struct loss_sum s = ZEROED;
    s.loss = (const double *)a->in[0].data, s.hits = (const int32_t *)a->in[1].data;
    s.loss_log = (double *)a->out[0].data, s.hit_log = (int64_t *)a->out[1].data;
    s.rows = a->in[0].dims[0], s.columns = a->out[0].dims[1], s.column = a->p.loss.column,
    s.positions = a->p.loss.positions > 1 ? a->p.loss.positions : 1, s.step = a->step;
    return s;
}

/* Runs as one block. */
DUET_BLOCK void k_loss_sum(const struct loss_sum *p, struct loss_sum_shared *shared,
                           struct thread_index at) {
    BLOCK_PHASE(at) {
        if (at.thread == 0) shared->loss_sum = 0, shared->hit_sum = 0;
    }
    for (int first = 0; first < p->rows; first += (int)at.threads) {
        BLOCK_PHASE(at) {
            int row = first + (int)at.thread;
            if (row < p->rows)
                shared->loss[at.thread] = p->loss[row], shared->hits[at.thread] = p->hits[row];
        }
        BLOCK_PHASE(at) {
            if (at.thread == 0) {
                int rows = p->rows - first < (int)at.threads ? p->rows - first : (int)at.threads;
                double loss_sum = shared->loss_sum;
                int64_t hit_sum = shared->hit_sum;
                for (int i = 0; i < rows; i++) {
                    loss_sum += shared->loss[i];
                    hit_sum += shared->hits[i];
                }
                shared->loss_sum = loss_sum, shared->hit_sum = hit_sum;
            }
        }
    }
    BLOCK_PHASE(at) {
        if (at.thread == 0) {
            size_t cell = (size_t)p->step->row * (size_t)p->columns + (size_t)p->column;
            p->loss_log[cell] = shared->loss_sum / p->positions;
            p->hit_log[cell] = shared->hit_sum;
        }
    }
}

struct hash {
    const float *x;
    uint64_t *log;
    size_t count;
    int columns, column, aligned;
    const struct step_block *step;
};

struct hash_shared {
    uint64_t part[LOG_THREADS];
};

static inline struct hash hash_of(const struct op_args *a) {
    struct hash h = ZEROED;
    h.x = tensor_f32(&a->in[0]), h.log = (uint64_t *)a->out[0].data,
    h.count = tensor_count(&a->in[0]);
    h.columns = a->out[0].dims[1], h.column = a->p.hash.column, h.step = a->step;
    h.aligned = is_aligned_16(h.x);
    return h;
}

static inline uint32_t hash_blocks(size_t count) {
    size_t blocks = (count + HASH_A_BLOCK - 1) / HASH_A_BLOCK;
    return count <= HASH_ALONE ? 1 : blocks < 1024 ? (uint32_t)blocks : 1024;
}

DUET_HD uint64_t *hash_cell(const struct hash *p) {
    return p->log + (size_t)p->step->row * (size_t)p->columns + (size_t)p->column;
}

/* Runs before k_hash if that has more than one block. */
DUET_HD void k_hash_zero(const struct hash *p, struct thread_index at) {
    if (thread_first(at) == 0) *hash_cell(p) = 0;
}

DUET_BLOCK void hash_add(uint64_t *cell, uint64_t part) {
#ifdef __CUDA_ARCH__
    atomicAdd((unsigned long long *)cell, (unsigned long long)part);
#else
    __atomic_fetch_add(cell, part, __ATOMIC_RELAXED);
#endif
}

DUET_BLOCK void k_hash(const struct hash *p, struct hash_shared *shared, struct thread_index at) {
    BLOCK_PHASE(at) {
        uint64_t sum = 0;
        size_t quads = p->aligned ? p->count / 4 : 0;
        for (size_t q = thread_first(at); q < quads; q += thread_stride(at)) {
            float x[4];
            load_4(x, p->x + 4 * q);
            DUET_UNROLL
            for (int i = 0; i < 4; i++)
                sum += hash_mix(bits_of(x[i]), 4 * q + (size_t)i);
        }
        for (size_t i = 4 * quads + thread_first(at); i < p->count; i += thread_stride(at))
            sum += hash_mix(bits_of(p->x[i]), i);
        shared->part[at.thread] = sum;
    }
    BLOCK_FOLD(at, half, at.threads, 1) {
        shared->part[at.thread] += shared->part[at.thread + half];
    }
    BLOCK_PHASE(at) {
        if (at.thread == 0) {
            if (at.blocks == 1)
                *hash_cell(p) = shared->part[0];
            else
                hash_add(hash_cell(p), shared->part[0]);
        }
    }
}

struct square_sums {
    const float *x;
    const int32_t *piece;
    double *sums;
    int count;
};

struct square_sums_shared {
    double lane[CLIP_LANES];
};

static inline struct square_sums square_sums_of(const struct op_args *a) {
    struct square_sums s = ZEROED;
    s.x = tensor_f32(&a->in[0]), s.piece = (const int32_t *)a->in[1].data;
    s.sums = (double *)a->out[0].data, s.count = a->out[0].dims[0];
    return s;
}

/* Blocks of CLIP_LANES threads. */
DUET_BLOCK void k_square_sums(const struct square_sums *p, struct square_sums_shared *shared,
                              struct thread_index at) {
    for (int i = (int)at.block; i < p->count; i += (int)at.blocks) {
        const float *x = p->x + p->piece[2 * i];
        BLOCK_PHASE(at) {
            double sum = 0;
            for (int k = (int)at.thread; k < p->piece[2 * i + 1]; k += CLIP_LANES)
                sum += (double)x[k] * (double)x[k];
            shared->lane[at.thread] = sum;
        }
        BLOCK_FOLD(at, half, CLIP_LANES, 1) {
            shared->lane[at.thread] += shared->lane[at.thread + half];
        }
        BLOCK_PHASE(at) {
            if (at.thread == 0) p->sums[i] = shared->lane[0];
        }
    }
}

#endif
