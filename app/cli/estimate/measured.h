/* --measured: the user measured the time of a step on one GPU, and the clock predicts the other
 * times from it. */
#ifndef CLI_ESTIMATE_MEASURED_H
#define CLI_ESTIMATE_MEASURED_H

#include "train/estimate/modelled.h"

enum { MEASURED_TIMES = 2 };

struct measured {
    int times;                 /* how many times were given */
    int batch[MEASURED_TIMES]; /* 0: the table's batch */
    double ms[MEASURED_TIMES];
    char doubt[192]; /* a remark on a time that is off by more than the clock's error; "": none */
};

/* Parses "1:118ms" or "1:0.118s", or "1x64:230ms" for another batch: one time, or two with a comma;
 * NULL: none. */
int measured_read(struct measured *measured, const char *text);

/* Sets clock->given, the factor on kernels with which one GPU takes that time for `single`. For two
 * times it is the geometric mean of their factors. ERR_USAGE: a time is absurd, or the two disagree
 * by more than the clock's error. */
int measured_give(struct measured *measured, const struct run_config *single,
                  struct clock_config *clock);

#endif
