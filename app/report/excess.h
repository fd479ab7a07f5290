/* Finds phases in which device 0 works longer than the others, and whether that may be chance. */
#ifndef REPORT_EXCESS_H
#define REPORT_EXCESS_H

#include "trace/record.h"

/* A phase in which device 0 works longer than the others on average. */
struct excess {
    enum phase phase;
    double amount; /* ns per step, positive */
    double spread; /* spread of this difference over the steps (step_times.h), in ns */
    /* 1: the amount does not exceed the spread of the steps, so it may be chance. Both mean and
     * median must exceed the spread, because one disturbed step shifts the mean. */
    int within_spread;
};

/* Writes these phases: first those beyond the spread, the longest first, then those within it.
 * Returns their number; 0 for a run on one device. */
int time_excess(const struct run_record *run, struct excess out[PHASE_COUNT]);

#endif
