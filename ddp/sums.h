/* The order in which DDP adds the gradients of its ranks, for single and DataParallel, which hold
 * all of them in one process. They use the buckets that DDP would have, and the allreduce's own
 * order in each bucket (plan_order), so all modes also have equal bits with ring and tree.
 *
 *     gradients  ...  W3             W2       b2   W1 ...    as the parameters were registered
 *     buckets    | W3  b2 | W2  W1 ... |                     as they became ready
 *     pieces     chunks of buckets, cut where a parameter begins, in their places above
 *
 * The parameters and one order determine the buckets. The first step has one bucket. For the
 * second, buckets are cut in the order in which the gradients became ready, which the tape's hook
 * reports here, as it does to DDP. This file computes with integers only. */
#ifndef DDP_SUMS_H
#define DDP_SUMS_H

#include "ddp/ddp.h"

struct sums {
    struct sum_pieces pieces;          /* in elements of the value arena */
    const struct sum_pieces *in_force; /* the order used for adding; NULL: fold order */
    struct param_set *params;          /* borrowed */
    duet_tape *tape;                   /* borrowed */
    struct ddp_config config;          /* its algorithm need not keep the fold order */
    int ranks;
    uint64_t limits[2];
    struct bucket_plan plan;
    int *ready, ready_count, rebuilt;
};

/* Follows a ddp with this many ranks. It becomes the hook of the tape, whose passes use `params`.
 * On failure *s is zeroed. */
int sums_init(struct sums *s, const struct ddp_config *config, int ranks, duet_params *params,
              duet_tape *tape);
void sums_free(struct sums *s); /* zeroed is fine, here and below */

/* Called before the first pass of an update. */
int sums_begin_update(struct sums *s);

/* Like ddp_ready_order. */
const int *sums_ready_order(const struct sums *s);

#endif
