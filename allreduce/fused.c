/* fused: rank 0 does it all, in one pass: it reads the n inputs, adds them up, and writes the
 * sum to all n outputs.
 *
 *     data 0  [  x0  ]   [  sum  ]
 *     data 1  [  x1  ] > [  sum  ]     2nS bytes, all of them moved by rank 0
 *     data 2  [  x2  ]   [  sum  ]
 *
 * Where each rank has a processor of its own this is a poor plan: the others could help
 * (`direct` cuts the same work into n columns). It is the best one where all ranks share ONE
 * processor and take turns on it, as processes on one GPU do: their kernels never run side by
 * side, so what counts is how often the processor changes hands, and 2nS is the least that any
 * algorithm can move. Here it changes hands twice: to rank 0 when the last input is there, and
 * back when the sum is.
 *
 * In place and without scratch: each element is read n times by the one who then writes it n
 * times.
 *
 * Flags               written by           read by             meaning
 *   ready, epoch 1    each rank r > 0      rank 0              r's data holds its input: read and write it
 *   done,  epoch 1    rank 0               each rank r > 0     r's data holds the sum and is left alone
 *
 * Early overwriting: rank 0 alone touches anything, between ready and done. A rank r > 0 says
 * ready of the next call after it has seen done of this one. */
#include "allreduce/plan.h"

void plan_fused(struct plan *plan, const struct plan_config *config) {
    (void)config; /* nothing is cut */
    plan->epochs = 1;
    if (plan->rank > 0) {
        struct plan_step ready = {
            .post_ranks = rank_bit(0), .post_kind = PLAN_READY, .post_epoch = 1};
        struct plan_step done = {
            .wait_ranks = rank_bit(0), .wait_kind = PLAN_DONE, .wait_epoch = 1};
        plan_add(plan, &ready);
        plan_add(plan, &done);
        return;
    }
    uint64_t others = rank_others(plan->n, 0);
    struct plan_step sum = {.op = PLAN_SUM,
                            .scale = PLAN_SCALE_SOURCE,
                            .wait_ranks = others,
                            .wait_kind = PLAN_READY,
                            .wait_epoch = 1,
                            .source_buffer = PLAN_DATA,
                            .dest_buffer = PLAN_DATA,
                            .dest_ranks = rank_all(plan->n),
                            .length = plan->count,
                            .post_ranks = others,
                            .post_kind = PLAN_DONE,
                            .post_epoch = 1};
    plan_add(plan, &sum);
}
