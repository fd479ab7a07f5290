/* fused: rank 0 does all the work in one pass. It reads the n inputs, adds them and writes the
 * sum to all n outputs.
 *
 *     data 0  [  x0  ] --+          +--> [  sum  ]
 *     data 1  [  x1  ] --+-- add ---+--> [  sum  ]      2nS bytes, all moved by rank 0
 *     data 2  [  x2  ] --+          +--> [  sum  ]
 *
 * If each rank has its own processor, this is a poor plan, because the others could help: `direct`
 * cuts the same work into n columns. It is the best plan if all ranks share one processor and take
 * turns on it, as processes on one GPU do. Their kernels never run at the same time, and no
 * algorithm moves fewer than 2nS bytes, so the number of turns matters. Here the turn changes
 * twice: to rank 0 when the last input is ready, and back when the sum is ready.
 *
 * In place and without scratch: rank 0 reads each element n times before it writes it n times.
 *
 * Flags               written by        read by           meaning
 *   ready, epoch 1    each rank r > 0   rank 0            r's data may be read and written
 *   done,  epoch 1    rank 0            each rank r > 0   r's data holds the sum and is left alone
 *
 * Early overwriting. Only rank 0 accesses other ranks' data, between ready and done. A rank r > 0
 * posts ready of the next call after it has seen done of this one. */
#include "allreduce/plans/steps.h"

void plan_fused(struct plan *plan, const struct plan_config *config) {
    (void)config; /* this plan cuts nothing */
    plan->epochs = 1;
    if (plan->rank > 0) {
        add_post(plan, rank_bit(0), PLAN_READY, 1);
        add_await(plan, rank_bit(0), PLAN_DONE, 1);
        return;
    }
    uint64_t others = rank_others(plan->n, 0);
    struct plan_step sum = sum_all((struct range){0, plan->count}, rank_all(plan->n));
    sum.scale = PLAN_SCALE_SOURCE;
    await(&sum, others, PLAN_READY, 1);
    post(&sum, others, PLAN_DONE, 1);
    add_step(plan, sum);
}
