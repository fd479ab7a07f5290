/* One walk in one thread over the plans of all ranks: in turn each rank goes as far as the flags
 * that it awaits have been posted. hops.h draws plans so, and tests/allreduce/reference.h runs them
 * so. */
#ifndef ALLREDUCE_WALK_H
#define ALLREDUCE_WALK_H

#include "allreduce/plan.h"

/* `step` is called for each step of plans[0..n), the lists of ranks 0..n-1 for one call, before its
 * flags are posted; its failure ends the walk. ERR_FAILED on a deadlock: names each rank that is
 * stuck, its step, and the flag it waits for. */
typedef int plan_walk_step(void *context, int rank, int step);
int plan_walk(const struct plan *plans, int n, plan_walk_step *step, void *context);

#endif
