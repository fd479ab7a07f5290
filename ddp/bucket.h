/* Buckets: which gradients travel together. This file computes with integers only.
 *
 * One allreduce per parameter would pay the start-up cost of a collective for each parameter. A
 * single allreduce for all gradients could not begin before backward ends. Buckets are the
 * compromise. The rule is PyTorch's: walk the parameters in the order in which their gradients
 * become ready, add each, THEN close the bucket if it has reached its limit. So a bucket may be
 * larger than its limit (a parameter is never split), and only the last may be smaller.
 *
 *     ready order      9  8  7   6     4   5   3    2       |  1    0
 *     bytes           12 36 40 40000 4000 4000 4000 4000000 | 4000 1200000
 *     bucket 0: 4052088, closed by parameter 2 | 1: 1204000, the rest
 *     limits          1 MiB for the first bucket            | 25 MiB for all others
 *
 * The first limit is small so that the first allreduce starts early. Sizes count the parameters'
 * own bytes; the pads between them in the gradient arena travel too but are not counted. */
#ifndef DDP_BUCKET_H
#define DDP_BUCKET_H

#include <stddef.h>
#include <stdint.h>

#include "nn/param.h"

#define BUCKET_NO_LIMIT UINT64_MAX /* a limit that no model reaches */

struct bucket {
    int first, count; /* the parameters order[first .. first + count) */
    uint64_t bytes;   /* size of those parameters without pads */
};

/* Every parameter that is not frozen is in exactly one bucket; buckets cut `order` into
 * consecutive runs. */
struct bucket_plan {
    int param_count, bucket_count; /* parameters in buckets */
    int *order;                    /* [param_count] parameter indices, owned */
    int *bucket_of;                /* [i] the bucket of parameter i, -1 if frozen; owned */
    struct bucket *bucket;         /* [bucket_count], owned */
};

/* The limits in bytes for sizes in MiB; a negative size means not given. By default the limits are
 * 1 MiB, then 25 MiB. A cap without first_mb replaces both, even if it is 25 (PyTorch 2.15).
 * first_mb sets the first bucket's. A fraction of a byte is dropped, as in PyTorch; 0 gives each
 * parameter its own bucket. ERR_USAGE: a size is NaN. */
int bucket_limits(double cap_mb, double first_mb, uint64_t limits[2]);

/* Assigns `count` of `params` parameters, with bytes[i] each, to buckets in `order` (different
 * numbers from 0 to params-1, copied). The others are frozen. Bucket b closes at limits[b]; buckets
 * past the end of the list close at its last entry (limit_count >= 1). On failure *plan is zeroed.
 * ERR_FAILED: `order` names one twice. ERR_MEMORY. */
int bucket_plan_init(struct bucket_plan *plan, const uint64_t *bytes, int params, const int *order,
                     int count, const uint64_t *limits, int limit_count);

/* Replaces *plan by the buckets of these parameters. order[trained] is the order in which their
 * gradients become ready, or NULL if it is not known yet. Then one bucket has all, in the initial
 * order of the arena, the last parameter first. With find_unused the order may differ in every
 * step, so with order NULL the buckets are cut at once and stay: the walk follows the registration,
 * and the last registered parameters are reduced first. */
int buckets_of(struct bucket_plan *plan, const struct param_set *params, const int *order,
               int find_unused, const uint64_t limits[2]);

/* Reverses the order and the list of buckets, so that the last one walked is first. */
void bucket_plan_reverse(struct bucket_plan *plan);
void bucket_plan_free(struct bucket_plan *plan); /* zeroed is fine; it owns no gradients */

#endif
