/* How far a modelled time may be from a measured one, as the held-out measurements show
 * (clock/validation.h). */
#ifndef CLOCK_TRUST_H
#define CLOCK_TRUST_H

#include "clock/cost.h"

/* The kind of model that a schedule is of, by the operations of its forward pass: it has attention;
 * or at least a twentieth of its convolutions are depthwise, or have groups, or as many of its
 * operations concatenate; or dense convolutions do most of its work, at least 0.1 GFLOP a sample.
 * Any other, and one too small for that: nobody has published times of its like. */
enum clock_kind trust_kind(const struct program *programs, int count, int samples);
const char *trust_kind_name(enum clock_kind kind);
const char *trust_way_name(enum clock_way way);

/* Comparable times share one error: the same kind of model, mode, use of autocast and number of
 * GPUs. `informed`: the clock knows something of this machine. Either the time of one GPU
 * was given; or the machine is calibrated, which says nothing of transformers, since no factor on
 * kernels was fitted to one. DataParallel's time is that of the host, so it takes a calibrated
 * machine, and of transformers both. */
struct trust_cell {
    enum clock_kind kind;
    enum clock_way way;
    int mixed, informed, many; /* many: more than TRUST_FEW_GPUS */
};
enum { TRUST_FEW_GPUS = 4, TRUST_ANY = -1 /* many: the number shows no difference */ };
struct trust_cell trust_cell_of(const struct clock_config *clock);
/* 1: both are of the same times; TRUST_ANY is few GPUs and many. */
int trust_same(const struct trust_cell *a, const struct trust_cell *b);

/* The error that nine of ten rows of errors[rows] stay below, sorted here; 0: there are none. Rows
 * of one series are alike, so it takes 93 of a hundred for nine of ten of a series to come. A few
 * rows say little, so it is the largest of up to 27. */
double trust_quantile(double *errors, int rows);

/* The error to expect, in percent. *rows: how many rows show it; 0: none, and TRUST_UNMEASURED is a
 * guess. The `error` of a machine file overrides it. */
enum { TRUST_UNMEASURED = 50 };
double trust_error(const struct clock_config *clock, int *rows);

/* 1: the machine's numbers were fitted with this GPU. */
int trust_is_calibrated(const struct clock_config *clock);

#endif
