/* The reference executor: the plans of all ranks, run by one thread, element by element, in the
 * plainest way.
 *
 * It is the judge: every other executor must give its bits. It finds what a real run would show
 * only as a hang or a crash: a wait that no post ever satisfies, an offset out of range, a flag
 * that would go backwards. */
#ifndef ALLREDUCE_REFERENCE_H
#define ALLREDUCE_REFERENCE_H

#include "allreduce/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* plans[0..n) are the lists of ranks 0..n-1 of one call. Checks each step on its own and all
 * together: ranges lie in data and scratch; ranks exist; each flag's posts grow and stay within
 * `epochs`, which all ranks agree on; who is awaited posts enough. ERR_FAILED names rank, step
 * and value. `scratch`: elements in a half. */
int plan_check(const struct plan *plans, int n, size_t scratch);

/* The effect of one step of plan->rank, flags aside. data[r], scratch[r]: rank r's memory, r <
 * plan->n. */
void reference_step(const struct plan *plan, const struct plan_step *step, float *const *data,
                    float *const *scratch, float scale);

/* Runs plans[0..n) to their end, round-robin over the ranks whose wait is satisfied. ERR_FAILED
 * on a deadlock: it names each rank that is stuck, its step, and the flag it waits for. */
int reference_run(const struct plan *plans, int n, float *const *data, float *const *scratch,
                  float scale);

/* All of it: plans, check, scratch (filled with NaN, so that what was never written shows), run.
 * data[r]: count elements, each term times scale is summed, every rank's data holds the result.
 * n = 1: times scale. */
int reference_allreduce(enum allreduce_algorithm algorithm, int n, size_t count,
                        const struct plan_config *config, float *const *data, float scale);

#ifdef __cplusplus
}
#endif
#endif
