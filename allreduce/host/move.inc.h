/* The loops of move.c, compiled once for each set of vector instructions: SUFFIX(name) is the
 * set's version of a function, TARGET tells the compiler which set it is.
 *
 * `vec` is the compiler's vector type; where the machine's vectors are narrower the compiler
 * makes several of one. LOAD and STORE are macros because a function must not take or return a
 * vec: its calling convention would depend on the set. */

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

/* fold_sum_float on blocks of BLOCK elements; returns how many elements it did. The first halving
 * is done while the sources are loaded, so that half of the terms need a place. Inlined with a
 * constant n, the loops unroll and the terms live in registers. */
static inline TARGET __attribute__((always_inline)) size_t
SUFFIX(fold_blocks)(float *const *dest, int dests, const float *const *source, int n, float scale,
                    size_t length) {
    vec term[(MAX_DEVICES + 1) / 2][VECS];
    size_t i = 0;
    for (; i + BLOCK <= length; i += BLOCK) {
        int half = fold_half(n);
        for (int r = 0; r < half; r++) {
            for (int v = 0; v < VECS; v++) {
                term[r][v] = LOAD(source[r] + i + v * LANES) * scale;
                if (r + half < n) term[r][v] += LOAD(source[r + half] + i + v * LANES) * scale;
            }
        }
        for (int m = half; m > 1; m = half) {
            half = fold_half(m);
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

static TARGET void SUFFIX(fold)(float *const *dest, int dests, const float *const *source, int n,
                                float scale, size_t length) {
    size_t i;
    switch (n) {
    case 2: i = SUFFIX(fold_blocks)(dest, dests, source, 2, scale, length); break;
    case 3: i = SUFFIX(fold_blocks)(dest, dests, source, 3, scale, length); break;
    case 4: i = SUFFIX(fold_blocks)(dest, dests, source, 4, scale, length); break;
    default: i = SUFFIX(fold_blocks)(dest, dests, source, n, scale, length);
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
