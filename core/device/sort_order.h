/* Numbers are sorted in the order of PyTorch's stable sort on every kind of device. NaN counts as
 * larger than any other number, and -0 as equal to 0. */
#ifndef DEVICE_SORT_ORDER_H
#define DEVICE_SORT_ORDER_H

#include "device/activation.h"

struct sort_args {
    int descending;
};

/* 1 if a comes before b; 0 if it comes after b or equals b. The indices of equal numbers decide. */
EVERY_DEVICE int sorts_before(float a, float b, int descending) {
    const float low = descending ? b : a, high = descending ? a : b;
    return low < high || (high != high && low == low);
}

#endif
