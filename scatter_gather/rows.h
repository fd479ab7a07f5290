/* The first row of each device in the whole batch, computed with integers only. The caller decides
 * how many rows each device gets; data/batch.h has the rules. */
#ifndef SCATTER_GATHER_ROWS_H
#define SCATTER_GATHER_ROWS_H

/* offsets[i] = sizes[0] + ... + sizes[i-1] for i = 0..k, so offsets[k] is the sum. Returns 0, or -1
 * if a size is negative or the sum does not fit an int; then the offsets are undefined. */
int row_offsets(const int *sizes /* [k] */, int k, int *offsets /* [k + 1] */);

#endif
