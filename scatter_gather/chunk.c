/* The chunk rule: chunks of ceil(n/k) rows until the rows are used up. A fair split of 10 rows over
 * 4 devices would be 3 3 2 2. This rule gives 3 3 3 1 and can leave the last devices idle, which is
 * one of DataParallel's costs. */
#include "scatter_gather/chunk.h"

#include <limits.h>

int chunk_sizes(int n, int k, int *sizes) {
    int size = n / k + (n % k != 0), left = n, chunks = 0;
    for (int i = 0; i < k; i++) {
        sizes[i] = left < size ? left : size;
        left -= sizes[i];
        if (sizes[i] > 0) chunks++;
    }
    return n == 0 ? k : chunks;
}

int chunk_offsets(const int *sizes, int k, int *offsets) {
    offsets[0] = 0;
    for (int i = 0; i < k; i++) {
        if (sizes[i] < 0 || sizes[i] > INT_MAX - offsets[i]) return -1;
        offsets[i + 1] = offsets[i] + sizes[i];
    }
    return 0;
}
