/* Adding up ranges of memory as fast as the caches deliver them.
 *
 * A block of 64 floats at a time is loaded from all sources, added in registers, and stored to all destinations:
 * each source is read once, each destination written once, and a destination may be one of the sources. Vectors are the
 * compiler's own type, so the code is the same for any machine; with -ffp-contract=off a product is rounded before
 * it is added, in the block and in the tail alike, and so the bits do not depend on where an element lies.
 *
 * Stores bypassing the cache would not pay: all that is written has just been read. */
#include <string.h>

#include "allreduce/host_executor.h"

typedef float vec __attribute__((vector_size(64)));
enum { LANES = 16, VECS = 4, BLOCK = LANES * VECS };

static inline vec load(const float *from) {
    vec v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void store(float *to, vec v) {
    memcpy(to, &v, sizeof v);
}

void host_copy(float *const *dest, int dests, const float *source, float scale, size_t length) {
    if (scale == 1) {
        for (int d = 0; d < dests; d++)
            if (dest[d] != source) memcpy(dest[d], source, length * sizeof(float));
        return;
    }
    size_t i = 0;
    for (; i + LANES <= length; i += LANES) {
        vec v = load(source + i) * scale;
        for (int d = 0; d < dests; d++) store(dest[d] + i, v);
    }
    for (; i < length; i++) {
        float x = source[i] * scale;
        for (int d = 0; d < dests; d++) dest[d][i] = x;
    }
}

void host_reduce(float *const *dest, int dests, const float *own, float own_scale, const float *source,
                 float source_scale, size_t length) {
    size_t i = 0;
    for (; i + LANES <= length; i += LANES) {
        vec v = load(own + i) * own_scale + load(source + i) * source_scale;
        for (int d = 0; d < dests; d++) store(dest[d] + i, v);
    }
    for (; i < length; i++) {
        float x = own[i] * own_scale + source[i] * source_scale;
        for (int d = 0; d < dests; d++) dest[d][i] = x;
    }
}

/* plan_tree_sum on blocks. Inlined for small n, where the terms then live in registers. */
static inline __attribute__((always_inline)) size_t sum_blocks(float *const *dest, int dests, const float *const *source,
                                                               int n, float scale, size_t length) {
    vec term[(MAX_DEVICES + 1) / 2][VECS];
    size_t i = 0;
    for (; i + BLOCK <= length; i += BLOCK) {
        int half = (n + 1) / 2;
        for (int r = 0; r < half; r++) {
            for (int v = 0; v < VECS; v++) {
                term[r][v] = load(source[r] + i + v * LANES) * scale;
                if (r + half < n) term[r][v] += load(source[r + half] + i + v * LANES) * scale;
            }
        }
        for (int m = half; m > 1; m = half) {
            half = (m + 1) / 2;
            for (int r = 0; r + half < m; r++)
                for (int v = 0; v < VECS; v++) term[r][v] += term[r + half][v];
        }
        for (int d = 0; d < dests; d++)
            for (int v = 0; v < VECS; v++) store(dest[d] + i + v * LANES, term[0][v]);
    }
    return i;
}

void host_sum(float *const *dest, int dests, const float *const *source, int n, float scale, size_t length) {
    size_t i;
    switch (n) {
    case 2: i = sum_blocks(dest, dests, source, 2, scale, length); break;
    case 3: i = sum_blocks(dest, dests, source, 3, scale, length); break;
    case 4: i = sum_blocks(dest, dests, source, 4, scale, length); break;
    default: i = sum_blocks(dest, dests, source, n, scale, length);
    }
    for (; i < length; i++) {
        float term[MAX_DEVICES];
        for (int r = 0; r < n; r++) term[r] = source[r][i] * scale;
        float sum = plan_tree_sum(term, n);
        for (int d = 0; d < dests; d++) dest[d][i] = sum;
    }
}
