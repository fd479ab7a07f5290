/* The verbs in which the algorithms write their plans. They make a step, say which flags it awaits
 * and posts, and append it. Only this folder uses them.
 *
 *     struct plan_step step = reduce_from(left, slice, rank_bit(me));
 *     await(&step, rank_bit(left), PLAN_SLICE, 1);
 *     post(&step, rank_bit(right), PLAN_SLICE, 2);
 *     add_step(plan, step);
 *
 * A step waits before it moves anything and posts after it has moved everything, whatever the
 * order of these lines. */
#ifndef ALLREDUCE_PLANS_STEPS_H
#define ALLREDUCE_PLANS_STEPS_H

#include "allreduce/plan.h"

/* ---- ranges of elements ---- */

struct range {
    size_t offset, length;
};

/* Part i of `whole`, cut into `parts` parts. All have the same length, a multiple of align, except
 * the last non-empty one, which takes the rest; parts after it are empty. */
struct range range_part(struct range whole, int parts, int i, size_t align);

/* Piece i of `whole`, which is cut into pieces of `length` elements; the last may be shorter. */
struct range range_piece(struct range whole, size_t length, size_t i);
size_t range_pieces(struct range whole, size_t length); /* the number of pieces */

/* The number of slices that pipeline a range of `length` elements in a call of `count` elements. */
int plan_slices(const struct plan_config *config, size_t count, size_t length);

/* The longest slice that fits into `room` elements of scratch, a multiple of align if possible. */
size_t plan_scratch_slice(const struct plan_config *config, size_t room);

/* ---- steps ---- */

/* Each moves the range `part` of DATA to the same range of DATA of dest_ranks. */
struct plan_step copy_from(int rank, struct range part, uint64_t dest_ranks);
struct plan_step reduce_from(int rank, struct range part, uint64_t dest_ranks);
struct plan_step sum_all(struct range part, uint64_t dest_ranks);

/* Makes the step read or write SCRATCH, from `offset` on, instead of DATA. */
void from_scratch(struct plan_step *step, size_t offset);
void to_scratch(struct plan_step *step, size_t offset);

/* await: the step begins when the flags of `ranks` have reached the epoch. post: at its end the
 * step posts an epoch to `ranks`. */
void await(struct plan_step *step, uint64_t ranks, enum plan_flag kind, size_t epoch);
void post(struct plan_step *step, uint64_t ranks, enum plan_flag kind, size_t epoch);

/* Appends the step to the plan. After a failure, which stays in plan->error, it appends nothing. */
void add_step(struct plan *plan, struct plan_step step);

/* Appends a step that moves nothing: it only awaits, or only posts. */
void add_await(struct plan *plan, uint64_t ranks, enum plan_flag kind, size_t epoch);
void add_post(struct plan *plan, uint64_t ranks, enum plan_flag kind, size_t epoch);

/* ---- the algorithms, over 2 ranks or more ---- */

#define PLAN(NAME, word, in_fold_order, uses_scratch) \
    void plan_##word(struct plan *plan, const struct plan_config *config);
ALLREDUCE_PLANS(PLAN)
#undef PLAN

#endif
