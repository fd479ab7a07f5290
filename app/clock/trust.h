/* How far a modelled time may be from a measured one, as the held-out measurements show
 * (clock/validation.h). */
#ifndef CLOCK_TRUST_H
#define CLOCK_TRUST_H

#include "clock/cost.h"

/* The kind of model that a schedule is of, by the operations of its forward pass: at least a
 * twentieth of its convolutions have groups, or of its operations concatenate; it has attention;
 * or dense convolutions do most of its work, at least 0.1 GFLOP a sample. Any other, and one too
 * small for that: nobody has published times of its like. Mixed precision is its own kind
 * (train/estimate/modelled.c). */
enum clock_kind trust_kind(const struct program *programs, int count, int samples);
const char *trust_kind_name(enum clock_kind kind);
const char *trust_way_name(enum clock_way way);

/* The error that nine of ten rows of errors[rows] stay below, sorted here; 0: there are none. A few
 * rows say little, so it is the largest of up to nine. */
double trust_quantile(double *errors, int rows);

/* The error to expect, in per cent; *rows: so many rows have shown it; 0: none has, and
 * TRUST_UNMEASURED is a guess. A machine file's own `error` goes before all. */
enum { TRUST_UNMEASURED = 50 };
double trust_error(const struct clock_config *clock, int *rows);

/* 1: the machine's numbers were fitted with this GPU. */
int trust_is_calibrated(const struct clock_config *clock);

#endif
