/* How a global batch is cut into the devices' shares: pure integers, the same in every mode.
 *
 * Global batch k holds the positions kB .. (k+1)B - 1 of the epoch's order (the last may be
 * shorter). With B = 6, k = 1, four virtual devices on two devices:
 *
 *     position          6  7  8  9 10 11       virtual device of position p = p mod 4
 *     virtual device    2  3  0  1  2  3
 *     device 0 holds    v0: 8   v2: 6 10       two segments, one after another
 *     device 1 holds    v1: 9   v3: 7 11
 *
 * One device holding all four has v0: 8, v1: 9, v2: 6 10, v3: 7 11: the same segments, so the
 * same sums. */
#ifndef DATA_BATCH_H
#define DATA_BATCH_H

#include <stdint.h>

#include "base/limits.h"
#include "base/segment.h"

#ifdef __cplusplus
extern "C" {
#endif

enum split_kind {
    /* by virtual device, as DistributedSampler: all modes, and ddp without virtual devices (V =
     * W) */
    SPLIT_STRIDED,
    /* a contiguous piece each, PyTorch's chunk rule: single and dp without virtual devices */
    SPLIT_CHUNKED
};

struct split {
    enum split_kind kind;
    int devices;         /* W: 1 .. MAX_DEVICES */
    int virtual_devices; /* V: a multiple of W up to MAX_DEVICES; not looked at in SPLIT_CHUNKED */
};

/* ERR_USAGE: W or V out of range, V no multiple of W. */
int split_check(const struct split *s);

/* What the epoch's order is padded or cut to a multiple of: V, or 1 in SPLIT_CHUNKED. */
int split_replicas(const struct split *s);

/* The shares of devices first .. first + devices - 1 of one global batch. */
struct batch_plan {
    /* samples of the whole global batch: each sample's loss weighs 1 / global_n */
    int global_n;
    int n;                     /* samples of these devices */
    int per_device;            /* segments a device: V / W, or 1 */
    int device_n[MAX_DEVICES]; /* samples of device first + i */
    struct segments segments;  /* in storage order: device first's, then device first + 1's, ... */
};

/* Batches of an epoch of `length` positions; drop_short: a last batch below batch_size is left
 * out. */
int batch_count(int64_t length, int batch_size, int drop_short);

/* An upper bound of n for any batch. */
int batch_capacity(const struct split *s, int batch_size, int devices);

/* Plans batch k. order[0 .. length) is the epoch's order; sample[0 .. plan->n) becomes the data
 * set index of each sample, in storage order, within a segment in the order of positions. */
void batch_plan(const struct split *s, const int32_t *order, int64_t length, int batch_size, int k,
                int first, int devices, struct batch_plan *plan, int32_t *sample);

/* The segments of the i-th of these devices alone. */
struct segments batch_share(const struct batch_plan *plan, int i);

#ifdef __cplusplus
}
#endif
#endif
