/* The memory, traffic and work of one device of a run: all tables and sentences are made of these
 * values. Times (ns) and bytes moved are those of a step; memory is in bytes. */
#ifndef REPORT_VALUES_H
#define REPORT_VALUES_H

#include "trace/record.h"

enum value {
    VALUE_PEAK, /* memory at the peak; key: a cause, or MEM_CAUSE_COUNT for all */
    VALUE_NOW,  /* memory at the end, likewise */
    VALUE_IN,   /* bytes over links */
    VALUE_OUT,
    VALUE_LINKS, /* both */
    VALUE_MOVED, /* bytes that its own streams moved in phase `key` */
    VALUE_PHASE, /* time in phase `key` */
    VALUE_BUSY,
    VALUE_BUSY_SHARE, /* its share of the training time, 0 to 1 */
    VALUE_KERNELS,    /* launches */
    VALUE_COPY,       /* the next batch, during the phases */
    /* In DDP the communication lane overlaps with the compute lane and is hidden while that is
     * busy; the compute lane may wait for the sum. */
    VALUE_HIDDEN,
    VALUE_EXPOSED,
    VALUE_WAIT,    /* for the others; in DP it is measured on device 0 only */
    VALUE_NO_CORE, /* emulated devices that share cores: its kernel had no core */
    VALUE_IDLE     /* the rest of a step's wall time */
};

double device_value(const struct run_record *run, int device, enum value value, int key);

/* The mean over devices first .. end - 1; 0 if there are none. */
double mean_value(const struct run_record *run, int first, int end, enum value value, int key);

/* The mean over all devices but device 0. */
double others_value(const struct run_record *run, enum value value, int key);

/* 1: some device has a value other than 0. */
int any_value(const struct run_record *run, enum value value, int key);

#endif
