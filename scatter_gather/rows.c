#include "scatter_gather/rows.h"

#include <limits.h>

int row_offsets(const int *sizes, int k, int *offsets) {
    offsets[0] = 0;
    for (int i = 0; i < k; i++) {
        if (sizes[i] < 0 || sizes[i] > INT_MAX - offsets[i]) return -1;
        offsets[i + 1] = offsets[i] + sizes[i];
    }
    return 0;
}
