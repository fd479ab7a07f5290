/* The memory, traffic and work of one device of a run. All tables and sentences use these values.
 * Times (in ns) and bytes moved are per step; memory is in bytes. */
#ifndef REPORT_VALUES_H
#define REPORT_VALUES_H

#include "trace/record.h"

enum value {
    VALUE_PEAK, /* peak memory; key: a cause, or MEM_CAUSE_COUNT for all */
    VALUE_IN,   /* bytes over links */
    VALUE_OUT,
    VALUE_LINKS, /* in and out */
    VALUE_MOVED, /* bytes that its own streams moved in phase `key` */
    VALUE_PHASE, /* time in phase `key` */
    VALUE_BUSY,
    VALUE_BUSY_SHARE, /* share of the training time, 0 to 1 */
    VALUE_KERNELS,    /* launches */
    VALUE_COPY,       /* copying the next batch during the phases */
    /* In DDP the communication lane overlaps with the compute lane. Its time is hidden while the
     * compute lane is busy; otherwise the compute lane may wait for the sum. */
    VALUE_HIDDEN,
    VALUE_EXPOSED,
    VALUE_WAIT,    /* waits for other devices; in DP measured only on device 0 */
    VALUE_NO_CORE, /* emulated devices that share cores: kernels wait for a core */
    VALUE_IDLE     /* the rest of a step's wall time */
};

double device_value(const struct run_record *run, int device, enum value value, int key);

/* The mean over devices first .. end - 1; 0 for none. */
double mean_value(const struct run_record *run, int first, int end, enum value value, int key);

/* The mean over all devices except device 0. */
double others_value(const struct run_record *run, enum value value, int key);

/* Returns 1 if any device has a value other than 0. */
int any_value(const struct run_record *run, enum value value, int key);

#endif
