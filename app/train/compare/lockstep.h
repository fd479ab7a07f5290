/* Lock step: if equal bits are not promised, two modes are compared in their first step. Each takes
 * one step from the same parameters, and their gradients must agree within a bound. Over a whole
 * run no bound would hold, because SGD turns a difference in the last bit into 10 percent of the
 * loss within 30 steps. --init-from starts the comparison from trained parameters. */
#ifndef TRAIN_COMPARE_LOCKSTEP_H
#define TRAIN_COMPARE_LOCKSTEP_H

#include "train/compare/verdict.h"
#include "train/job.h"

/* The largest allowed relative L2 distance between the gradients of a parameter. Two correct
 * programs that sum in different orders were at most 4.5e-5 apart (when a ReLU's input was within
 * rounding of zero). The bound is twice that: gradients too large by 1.0001 exceed it. */
#define LOCKSTEP_BOUND 9e-5

/* The same for a model with BatchNorm. Its division by a small deviation makes more ReLUs flip:
 * PyTorch's own float32 is up to 8e-3 away from its float64 in ResNet-18. The gradient of a
 * convolution's bias before a norm is only rounding error, so a distance is divided by at least
 * this share of the whole gradient's norm. */
#define LOCKSTEP_BOUND_NORM 3e-2
#define LOCKSTEP_LEAST_SHARE 1e-2

/* Compares config's mode with that of `reference`, and sets kind, worst, bound, steps and parameter
 * of *v. Gradients that are not finite exceed any bound. Dropout is turned off, because its masks
 * belong to virtual devices, which may differ. */
int lockstep_check(const struct run_config *config, const struct run_record *reference,
                   struct verdict *v, struct job_result *result);

#endif
