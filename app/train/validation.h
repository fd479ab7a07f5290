/* Repeats the runs of the published measurements (clock/validation.h) with the same model, batch
 * and mode, against the modelled clock. */
#ifndef TRAIN_VALIDATION_H
#define TRAIN_VALIDATION_H

#include "base/text/text.h"
#include "clock/validation.h"
#include "train/estimate/modelled.h"

/* Sets everything that the clock needs for the point except the GPU and the machine. */
void validation_clock(const struct series *series, const struct series_point *point,
                      struct clock_config *clock);

/* The same, and runs the point's workload on one node. Call modelled_close even after an error. */
int validation_open(struct modelled *m, const struct series *series,
                    const struct series_point *point, struct clock_config *clock);

/* Adds the command that prints the row of that point, with the same number. */
void validation_command(const struct series *series, const struct series_point *point,
                        const struct machine *machine, struct text *text);

#endif
