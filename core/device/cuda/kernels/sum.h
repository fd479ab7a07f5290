/* Adds up ranges of memory on a GPU, for the steps of an allreduce and for DP's reduce.
 *
 *     every dest = source 0 * first_scale + source 1 * scale + ... in fold order
 *
 * (docs/design.md section 2, rule 1). One source is a copy, two are a reduce (the rank's own term
 * first), n are a sum over n ranks. Each product is rounded before it is added, so the bits are
 * those of allreduce/host/move.c. A destination may be one of the sources, at the same address.
 *
 * Only memory limits the speed. Each source is read once, each destination written once, and enough
 * loads must be in flight to use the whole bandwidth. So a thread moves vectors of 16 bytes,
 * several at a time: up to 8 loads are issued before the first addition waits for its terms. With
 * up to 8 sources the terms stay in registers, in code that is unrolled for their number; more
 * sources are added depth first.
 *
 * Vectors. Vector q covers elements 4 q - skew .. 4 q - skew + 3, cut to 0 .. length. If all
 * pointers have the same address modulo 16, the right skew (0..3) makes all vectors' addresses
 * multiples of 16. The first and the last vector may be cut short. These are moved element by
 * element, and so are all vectors if the pointers disagree.
 *
 * Parts. Several grids may share one range. From every `parts` granules of 256 vectors a grid takes
 * granule number `part`. Two grids with different parts never access the same element, whatever
 * their sizes, and two ranges with the same skew are cut at the same elements. The channels of
 * allreduce/cuda/spin.h rely on both. */
#ifndef DEVICE_CUDA_KERNELS_SUM_H
#define DEVICE_CUDA_KERNELS_SUM_H

#include "device/cuda/kernels/kernel.h"

enum {
    SUM_GRANULE = 256,
    SUM_GRANULE_ELEMENTS = 4 * SUM_GRANULE,
    SUM_IN_FLIGHT = 8,
    SUM_THREADS = 256
};

struct sum {
    const float *source[MAX_DEVICES];
    float *dest[MAX_DEVICES];
    uint64_t length;         /* elements of each range */
    uint32_t sources, dests; /* how many sources and destinations, 1 .. MAX_DEVICES */
    float first_scale;       /* for source[0] */
    float scale;             /* for all other sources */
    uint32_t skew;           /* 0..3: vector 0 begins this many elements before the ranges */
    uint32_t aligned;        /* 1: source[k] - skew and dest[k] - skew are multiples of 16 bytes */
};

struct sum_part {
    uint32_t part, parts;
};

/* It is not inlined, since a function that rarely runs must not take registers from code that runs
 * often. */
#ifdef __CUDACC__
#define SUM_APART static __host__ __device__ __noinline__
#else
#define SUM_APART static inline
#endif

/* Vectors that a thread moves at a time; sources is 0 for more than 8. */
DUET_CONSTANT uint32_t sum_units(uint32_t sources) {
    return sources == 1 ? 8 : sources == 2 ? 4 : sources == 3 || sources == 4 ? 2 : 1;
}

DUET_HD uint64_t sum_vectors(const struct sum *s) {
    return (s->length + s->skew + 3) / 4;
}

/* The number of vectors in part p. */
DUET_HD uint64_t sum_part_vectors(const struct sum *s, struct sum_part p) {
    uint64_t vectors = sum_vectors(s), granules = (vectors + SUM_GRANULE - 1) / SUM_GRANULE;
    if (granules <= p.part) return 0;
    uint64_t own = (granules - p.part + p.parts - 1) / p.parts;
    uint64_t missing = (granules - 1) % p.parts == p.part ? granules * SUM_GRANULE - vectors : 0;
    return own * SUM_GRANULE - missing;
}

/* The number, in the whole range, of the part's vector j. */
DUET_HD uint64_t sum_part_vector(struct sum_part p, uint64_t j) {
    return (j / SUM_GRANULE * p.parts + p.part) * SUM_GRANULE + j % SUM_GRANULE;
}

