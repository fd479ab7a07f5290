/* Who gets how many rows: PyTorch's chunk rule, and where each share begins. Pure integers.
 *
 *     10 rows over 4 devices:  c = ceil(10/4) = 3   ->  3 3 3 1
 *      9 rows over 4 devices:  c = 3                ->  3 3 3 0   three chunks: the last device idles
 *      3 rows over 4 devices:  c = 1                ->  1 1 1 0
 *
 * (torch.chunk, which nn.DataParallel's scatter uses along dim 0.) */
#ifndef SCATTER_GATHER_CHUNK_H
#define SCATTER_GATHER_CHUNK_H

#ifdef __cplusplus
extern "C" {
#endif

/* Splits n >= 0 rows over k >= 1 devices: sizes[0..k) are set, 0 for a device that gets nothing.
 * Returns the number of chunks as PyTorch counts them: fewer than k is possible, and 0 rows are
 * k empty chunks. */
int chunk_sizes(int n, int k, int *sizes);

/* offsets[i] = sizes[0] + ... + sizes[i-1] for i = 0..k, so offsets[k] is the sum. -1 if a size
 * is negative or the sum does not fit an int (offsets are then undefined), else 0. */
int chunk_offsets(const int *sizes, int k, int *offsets);

#ifdef __cplusplus
}
#endif
#endif
