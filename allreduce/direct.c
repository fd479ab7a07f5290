/* direct: each rank owns a slice of the data, reads the n inputs of that slice, and writes the
 * sum to all n outputs. Reduce-scatter and all-gather in one pass: 2nS bytes over all ranks, the
 * least any algorithm can do in shared memory, and two exchanges of flags.
 *
 *              slice 0   slice 1   slice 2
 *     data 0  [  x0   ] [  x0   ] [  x0   ]        rank 1 reads column 1 of all rows,
 *     data 1  [  x1   ] [  x1   ] [  x1   ]        adds x0, x1, x2 in fold order,
 *     data 2  [  x2   ] [  x2   ] [  x2   ]        and writes the sum into column 1 of all rows
 *
 * In place and without scratch: column r is read and written by rank r alone, each element read
 * n times, then written n times.
 *
 * Flags               written by   read by      meaning
 *   ready, epoch 1    each rank    each other   my data holds my input: read and write your column of it
 *   done,  epoch 1    each rank    each other   my column is done: I shall not touch your data any more
 *
 * Early overwriting: nobody touches data r before r is in the call (ready), and r leaves when
 * all are done with it. A rank's done comes after its waits for ready, so whoever leaves knows
 * that all have entered. */
#include "allreduce/plan.h"

void plan_direct(struct plan *plan, const struct plan_config *config) {
    int n = plan->n;
    uint64_t others = rank_others(n, plan->rank);
    struct range whole = {0, plan->count};
    struct range own = range_part(whole, n, plan->rank, config->align);
    struct plan_step ready = {.post_ranks = others, .post_kind = PLAN_READY, .post_epoch = 1};
    struct plan_step sum = {.op = PLAN_SUM,
                            .scale = PLAN_SCALE_SOURCE,
                            .wait_ranks = others,
                            .wait_kind = PLAN_READY,
                            .wait_epoch = 1,
                            .source_buffer = PLAN_DATA,
                            .source_offset = own.offset,
                            .dest_buffer = PLAN_DATA,
                            .dest_ranks = rank_all(n),
                            .dest_offset = own.offset,
                            .length = own.length,
                            .post_ranks = others,
                            .post_kind = PLAN_DONE,
                            .post_epoch = 1};
    struct plan_step done = {.wait_ranks = others, .wait_kind = PLAN_DONE, .wait_epoch = 1};
    plan->epochs = 1;
    plan_add(plan, &ready);
    plan_add(plan, &sum);
    plan_add(plan, &done);
}
