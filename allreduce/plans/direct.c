/* direct: each rank owns a slice of the data. It reads that slice of all n inputs and writes the
 * sum to the same slice of all n outputs: reduce-scatter and all-gather in one pass. All ranks
 * together move 2nS bytes, the minimum in shared memory, with two exchanges of flags.
 *
 *                slice 0   slice 1   slice 2
 *     data 0    [  x0   ] [  x0   ] [  x0   ]       rank 1 reads column 1 of all rows,
 *     data 1    [  x1   ] [  x1   ] [  x1   ]       adds x0, x1, x2 in fold order,
 *     data 2    [  x2   ] [  x2   ] [  x2   ]       and writes the sum into column 1 of all rows
 *                  ^         ^         ^
 *               rank 0    rank 1    rank 2
 *
 * In place and without scratch: only rank r touches column r, and it reads each element n times
 * before it writes it n times.
 *
 * Flags               written by   read by      meaning
 *   ready, epoch 1    each rank    each other   my data holds my input: your column of it is yours
 *   done,  epoch 1    each rank    each other   my column is done: I shall not touch your data
 *
 * Early overwriting. No rank accesses another's data before that rank is in the call (ready), and a
 * rank leaves when all others are done with its data. A rank posts done after it has awaited every
 * ready, so a rank that leaves knows that all have entered. */
#include "allreduce/plans/steps.h"

void plan_direct(struct plan *plan, const struct plan_config *config) {
    uint64_t all = rank_all(plan->n), others = rank_others(plan->n, plan->rank);
    struct range whole = {0, plan->count};
    struct range own = range_part(whole, plan->n, plan->rank, config->align);
    plan->epochs = 1;

    add_post(plan, others, PLAN_READY, 1);

    struct plan_step sum = sum_all(own, all);
    sum.scale = PLAN_SCALE_SOURCE;
    await(&sum, others, PLAN_READY, 1);
    post(&sum, others, PLAN_DONE, 1);
    add_step(plan, sum);

    add_await(plan, others, PLAN_DONE, 1);
}
