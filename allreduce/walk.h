/* A walk over the plans of all ranks in one thread. In turn each rank runs until it awaits a flag
 * that is not posted yet. hops.h draws plans with this walk, and tests/allreduce/reference.h runs
 * them with it. */
#ifndef ALLREDUCE_WALK_H
#define ALLREDUCE_WALK_H

#include "allreduce/plan.h"

/* The walk calls `step` for each step of plans[0..n), the plans of ranks 0..n-1 for one call,
 * before it posts the step's flags. A failure of `step` ends the walk. After a deadlock ERR_FAILED
 * names each stuck rank, its step, and the flag that it waits for. */
typedef int plan_walk_step(void *context, int rank, int step);
int plan_walk(const struct plan *plans, int n, plan_walk_step *step, void *context);

#endif
