/* Segments: how the batch of one device is composed of the batches of its virtual devices.
 *
 * Device r of W holds the virtual devices v = r, r+W, r+2W, ... Their samples are stored as
 * segments, one after another. A kernel that sums over samples runs once per segment, so the bits
 * of its result do not depend on W (docs/design.md section 2). */
#ifndef BASE_SEGMENT_H
#define BASE_SEGMENT_H

#include "base/limits.h"

struct segment {
    int v; /* the virtual device */
    int n; /* its samples in this batch; may be 0 in a short last batch */
};

struct segments {
    int count; /* 1 .. MAX_DEVICES */
    int n;     /* samples in all segments: the sum of seg[i].n */
    struct segment seg[MAX_DEVICES];
};

#endif
