/* Tensors: a pointer into device memory with a shape and a layout. Plain data, copied by value.
 *
 * PLAIN is row-major, batch first: the only layout that crosses a device, a file or a test.
 *
 * N16 is the host's fast layout, used inside a tape only: the samples of a segment are cut into
 * groups of 16 (the last one padded), and the 16 samples of a group lie innermost:
 *
 *     plain  [n][c][h][w]                     one sample after another
 *     N16    [group][c][h][w][16]             one vector = one pixel of 16 samples
 *
 * A vector instruction then works on 16 samples at once, whatever the width of the picture, and
 * a weight is one scalar broadcast to all lanes. A segment never shares a group with another
 * segment, so that what is summed over a segment's samples has the same bits wherever the
 * segment is trained. Lanes past the segment's end hold finite junk in activations and exact
 * zeros in gradients. */
#ifndef DEVICE_TENSOR_H
#define DEVICE_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "base/segment.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MAX_RANK = 4, GROUP = 16 };

enum layout { LAYOUT_PLAIN, LAYOUT_N16 };
enum dtype { DTYPE_F32, DTYPE_F64, DTYPE_I32, DTYPE_I64, DTYPE_U64, DTYPE_U8 };
size_t dtype_bytes(enum dtype dtype);

struct tensor {
    void *data; /* device memory; NULL: no such operand */
    enum dtype dtype;
    enum layout layout;
    int rank;
    int dims[MAX_RANK]; /* activations: dims[0] is the number of samples n, also in N16 */
    int groups;         /* N16: groups of 16 samples, pads included; 0 in PLAIN */
};

static inline float *tensor_f32(const struct tensor *t) {
    return (float *)t->data;
}

/* Product of dims[1..]: elements of one sample. Product of all dims: elements without pads. */
size_t tensor_sample_count(const struct tensor *t);
size_t tensor_count(const struct tensor *t);

/* Elements that lie in memory, pads of N16 included; and the same in bytes. */
size_t tensor_stored_count(const struct tensor *t);
size_t tensor_bytes(const struct tensor *t);

struct tensor tensor_plain(void *data, enum dtype dtype, int rank, const int *dims);

/* The share of segment i of a batch tensor cut as `segments` says: a view, nothing is copied. */
struct tensor tensor_segment(const struct tensor *t, const struct segments *segments, int i);

/* Groups of 16 that the segments take in N16: the sum of ceil(n / 16). */
int segments_groups(const struct segments *segments);

#ifdef __cplusplus
}
#endif
#endif
