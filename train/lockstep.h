/* Lock step: where equal bits cannot be demanded, two modes are compared one step at a time.
 * From the same parameters (the single run's, before some of its steps) each takes that one
 * step; their gradients must agree within a bound. Over a whole run they need not: SGD turns a
 * difference in the last bit into 10 percent of the loss within 30 steps. */
#ifndef TRAIN_LOCKSTEP_H
#define TRAIN_LOCKSTEP_H

#include "train/job.h"
#include "train/verdict.h"

/* Relative L2 distance a gradient tensor may have. Two right programs that sum in different
 * orders were measured at most 4.5e-5 apart (where a ReLU input lies within rounding of zero); a
 * real mistake is 1e-2 and up. */
#define LOCKSTEP_BOUND 3e-4

/* Chooses steps below `steps` at which to compare, the first and the last among them; -1 ends
 * the list. */
void lockstep_points(int steps, int points[MAX_SNAPSHOTS]);

/* Compares config's mode with the single mode at every snapshot of `single`; sets v->kind,
 * worst, steps, step, parameter. Dropout is turned off for it: its masks belong to virtual
 * devices, and those may differ. */
int lockstep_check(const struct run_config *config, const struct run_record *single,
                   struct verdict *v, struct job_result *result);

#endif
