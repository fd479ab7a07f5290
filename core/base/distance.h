/* Measures the distance between two arrays. */
#ifndef BASE_DISTANCE_H
#define BASE_DISTANCE_H

#include <stddef.h>

/* The relative L2 distance |got - want| / |want| over `count` floats, summed in double. It is 0 if
 * all are equal, also if both arrays are zeros. It is INFINITY, which exceeds any bound, if an
 * element of either is not finite, or if `want` is all zeros and `got` is not. */
double relative_l2(const float *want, const float *got, size_t count);

#endif
