/* The sum of floats in fold order, for tests of code that adds this way. */
#ifndef TESTS_CORE_BASE_FOLD_FLOAT_H
#define TESTS_CORE_BASE_FOLD_FLOAT_H

#include "base/fold.h"

/* x is overwritten; 0 for n = 0. */
static inline float fold_sum_float(float *x, int n) {
    for (struct fold f = fold_begin(n); fold_next(&f);)
        x[f.to] += x[f.from];
    return n > 0 ? x[0] : 0;
}

#endif
