/* The loops of move.c, compiled once for each set of vector instructions: SUFFIX(name) is the set's
 * version of a function, and TARGET tells the compiler which set to use.
 *
 * `vec` is the compiler's vector type; if the machine's vectors are narrower, the compiler splits
 * one into several. LOAD and STORE are macros because a function must not take or return a vec: its
 * calling convention would depend on the set. */

static TARGET void SUFFIX(scale_copy)(float *const *dest, int dests, const float *source,
                                      float scale, size_t length) {
    size_t i = 0;
    for (; i + LANES <= length; i += LANES) {
        vec v = LOAD(source + i) * scale;
        for (int d = 0; d < dests; d++)
            STORE(dest[d] + i, v);
    }
    for (; i < length; i++) {
        float x = source[i] * scale;
        for (int d = 0; d < dests; d++)
            dest[d][i] = x;
    }
}

static TARGET void SUFFIX(reduce)(float *const *dest, int dests, const float *own, float own_scale,
                                  const float *source, float source_scale, size_t length) {
    size_t i = 0;
    for (; i + LANES <= length; i += LANES) {
        vec v = LOAD(own + i) * own_scale + LOAD(source + i) * source_scale;
        for (int d = 0; d < dests; d++)
            STORE(dest[d] + i, v);
    }
    for (; i < length; i++) {
        float x = own[i] * own_scale + source[i] * source_scale;
        for (int d = 0; d < dests; d++)
            dest[d][i] = x;
    }
}

/* Sums n sources in units of four sizes, the wide ones first: blocks of four vectors, then the rest
 * of a long range or all of a short one. */
#define UNIT vec
#define UNITS VECS
#define FOLD_UNITS SUFFIX(fold_blocks)
#include "allreduce/host/fold.inc.h"
#define UNIT vec
#define UNITS 1
#define FOLD_UNITS SUFFIX(fold_vectors)
#include "allreduce/host/fold.inc.h"
#define UNIT quad
#define UNITS 1
#define FOLD_UNITS SUFFIX(fold_quads)
#include "allreduce/host/fold.inc.h"
#define UNIT float
#define UNITS 1
#define FOLD_UNITS SUFFIX(fold_singles)
#include "allreduce/host/fold.inc.h"

static inline TARGET __attribute__((always_inline)) void
SUFFIX(fold_range)(float *const *dest, int dests, const float *const *source, int n, float scale,
                   size_t length) {
    size_t i = SUFFIX(fold_blocks)(dest, dests, source, n, scale, 0, length);
    i = SUFFIX(fold_vectors)(dest, dests, source, n, scale, i, length);
    i = SUFFIX(fold_quads)(dest, dests, source, n, scale, i, length);
    SUFFIX(fold_singles)(dest, dests, source, n, scale, i, length);
}

/* Inlined with a constant n, the loops unroll and the terms live in registers. */
static TARGET void SUFFIX(fold)(float *const *dest, int dests, const float *const *source, int n,
                                float scale, size_t length) {
    switch (n) {
    case 2: SUFFIX(fold_range)(dest, dests, source, 2, scale, length); break;
    case 3: SUFFIX(fold_range)(dest, dests, source, 3, scale, length); break;
    case 4: SUFFIX(fold_range)(dest, dests, source, 4, scale, length); break;
    case 8: SUFFIX(fold_range)(dest, dests, source, 8, scale, length); break;
    default: SUFFIX(fold_range)(dest, dests, source, n, scale, length);
    }
}
