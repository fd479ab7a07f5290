/* Segments: how one device's batch is made of the batches of its virtual devices.
 *
 * Device r of W holds the virtual devices v = r, r+W, r+2W, ... as segments stored one after
 * another. What sums over samples runs once per segment, so its bits do not depend on W
 * (docs/design.md 2). */
#ifndef BASE_SEGMENT_H
#define BASE_SEGMENT_H

#include "base/limits.h"

struct segment {
    int v; /* the virtual device whose samples these are */
    int n; /* its samples in this batch; 0 is legal in a short last batch */
};

struct segments {
    int count; /* 1 .. MAX_DEVICES */
    int n;     /* samples in all: the sum of seg[i].n */
    struct segment seg[MAX_DEVICES];
};

#endif
