/* --measured: the user measured the time of a step on one GPU, and the clock predicts the other
 * times from it. */
#ifndef CLI_ESTIMATE_MEASURED_H
#define CLI_ESTIMATE_MEASURED_H

#include "train/estimate/modelled.h"

/* Parses "1:118ms" or "1:0.118s". NULL: none, and *ms is 0. */
int measured_read(const char *text, double *ms);

/* Sets clock->given, the factor on kernels with which one GPU takes that time for `single`. doubt:
 * a remark if the time is off by more than the clock's error, else "". ERR_USAGE: it is absurd. */
enum { MEASURED_DOUBT = 192 };
int measured_give(double ms, const struct run_config *single, struct clock_config *clock,
                  char doubt[MEASURED_DOUBT]);

#endif