/* The part that element x belongs to. */
DUET_HD uint32_t sum_part_of(uint32_t parts, uint32_t skew, uint64_t x) {
    return (uint32_t)((x + skew) / SUM_GRANULE_ELEMENTS % parts);
}

/* Sets skew and aligned from the pointers, on the host, for a range that one grid moves alone. */
static inline void sum_align(struct sum *s) {
    uint32_t agree = 1;
    s->skew = (uint32_t)((uintptr_t)s->dest[0] / sizeof(float) % 4);
    for (uint32_t r = 0; r < s->sources; r++)
        agree &= ((uintptr_t)s->source[r] - s->skew * sizeof(float)) % 16 == 0;
    for (uint32_t d = 0; d < s->dests; d++)
        agree &= ((uintptr_t)s->dest[d] - s->skew * sizeof(float)) % 16 == 0;
    s->aligned = agree;
}

/* ---- the work of one thread ---- */

/* `width` floats from p: 4 in one access, or 1. */
DUET_HD void sum_load(float v[4], const float *p, int width) {
    if (width == 4)
        load_4(v, p);
    else
        v[0] = *p;
}

DUET_HD void sum_store(const struct sum *s, uint64_t x, const float v[4], int width) {
    for (uint32_t d = 0; d < s->dests; d++) {
        if (width == 4)
            store_4(s->dest[d] + x, v);
        else
            s->dest[d][x] = v[0];
    }
}

/* Moves the vectors that begin at elements x[0 .. units): all loads, then all additions, then all
 * stores. After inlining n (1..8) and all indices of `term` are constants, so the terms stay in
 * registers. */
DUET_HD void sum_few(const struct sum *s, uint32_t n, uint32_t units, const uint64_t *x) {
    float term[SUM_IN_FLIGHT][4];
    const uint32_t half = (n + 1) / 2, quarter = (half + 1) / 2;
    DUET_UNROLL
    for (uint32_t u = 0; u < units; u++)
        DUET_UNROLL
    for (uint32_t r = 0; r < n; r++)
        load_4(term[u * n + r], s->source[r] + x[u]);
    DUET_UNROLL
    for (uint32_t u = 0; u < units; u++) {
        float(*t)[4] = &term[u * n];
        DUET_UNROLL
        for (int i = 0; i < 4; i++) {
            if (n > 1 || s->first_scale != 1) t[0][i] *= s->first_scale;
            DUET_UNROLL
            for (uint32_t r = 1; r < n; r++)
                t[r][i] *= s->scale;
            DUET_UNROLL
            for (uint32_t r = 0; r + half < n; r++)
                t[r][i] += t[r + half][i];
            if (half > 1) { /* n > 2: `half` terms are left, then `quarter`, then one */
                DUET_UNROLL
                for (uint32_t r = 0; r + quarter < half; r++)
                    t[r][i] += t[r + quarter][i];
                if (quarter > 1) t[0][i] += t[1][i];
            }
        }
    }
    DUET_UNROLL
    for (uint32_t u = 0; u < units; u++)
        sum_store(s, x[u], term[u * n], 4);
}

/* Adds any number of sources, `width` elements at x. The fold is a tree of halvings, walked depth
 * first. A path has one bit per level, 1 for the upper half, so counting upwards visits the leaves
 * from left to right. A finished left half waits, in one slot per level, until its right half is
 * done. If the number of sources is not a power of two, some right halves are empty. */
SUM_APART void sum_many(const struct sum *s, uint64_t x, int width) {
    float waiting[8][4], v[4];
    uint32_t many[8], levels = 0; /* many[k]: nodes of level k */
    uint32_t present = 0;         /* bit k: waiting[k] holds a left half */
    for (many[0] = s->sources; many[levels] > 1; levels++)
        many[levels + 1] = (many[levels] + 1) / 2;
    for (uint32_t path = 0; path < 1u << levels; path++) {
        uint32_t leaf = 0, some = 1, k = 0;
        for (uint32_t level = levels; level > 0 && some; level--) {
            if (path >> (level - 1) & 1) leaf += many[level];
            some = leaf < many[level - 1];
        }
        if (some) {
            float scale = leaf == 0 ? s->first_scale : s->scale;
            sum_load(v, s->source[leaf] + x, width);
            for (int i = 0; i < width; i++)
                if (scale != 1) v[i] *= scale;
        }
        /* The right half of level k is done, so the left half is added in front of it. */
        for (; path >> k & 1; k++) {
            if (!(present >> k & 1)) continue;
            for (int i = 0; i < width; i++)
                v[i] = some ? waiting[k][i] + v[i] : waiting[k][i];
            some = 1;
            present &= ~(1u << k);
        }
        if (!some) continue;
        for (int i = 0; i < width; i++)
            waiting[k][i] = v[i];
        present |= 1u << k;
    }
    sum_store(s, x, waiting[levels], width);
}

