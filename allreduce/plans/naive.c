/* naive: all inputs go to rank 0, which adds them, and the sum goes back. This is the textbook's
 * first allreduce, kept because it shows what the others save: rank 0 moves 2(n-1)S bytes and does
 * all the work while the rest wait.
 *
 *     rank 1 --+                            +--> rank 1
 *     rank 2 --+--> rank 0: x0+x1+x2+x3 ----+--> rank 2
 *     rank 3 --+                            +--> rank 3
 *
 * Only rank 0 acts; the others post ready and await done. One slice at a time it copies x1 ..
 * x(n-1) into its scratch and adds pair after pair in fold order. The other algorithms use PLAN_SUM
 * for that, so naive checks PLAN_SUM independently.
 *
 *     scratch of rank 0    [ x1, slice ][ x2, slice ] .. [ x(n-1), slice ]
 *
 * Flags               written by        read by           meaning
 *   ready, epoch 1    each rank r > 0   rank 0            r's data may be read and written
 *   done,  epoch 1    rank 0            each rank r > 0   r's data holds the sum and is left alone
 *
 * Early overwriting. Only rank 0 accesses other ranks' data, between ready and done, one step after
 * another; no other rank uses its scratch. A rank r > 0 leaves after done, and posts ready of the
 * next call after that. */
#include "allreduce/plans/steps.h"
#include "base/fold.h"

/* Term r > 0 of the present slice is in rank 0's scratch; term 0 in its data. */
static size_t scratch_offset(int r, size_t slice) {
    return (size_t)(r - 1) * slice;
}

static void take_inputs(struct plan *plan, struct range part, size_t slice) {
    for (int r = 1; r < plan->n; r++) {
        struct plan_step take = copy_from(r, part, rank_bit(0));
        to_scratch(&take, scratch_offset(r, slice));
        take.scale = PLAN_SCALE_SOURCE;
        if (part.offset == 0) await(&take, rank_bit(r), PLAN_READY, 1);
        add_step(plan, take);
    }
}

/* The first pair has rank 0's own term in it, which is not scaled yet. */
static void add_terms(struct plan *plan, struct range part, size_t slice) {
    uint8_t scale = PLAN_SCALE_DEST;
    for (struct fold f = fold_begin(plan->n); fold_next(&f);) {
        struct plan_step add = reduce_from(0, part, rank_bit(0));
        from_scratch(&add, scratch_offset(f.from, slice));
        if (f.to > 0) to_scratch(&add, scratch_offset(f.to, slice));
        add.scale = scale;
        add_step(plan, add);
        scale = 0;
    }
}

static void give_sum(struct plan *plan, struct range part) {
    uint64_t others = rank_others(plan->n, 0);
    struct plan_step give = copy_from(0, part, others);
    if (part.offset + part.length == plan->count) post(&give, others, PLAN_DONE, 1);
    add_step(plan, give);
}

void plan_naive(struct plan *plan, const struct plan_config *config) {
    plan->epochs = 1;
    if (plan->rank > 0) {
        add_post(plan, rank_bit(0), PLAN_READY, 1);
        add_await(plan, rank_bit(0), PLAN_DONE, 1);
        return;
    }
    struct range whole = {0, plan->count};
    size_t inputs = (size_t)(plan->n - 1);
    size_t slice = plan_scratch_slice(config, config->scratch / inputs);
    plan->scratch = inputs * slice;
    for (size_t i = 0; i < range_pieces(whole, slice); i++) {
        struct range part = range_piece(whole, slice, i);
        take_inputs(plan, part, slice);
        add_terms(plan, part, slice);
        give_sum(plan, part);
    }
}
