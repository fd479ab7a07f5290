/* The runs behind the published measurements of clock/validation.h: the same model, batch and way,
 * against the modelled clock. */
#ifndef TRAIN_VALIDATION_H
#define TRAIN_VALIDATION_H

#include "base/text/text.h"
#include "clock/validation.h"
#include "train/estimate/modelled.h"

/* Runs what the point was measured on, and sets what the clock needs to know beside the GPU and
 * the machine, of which one node is run.
 * modelled_close it, also after an error. */
int validation_open(struct modelled *m, const struct series *series,
                    const struct series_point *point, struct clock_config *clock);

/* Adds the command whose output is the row of that point, with the same number. */
void validation_command(const struct series *series, const struct series_point *point,
                        const struct machine *machine, struct text *text);

#endif
