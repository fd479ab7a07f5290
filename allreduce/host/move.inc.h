/* The loops of host/move.c, compiled once for each set of vector instructions: SUFFIX(name)
 * names the set's version, TARGET tells the compiler of the set.
 *
 * `vec` is the compiler's own vector type; where the machine's vectors are narrower it makes
 * several of one. A function must not take or return one (the calling convention would depend on
 * the set), hence LOAD and STORE. */

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

/* fold_sum_float on blocks of BLOCK elements; returns how many elements it did. Inlined with a
 * constant n the terms live in registers. */
static inline TARGET __attribute__((always_inline)) size_t
SUFFIX(sum_blocks)(float *const *dest, int dests, const float *const *source, int n, float scale,
                   size_t length) {
    vec term[(MAX_DEVICES + 1) / 2][VECS];
    size_t i = 0;
    for (; i + BLOCK <= length; i += BLOCK) {
        int half = (n + 1) / 2;
        for (int r = 0; r < half; r++) {
            for (int v = 0; v < VECS; v++) {
                term[r][v] = LOAD(source[r] + i + v * LANES) * scale;
                if (r + half < n) term[r][v] += LOAD(source[r + half] + i + v * LANES) * scale;
            }
        }
        for (int m = half; m > 1; m = half) {
            half = (m + 1) / 2;
            for (int r = 0; r + half < m; r++)
                for (int v = 0; v < VECS; v++)
                    term[r][v] += term[r + half][v];
        }
        for (int d = 0; d < dests; d++)
            for (int v = 0; v < VECS; v++)
                STORE(dest[d] + i + v * LANES, term[0][v]);
    }
    return i;
}

static TARGET void SUFFIX(sum)(float *const *dest, int dests, const float *const *source, int n,
                               float scale, size_t length) {
    size_t i;
    switch (n) {
    case 2: i = SUFFIX(sum_blocks)(dest, dests, source, 2, scale, length); break;
    case 3: i = SUFFIX(sum_blocks)(dest, dests, source, 3, scale, length); break;
    case 4: i = SUFFIX(sum_blocks)(dest, dests, source, 4, scale, length); break;
    default: i = SUFFIX(sum_blocks)(dest, dests, source, n, scale, length);
    }
    for (; i < length; i++) {
        float term[MAX_DEVICES];
        for (int r = 0; r < n; r++)
            term[r] = source[r][i] * scale;
        float sum = fold_sum_float(term, n);
        for (int d = 0; d < dests; d++)
            dest[d][i] = sum;
    }
}
