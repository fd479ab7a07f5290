/* IDX: the file format of MNIST and its kin. A magic number 0x00 0x00 <type> <dimensions>, the
 * sizes as 32-bit big-endian numbers, then the elements; type 8 is unsigned bytes, the only one
 * used here. 2051 is a file of pictures (3 dimensions), 2049 one of labels (1 dimension).
 * Source: LeCun's MNIST page. */
#ifndef DATA_IDX_H
#define DATA_IDX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { IDX_DIMENSIONS = 3 };

struct idx {
    int dimensions;
    int size[IDX_DIMENSIONS]; /* row-major, e.g. (count, rows, cols) */
    uint8_t *data;            /* the product of the sizes, in bytes */
};

/* Reads a raw or gzipped file of 1 or 3 dimensions. ERR_FAILED names the path: missing, no
 * regular file, gzip in a build without zlib, broken gzip, wrong magic, sizes past 1 GiB, fewer
 * or more bytes than the sizes say. idx_free gives the memory back; after an error there is
 * none. */
int idx_read(struct idx *x, const char *path, int dimensions);
void idx_free(struct idx *x); /* zeroed is fine */

#ifdef __cplusplus
}
#endif
#endif
