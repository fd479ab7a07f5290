/* How far apart two arrays are. */
#ifndef BASE_DISTANCE_H
#define BASE_DISTANCE_H

#include <stddef.h>

/* The relative L2 distance |got - want| / |want| over `count` floats, summed in double. 0 if all
 * are equal, also if both arrays are zeros. INFINITY if an element of either is not finite, or if
 * `want` is all zeros and `got` is not: neither is within any bound. */
double relative_l2(const float *want, const float *got, size_t count);

#endif
