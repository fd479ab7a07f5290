/* Who gets how many rows: PyTorch's chunk rule, and where each share begins. Pure integers.
 *
 *     10 rows over 4 devices:  c = ceil(10/4) = 3   ->  3 3 3 1
 *      9 rows over 4 devices:  c = ceil(9/4)  = 3   ->  3 3 3 0   three chunks, one idle device
 *      3 rows over 4 devices:  c = ceil(3/4)  = 1   ->  1 1 1 0
 *
 * It is torch.chunk, which nn.DataParallel's scatter uses along dimension 0. */
#ifndef SCATTER_GATHER_CHUNK_H
#define SCATTER_GATHER_CHUNK_H

#ifdef __cplusplus
extern "C" {
#endif

/* Splits n >= 0 rows over k >= 1 devices: sets sizes[0..k), to 0 for a device that gets nothing.
 * Returns the number of chunks as PyTorch counts them, which may be fewer than k; 0 rows are k
 * empty chunks. */
int chunk_sizes(int n, int k, int *sizes /* [k] */);

/* offsets[i] = sizes[0] + ... + sizes[i-1] for i = 0..k, so offsets[k] is the sum. Returns 0, or -1
 * where a size is negative or the sum does not fit an int; offsets are undefined then. */
int chunk_offsets(const int *sizes /* [k] */, int k, int *offsets /* [k + 1] */);

#ifdef __cplusplus
}
#endif
#endif
