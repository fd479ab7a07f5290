/* How far a modelled time may be from a measured one, according to the held-out measurements
 * (clock/validation.h). */
#ifndef CLOCK_TRUST_H
#define CLOCK_TRUST_H

#include "clock/cost.h"

/* The kind of model, from the operations of its forward pass. It has attention; or at least a
 * twentieth of its convolutions are depthwise or grouped, or as many of its operations concatenate;
 * or dense convolutions do most of its work, at least 0.1 GFLOP per sample. For other models, and
 * for smaller ones, no comparable times are published. */
enum clock_kind trust_kind(const struct program *programs, int count, int samples);
const char *trust_kind_name(enum clock_kind kind);
const char *trust_way_name(enum clock_way way);

/* Comparable times share one error: they have the same kind of model, mode, use of autocast and
 * number of GPUs. `informed` means that the clock has data about this machine: either the time of
 * one GPU was given, or the machine is calibrated. Calibration does not count for transformers,
 * because no kernel factor was fitted to one. DataParallel's time depends on the host, so it needs
 * a calibrated machine, and for transformers both. */
struct trust_cell {
    enum clock_kind kind;
    enum clock_way way;
    int mixed, informed, many; /* many: more than TRUST_FEW_GPUS */
};
enum { TRUST_FEW_GPUS = 4, TRUST_ANY = -1 /* many: the number shows no difference */ };
struct trust_cell trust_cell_of(const struct clock_config *clock);
/* Returns 1 if both are the same cell; TRUST_ANY matches few and many GPUs. */
int trust_same(const struct trust_cell *a, const struct trust_cell *b);

/* The error that nine of ten new rows stay below; 0: no rows. It sorts errors[rows]. Rows of one
 * series are alike, so it takes the 93rd percentile to cover nine of ten rows of a new series. A
 * few rows show little, so for up to 27 it is the largest. */
double trust_quantile(double *errors, int rows);

/* The error to expect, in percent. *rows is the number of rows behind it; 0: none, and
 * TRUST_UNMEASURED is a guess. The `error` of a machine file overrides it. */
enum { TRUST_UNMEASURED = 50 };
double trust_error(const struct clock_config *clock, int *rows);

/* Returns 1 if the machine's numbers were fitted with this GPU. */
int trust_is_calibrated(const struct clock_config *clock);

#endif
