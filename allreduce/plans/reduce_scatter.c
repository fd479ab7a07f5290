/* reduce-scatter: each rank gets one block of the sum. It is the first half of direct (direct.c):
 * rank r adds up column r and keeps it.
 *
 *                block 0   block 1   block 2
 *     data 0    [  x0   ] [  x0   ] [  x0   ]       rank 1 reads column 1 of all rows, adds
 *     data 1    [  x1   ] [  x1   ] [  x1   ]       x0, x1, x2 in fold order, and writes the sum
 *     data 2    [  x2   ] [  x2   ] [  x2   ]       into column 1 of its own row
 *                            ^
 *                          rank 1
 *
 * Each rank loads (n-1) blocks. An all-gather of the blocks (copies.c) loads as many again. The two
 * together equal an allreduce in every bit and every byte moved. Sharded data parallel updates the
 * parameters between them.
 *
 * Flags               written by   read by      meaning
 *   ready, epoch 1    each rank    each other   my data holds my input: read your column of it
 *   done,  epoch 1    each rank    each other   I have read my column of your data
 *
 * Early overwriting. A rank writes only to its own data, to a column that no other rank reads, and
 * leaves when all others have read theirs. */
#include <string.h>

#include "allreduce/plans/steps.h"
#include "base/error.h"

int plan_build_reduce_scatter(struct plan *plan, int n, int rank, size_t block) {
    memset(plan, 0, sizeof *plan);
    if (n < 1 || n > MAX_DEVICES || rank < 0 || rank >= n)
        return fail(ERR_USAGE, "reduce-scatter: rank %d of %d: give a rank of 1 to %d ranks", rank,
                    n, MAX_DEVICES);
    const uint64_t others = rank_others(n, rank);
    plan->what = COLLECTIVE_REDUCE_SCATTER;
    plan->n = n;
    plan->rank = rank;
    plan->count = plan->data = (size_t)n * block;
    plan->epochs = 1;
    if (n == 1 || !block) return OK;
    add_post(plan, others, PLAN_READY, 1);
    struct plan_step sum = sum_all((struct range){(size_t)rank * block, block}, rank_bit(rank));
    sum.scale = PLAN_SCALE_SOURCE;
    await(&sum, others, PLAN_READY, 1);
    post(&sum, others, PLAN_DONE, 1);
    add_step(plan, sum);
    add_await(plan, others, PLAN_DONE, 1);
    int code = plan->error;
    if (code) plan_free(plan);
    return code;
}
