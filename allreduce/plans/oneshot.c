/* oneshot: every rank reads the inputs of all ranks and adds them itself. It moves the most bytes,
 * (n-1)S into every rank, and needs the fewest flags, one exchange. So it is the best plan for
 * small buffers, for which waiting for flags costs more than moving bytes.
 *
 *     copy in             ready (all to all)        add
 *     data 0 -> scratch 0 ---------\ /--------- scratch 0 + scratch 1 + scratch 2 -> data 0
 *     data 1 -> scratch 1 ----------X---------- scratch 0 + scratch 1 + scratch 2 -> data 1
 *     data 2 -> scratch 2 ---------/ \--------- scratch 0 + scratch 1 + scratch 2 -> data 2
 *
 * In place, a rank that stores its sum would overwrite the input that others still read. So each
 * input is first copied to scratch and read from there; only the rank itself touches its data. All
 * ranks add in fold order: the same operations in the same order give the same bits.
 *
 * Data longer than a slice take several rounds. A call's half of scratch then has two quarters, and
 * round j uses quarter j mod 2.
 *
 * Flags                   written by   read by      meaning
 *   ready, epoch j + 1    each rank    each other   my input of round j is in my scratch
 *
 * Early overwriting. Round j copies into the quarter that round j - 2 was read from. Before that,
 * this rank has awaited every rank's ready of round j - 1, which a rank posts after it has added up
 * round j - 2. Between calls the halves alternate (plan.h, rule 3). So no flag is needed to say
 * that reading is done. */
#include "allreduce/plans/steps.h"

void plan_oneshot(struct plan *plan, const struct plan_config *config) {
    uint64_t me = rank_bit(plan->rank), others = rank_others(plan->n, plan->rank);
    struct range whole = {0, plan->count};
    size_t slice = plan_scratch_slice(config, config->scratch / 2);
    size_t rounds = range_pieces(whole, slice);
    plan->scratch = rounds > 1 ? 2 * slice : plan->count;
    plan->epochs = (uint32_t)rounds;

    for (size_t j = 0; j < rounds; j++) {
        struct range part = range_piece(whole, slice, j);
        size_t quarter = j % 2 * slice, epoch = j + 1;

        struct plan_step copy_in = copy_from(plan->rank, part, me);
        to_scratch(&copy_in, quarter);
        copy_in.scale = PLAN_SCALE_SOURCE;
        post(&copy_in, others, PLAN_READY, epoch);
        add_step(plan, copy_in);

        struct plan_step add = sum_all(part, me);
        from_scratch(&add, quarter);
        await(&add, others, PLAN_READY, epoch);
        add_step(plan, add);
    }
}
