/* A loop of move.inc.h, once for each size of unit. FOLD_UNITS adds up elements from i on, UNITS of
 * type UNIT at a time, while enough are left. It returns the index at which it stopped. Like
 * fold_sum it adds in fold order. It does the first halving while it loads the sources, so that
 * only half of the terms need memory. */
static inline TARGET __attribute__((always_inline)) size_t FOLD_UNITS(float *const *dest, int dests,
                                                                      const float *const *source,
                                                                      int n, float scale, size_t i,
                                                                      size_t length) {
    enum { WIDTH = sizeof(UNIT) / sizeof(float) };
    UNIT term[(MAX_DEVICES + 1) / 2][UNITS];
    for (; i + WIDTH * UNITS <= length; i += WIDTH * UNITS) {
        int half = fold_half(n);
        for (int r = 0; r < half; r++) {
            for (int u = 0; u < UNITS; u++) {
                term[r][u] = *(const UNIT *)(source[r] + i + u * WIDTH) * scale;
                if (r + half < n)
                    term[r][u] += *(const UNIT *)(source[r + half] + i + u * WIDTH) * scale;
            }
        }
        for (int m = half; m > 1; m = half) {
            half = fold_half(m);
            for (int r = 0; r + half < m; r++)
                for (int u = 0; u < UNITS; u++)
                    term[r][u] += term[r + half][u];
        }
        for (int d = 0; d < dests; d++)
            for (int u = 0; u < UNITS; u++)
                *(UNIT *)(dest[d] + i + u * WIDTH) = term[0][u];
    }
    return i;
}
#undef FOLD_UNITS
#undef UNITS
#undef UNIT
