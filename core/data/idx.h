/* IDX: the file format of MNIST and its successors.
 *
 *     4 bytes       magic number: 0, 0, element type, number of dimensions
 *     4 per size    the size of each dimension, a big-endian 32-bit number
 *     the rest      the elements, row-major
 *
 * Type 8, unsigned bytes, is the only one read here. So the magic number is 2051 for images
 * (3 dimensions) and 2049 for labels (1 dimension). Source: LeCun's MNIST page. */
#ifndef DATA_IDX_H
#define DATA_IDX_H

#include <stddef.h>
#include <stdint.h>

enum { IDX_DIMENSIONS = 3 };

struct idx {
    int dimensions;
    int size[IDX_DIMENSIONS]; /* (count, rows, cols) for images, (count) for labels */
    uint8_t *data;            /* all elements, row-major, one byte each; NULL before idx_load */
    const char *path;
    void *file;  /* open, between idx_open and idx_load */
    size_t disk; /* its size on disk */
    int gzip;    /* 1: the file is gzip data */
};

/* Opens a raw or gzipped file with 1 or 3 dimensions and reads its sizes, but not its elements,
 * because a few packed bytes can claim a gigabyte, and the caller may know that the sizes are
 * wrong. The path must stay valid until idx_load. ERR_FAILED names the path: the file is missing or
 * not a regular file, the gzip data are broken or the build has no zlib, the magic number is wrong,
 * or the sizes exceed 1 GiB. */
int idx_open(struct idx *x, const char *path, int dimensions);

/* Reads the elements and closes the file. ERR_FAILED names the path: the gzip data are broken, or
 * the file has fewer or more bytes than its sizes say. Not more than these bytes are unpacked. */
int idx_load(struct idx *x);

/* Closes the file and frees the elements. Takes a zeroed struct, and one whose open or load
 * failed. */
void idx_free(struct idx *x);

#endif
