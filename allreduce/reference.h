/* The reference executor: one thread runs the plans of all ranks, element by element, in the
 * plainest way.
 *
 * Every other executor must give its bits. It also finds errors that a real run would show only as
 * a hang or a crash: a wait that no post ever satisfies, a range outside of memory, a flag that
 * would go backwards. */
#ifndef ALLREDUCE_REFERENCE_H
#define ALLREDUCE_REFERENCE_H

#include "allreduce/element.h"
#include "allreduce/plan.h"

/* Checks plans[0..n), the lists of ranks 0..n-1 for one call, step by step and all together:
 * ranges are inside data and scratch (`scratch` elements in a half); ranks exist; each flag's posts
 * grow and stay within `epochs`, on which all ranks agree; and each wait is for an epoch that is
 * posted. ERR_FAILED names the rank, the step and the value; ERR_MEMORY. */
int plan_check(const struct plan *plans, int n, size_t scratch);

/* Memory of all ranks, for elements of any type and any operation: data[r] and scratch[r] are rank
 * r's; input and output its INPUT and OUTPUT, for plans that have them. `how` zeroed: sums of
 * floats. */
struct reference_memory {
    struct arithmetic how;
    void *const *data, *const *scratch, *const *output;
    const void *const *input;
    double scale;
};
/* What one step of plan->rank does to memory; its flags are left out. */
void reference_step(const struct plan *plan, const struct plan_step *step,
                    const struct reference_memory *memory);

/* The one walk in one thread over the plans of all ranks: in turn each rank goes as far as the
 * flags that it awaits have been posted. `step` is called for each step, before its flags are
 * posted; its failure ends the walk. ERR_FAILED on a deadlock: names each rank that is stuck, its
 * step, and the flag it waits for. */
typedef int plan_walk_step(void *context, int rank, int step);
int plan_walk(const struct plan *plans, int n, plan_walk_step *step, void *context);

/* Runs plans[0..n) to their end. */
int reference_run(const struct plan *plans, int n, const struct reference_memory *memory);

/* All of it: builds the plans, checks them, and runs them with a scratch that is filled with NaN,
 * so that what was never written shows. data[r][0..count) is rank r's input and becomes its
 * output: the sum over all ranks of input times scale. ERR_USAGE: n; ERR_MEMORY; ERR_FAILED. */
int reference_allreduce(enum allreduce_algorithm algorithm, int n, size_t count,
                        const struct plan_config *config, float *const *data, float scale);

#endif