/* Moves one vector that may be cut short or is not aligned, element by element. */
SUM_APART void sum_vector(const struct sum *s, uint64_t q) {
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t x = 4 * q + i; /* `skew` elements too far right */
        if (x >= s->skew && x - s->skew < s->length) sum_many(s, x - s->skew, 1);
    }
}

/* Moves one thread's share of part p. n is as in sum_few, or 0 for more than 8 sources. Thread t of
 * a block takes vectors t, t + threads, .. of a tile, so that neighbouring threads load
 * neighbouring vectors; the blocks take the tiles in turn. */
DUET_HD void sum_part_run(const struct sum *s, struct sum_part p, uint32_t n,
                          struct thread_index at) {
    const uint32_t units = sum_units(n);
    uint64_t vectors = sum_part_vectors(s, p), first_whole = s->skew > 0,
             end_whole = s->aligned ? (s->length + s->skew) / 4 : 0;
    for (uint64_t tile = at.block; tile * units * at.threads < vectors; tile += at.blocks) {
        uint64_t j = tile * units * at.threads + at.thread, last = j + (units - 1) * at.threads;
        if (n > 0 && last < vectors && sum_part_vector(p, j) >= first_whole &&
            sum_part_vector(p, last) < end_whole) {
            uint64_t x[SUM_IN_FLIGHT];
            DUET_UNROLL
            for (uint32_t u = 0; u < units; u++)
                x[u] = 4 * sum_part_vector(p, j + u * at.threads) - s->skew;
            sum_few(s, n, units, x);
            continue;
        }
        for (uint32_t u = 0; u < units && j < vectors; u++, j += at.threads) {
            uint64_t q = sum_part_vector(p, j);
            if (q >= first_whole && q < end_whole)
                sum_many(s, 4 * q - s->skew, 4);
            else
                sum_vector(s, q);
        }
    }
}

/* Moves the share of thread `at` of a grid in part p. */
DUET_HD void sum_run(const struct sum *s, struct sum_part p, struct thread_index at) {
    switch (s->sources) {
    case 1: sum_part_run(s, p, 1, at); break;
    case 2: sum_part_run(s, p, 2, at); break;
    case 3: sum_part_run(s, p, 3, at); break;
    case 4: sum_part_run(s, p, 4, at); break;
    case 5: sum_part_run(s, p, 5, at); break;
    case 6: sum_part_run(s, p, 6, at); break;
    case 7: sum_part_run(s, p, 7, at); break;
    case 8: sum_part_run(s, p, 8, at); break;
    default: sum_part_run(s, p, 0, at);
    }
}

/* Moves the whole range with one grid. */
DUET_HD void k_sum(const struct sum *s, struct thread_index at) {
    struct sum_part whole = {0, 1};
    sum_run(s, whole, at);
}

/* The number of blocks of SUM_THREADS threads for the whole range. Each block has a few tiles, so
 * that none has much left to do when the others are done. */
static inline uint32_t sum_blocks(const struct sum *s) {
    enum { MOST = 132 * 64 };
    uint64_t tile = (uint64_t)sum_units(s->sources > SUM_IN_FLIGHT ? 0 : s->sources) * SUM_THREADS,
             blocks = (sum_vectors(s) + tile - 1) / tile;
    return blocks < MOST ? (uint32_t)blocks : (uint32_t)MOST;
}

#endif
