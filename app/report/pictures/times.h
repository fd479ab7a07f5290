/* Where a device's time of a step goes, as pictures and tables say it: the phases of its compute
 * lane, and what is left of the step. All of a step adds up to its wall time. */
#ifndef REPORT_PICTURES_TIMES_H
#define REPORT_PICTURES_TIMES_H

#include "report/pictures/palette.h"
#include "trace/record.h"

/* Keys below PHASE_COUNT are phases. The others: */
enum time_key {
    TIME_WAIT = PHASE_COUNT, /* for other devices, for the communication or the copy lane */
    TIME_NO_CORE,            /* emulated devices: another one had the core */
    TIME_IDLE,               /* the rest of the step */
    TIME_KEYS,
    TIME_PARTS = TIME_KEYS - PHASE_COUNT
};

/* Nanoseconds a step, mean over all steps; 0 for phases that are no part of a step. */
double time_part(const struct run_record *run, int device, int key);
const char *time_name(int key);
enum shade time_shade(int key);

#endif
