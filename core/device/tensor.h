/* A tensor is a pointer into device memory with a shape and a layout. It is copied by value.
 *
 * PLAIN is row-major, batch first. Everything that leaves a tape has this layout: copies to other
 * devices, files, tests. A view of such a tensor, such as a part of it or one with exchanged
 * dimensions, is a strided tensor in the same memory. Ops take those only if op_table.c says so.
 *
 * N16 is the host's fast layout, which only tapes use. The samples of a segment are divided into
 * groups of 16 (the last one is padded), and the 16 samples of a group are innermost. If no segment
 * has more than 8, 4, 2 or 1 samples, groups have 8, 4, 2 or 1 lanes, so that few lanes are empty:
 *
 *     PLAIN  [n][c][h][w]                     one sample after another
 *     N16    [group][c][h][w][lanes]          one vector = one pixel of a group
 *
 * A vector instruction then works on a whole group, whatever the width of the image, and a
 * weight is one number broadcast to all lanes. No group holds samples of two segments, so a sum
 * over a segment's samples has the same bits whichever device trains the segment. Lanes past the
 * segment's last sample hold finite junk in activations and exact zeros in gradients. */
#ifndef DEVICE_TENSOR_H
#define DEVICE_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "base/segment.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MAX_RANK = 8, MOST_LANES = 16 };

enum layout { LAYOUT_PLAIN, LAYOUT_N16 };

/* In the order of enum duet_type. Collectives combine all but the last; no op takes F16, BF16 or
 * U8, but copies do. */
enum dtype {
    DTYPE_F32,
    DTYPE_I32,
    DTYPE_F64,
    DTYPE_F16, /* IEEE half precision, and the upper half of a float */
    DTYPE_BF16,
    DTYPE_I64,
    DTYPE_U8,
    DTYPE_U64
};
size_t dtype_bytes(enum dtype dtype);
int dtype_is_float(enum dtype dtype);
const char *dtype_name(enum dtype dtype); /* PyTorch's word, "float32": static storage */

struct tensor {
    void *data; /* device memory, not owned; NULL: no such operand */
    enum dtype dtype;
    enum layout layout;
    int rank;
    int dims[MAX_RANK]; /* in activations dims[0] counts the samples, or their rows, also in N16 */
    int groups, lanes;  /* N16: number of groups; samples of each, padding included; PLAIN: 0 */
    int strided;        /* 1: PLAIN, but with gaps between elements, as `stride` says */
    int stride[MAX_RANK]; /* elements between neighbours in a dimension, at least 0 */
};

static inline float *tensor_f32(const struct tensor *t) {
    return (float *)t->data;
}

/* dims_count is the product of dims[0 .. rank); tensor_sample_count that of dims[1..], the elements
 * of one sample; tensor_count that of all dims, the elements of all samples without the padding of
 * N16. */
size_t dims_count(const int *dims, int rank);
size_t tensor_sample_count(const struct tensor *t);
size_t tensor_count(const struct tensor *t);
/* 1: both have the same number of dimensions and the same sizes. */
int tensor_same_shape(const struct tensor *a, const struct tensor *b);

/* Elements in memory, with the padding of N16 or the gaps of a strided tensor, and their bytes. */
size_t tensor_stored_count(const struct tensor *t);
size_t tensor_bytes(const struct tensor *t);

/* A PLAIN tensor over `data`, which is not copied; dims has `rank` entries. */
struct tensor tensor_plain(void *data, enum dtype dtype, int rank, const int *dims);

/* The step of each dimension, in elements, whether t is strided or row-major. */
void tensor_strides(const struct tensor *t, int stride[MAX_RANK]);

/* A view of t, which is PLAIN, with its dimensions reordered: dimension i is order[i] of t. */
struct tensor tensor_permuted(const struct tensor *t, const int *order);

/* Merges neighbouring dimensions that are contiguous in a and in b, which may be NULL, and removes
 * those of size 1. Returns how many are left, at least 1. */
int tensor_merge(int rank, int dims[MAX_RANK], int a[MAX_RANK], int b[MAX_RANK]);

/* The memory layout of a sample of a PLAIN t. The dimension with the smallest steps comes last.
 * Neighbours are merged, so a dense sample has one dimension. */
struct sample_order {
    int rank, dims[MAX_RANK];
    int at[MAX_RANK];     /* the step of each dimension in memory */
    int number[MAX_RANK]; /* its step in the row-major order of the sample's elements */
};
struct sample_order tensor_sample_order(const struct tensor *t);

/* A view of segment i of a batch that `segments` divides. t has the same number of rows, one or
 * more, for each sample. */
struct tensor tensor_segment(const struct tensor *t, const struct segments *segments, int i);

/* A PLAIN t in layout N16; the caller supplies the memory. `segments` NULL: one segment. */
struct tensor tensor_in_n16(const struct tensor *t, const struct segments *segments);

#ifdef __cplusplus
}
#endif
#endif
