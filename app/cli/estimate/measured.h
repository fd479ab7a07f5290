/* --measured: the time of a step on one GPU that the user measured, from which the others are
 * predicted. */
#ifndef CLI_ESTIMATE_MEASURED_H
#define CLI_ESTIMATE_MEASURED_H

#include "train/estimate/modelled.h"

enum { MEASURED_TIMES = 2 };

struct measured {
    int times;                 /* that are given */
    int batch[MEASURED_TIMES]; /* 0: that of the table */
    double ms[MEASURED_TIMES];
    char doubt[192]; /* a time that is further from the clock's than its error; "": there is none */
};

/* "1:118ms" or "1:0.118s", and "1x64:230ms" of another batch; one, or two with a comma; NULL: none.
 * several: there are several kinds of hardware, of which none can have it. */
int measured_read(struct measured *measured, const char *text, int several);

/* Sets clock->given, the factor on kernels with which one GPU, which runs `single`, takes that
 * time. Of two times it is the geometric mean of theirs. ERR_USAGE: a time is absurd, or two are
 * further apart than the clock is from a time. */
int measured_give(struct measured *measured, const struct run_config *single,
                  struct clock_config *clock);

#endif
