/* oneshot: every rank reads the inputs of all and adds them up itself. The most bytes, (n-1)S
 * into every rank, and the fewest words: one exchange of flags. Best for small buffers, where
 * words cost more than bytes.
 *
 *     copy in            ready (all to all)         add up
 *     data 0 -> scratch 0 ---------\ /------- scratch 0 + scratch 1 + scratch 2 -> data 0
 *     data 1 -> scratch 1 ----------X-------- scratch 0 + scratch 1 + scratch 2 -> data 1
 *     data 2 -> scratch 2 ---------/ \------- scratch 0 + scratch 1 + scratch 2 -> data 2
 *
 * In place, a rank that has its sum would overwrite the input others still read, so the input is
 * copied to scratch first and read from there; data is touched by its own rank alone. All add in
 * fold order: the same operations in the same order, so the same bits everywhere.
 *
 * Data longer than a slice goes in rounds; round j uses scratch quarter j mod 2 of the call's
 * half.
 *
 * Flags                   written by   read by      meaning
 *   ready, epoch j + 1    each rank    each other   my input of round j is in my scratch
 *
 * Early overwriting: before I copy in round j I have waited for everyone's ready of round j-1,
 * which they post after adding up round j-2, the last readers of this quarter. Between calls the
 * halves alternate (plan.h, the third fact). So there is no flag for "done reading" at all. */
#include "allreduce/plan.h"

void plan_oneshot(struct plan *plan, const struct plan_config *config) {
    int n = plan->n;
    size_t slice = config->scratch / 2;
    if (slice > config->slice) slice = config->slice;
    if (slice > config->align) slice -= slice % config->align;
    size_t rounds = (plan->count + slice - 1) / slice;
    plan->scratch = rounds > 1 ? 2 * slice : plan->count;
    plan->epochs = (uint32_t)rounds;
    for (size_t j = 0; j < rounds; j++) {
        size_t at = j * slice, left = plan->count - at;
        struct plan_step copy_in = {.op = PLAN_COPY,
                                    .scale = PLAN_SCALE_SOURCE,
                                    .source_buffer = PLAN_DATA,
                                    .source_rank = (int16_t)plan->rank,
                                    .source_offset = at,
                                    .dest_buffer = PLAN_SCRATCH,
                                    .dest_ranks = rank_bit(plan->rank),
                                    .dest_offset = j % 2 * slice,
                                    .length = slice < left ? slice : left,
                                    .post_ranks = rank_others(n, plan->rank),
                                    .post_kind = PLAN_READY,
                                    .post_epoch = (uint32_t)j + 1};
        struct plan_step add_up = {.op = PLAN_SUM,
                                   .wait_ranks = rank_others(n, plan->rank),
                                   .wait_kind = PLAN_READY,
                                   .wait_epoch = (uint32_t)j + 1,
                                   .source_buffer = PLAN_SCRATCH,
                                   .source_offset = copy_in.dest_offset,
                                   .dest_buffer = PLAN_DATA,
                                   .dest_ranks = rank_bit(plan->rank),
                                   .dest_offset = at,
                                   .length = copy_in.length};
        plan_add(plan, &copy_in);
        plan_add(plan, &add_up);
    }
}
