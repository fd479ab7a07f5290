/* The distance of two arrays; see distance.h. */
#include "base/distance.h"

#include <math.h>

double relative_l2(const float *want, const float *got, size_t count) {
    double apart = 0, length = 0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)got[i] - (double)want[i];
        apart += d * d;
        length += (double)want[i] * (double)want[i];
    }
    /* A NaN or an infinity in either array makes `apart` NaN or infinite; if both have the same
     * infinity, the difference is NaN. The square of a float fits a double. */
    if (apart == 0) return 0;
    return isfinite(apart) && length > 0 ? sqrt(apart / length) : INFINITY;
}
