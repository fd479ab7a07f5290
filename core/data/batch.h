/* How a global batch is divided among the devices. This is integer arithmetic, the same in every
 * mode.
 *
 * Global batch k holds the positions kB .. (k+1)B - 1 of the epoch's order; the last batch may be
 * shorter. Position p belongs to virtual device p mod V. With B = 6, k = 1, and V = 4 virtual
 * devices on W = 2 devices:
 *
 *     position          6  7  8  9 10 11
 *     virtual device    2  3  0  1  2  3
 *     device 0 holds    v0: 8   v2: 6 10       two segments, one after another
 *     device 1 holds    v1: 9   v3: 7 11
 *
 * A single device that holds all four has v0: 8, v1: 9, v2: 6 10, v3: 7 11. These are the same
 * segments, so the sums over them are the same. */
#ifndef DATA_BATCH_H
#define DATA_BATCH_H

#include <stdint.h>

#include "base/limits.h"
#include "base/segment.h"

/* A batch holds the samples of one training step or one evaluation, as the loader returns them and
 * a replica, DP and DDP take them. For a replica and for a rank of DDP it holds the samples of that
 * one device; for DP it holds those of all devices, device 0's first.
 *
 * The batch owns none of its memory; all of it must stay until the copies that a step enqueues are
 * done. */
struct batch {
    struct segments segments; /* how the n samples are divided, in the order of rows */
    const float *pixels;      /* (n, C, H, W) */
    const int32_t *labels;    /* (n); may be NULL if no loss is computed */
    const float *targets;     /* (n, outputs), in place of labels if the data set has targets */
    int global_n;             /* samples in the whole global batch; each loss weighs 1/global_n */
    /* The batch of the next step, if it is ready: its copy may begin. NULL: none. */
    const struct batch *next;
    int64_t host_ns, pinned_ns; /* how long its preparation took (data/prepare.h) */
    int epoch, step; /* the loader's position in the run; step counts from 0 in each epoch */
};

enum split_kind {
    /* Position p goes to virtual device p mod V, as in DistributedSampler. All modes use this
     * split; ddp without virtual devices uses it with V = W. */
    SPLIT_STRIDED,
    /* Each device gets one contiguous piece, as torch.chunk cuts it. single and dp without virtual
     * devices use this split. Chunks have ceil(n / W) samples until the samples are used up. 10
     * samples on 4 devices are split 3 3 3 1 instead of a fair 3 3 2 2, and 9 samples 3 3 3 0, so
     * the last device is idle. That is one of DataParallel's costs. */
    SPLIT_CHUNKED
};

struct split {
    enum split_kind kind;
    int devices;         /* W: 1 .. MAX_DEVICES */
    int virtual_devices; /* V: a multiple of W up to MAX_DEVICES; SPLIT_CHUNKED ignores it */
};

/* ERR_USAGE: W or V is out of range, or V is not a multiple of W. */
int split_check(const struct split *s);

/* The epoch's order is padded or cut to a multiple of this number: V, or 1 in SPLIT_CHUNKED. */
int split_replicas(const struct split *s);

/* The part of one global batch that devices first .. first + devices - 1 hold. */
struct batch_plan {
    int global_n;              /* samples in the global batch; each loss weighs 1 / global_n */
    int n;                     /* samples of these devices together */
    int per_device;            /* segments of each device: V / W, or 1 in SPLIT_CHUNKED */
    int device_n[MAX_DEVICES]; /* [i]: samples of device first + i */
    struct segments segments;  /* the segments of device `first`, then of the next device, ... */
};

/* How many batches an epoch of `length` positions has. If drop_short is 1, a last batch of fewer
 * than batch_size samples is left out. */
int batch_count(int64_t length, int batch_size, int drop_short);

/* An upper bound of batch_plan.n for any batch and any `devices` devices. */
int batch_capacity(const struct split *s, int batch_size, int devices);

/* Plans batch k. order[0 .. length) is the epoch's order: order[p] is the data set index at
 * position p. sample[0 .. plan->n), sized by batch_capacity, receives the data set index of each
 * sample: segment by segment, and within a segment in the order of positions. Both may be NULL if
 * the caller wants only the numbers. */
void batch_plan(const struct split *s, const int32_t *order, int64_t length, int batch_size, int k,
                int first, int devices, struct batch_plan *plan, int32_t *sample);

#endif
