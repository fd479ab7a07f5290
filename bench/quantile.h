/* Quantiles of times and differences, for benchmarks that print a median or another quantile. */
#ifndef BENCH_QUANTILE_H
#define BENCH_QUANTILE_H

#include <stdint.h>
#include <stdlib.h>

static inline int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline void sort_values(double *x, size_t n) {
    qsort(x, n, sizeof *x, by_value);
}

/* Sorts x and returns the value below which a fraction `part` of x lies. */
static inline double quantile(double *x, int64_t n, double part) {
    sort_values(x, (size_t)n);
    return x[(int64_t)(part * (double)(n - 1) + 0.5)];
}

#endif
