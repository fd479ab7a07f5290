/* The profile: where memory, bytes and time go, device by device, and what makes device 0
 * different. */
#ifndef REPORT_PROFILE_TABLE_H
#define REPORT_PROFILE_TABLE_H

#include <stdio.h>

#include "trace/record.h"

/* One run: a row a device of memory by cause (now and peak), bytes over links, busy time and
 * time by phase, all a step; then what device 0 has more than the mean of the others, largest
 * first. From ledgers and spans; nothing is estimated. */
void profile_table(FILE *file, const char *title, const struct run_record *run);

/* Device 0's excess over the mean of the others, one entry a cause, largest first. */
enum excess_kind { EXCESS_MEMORY, EXCESS_TRAFFIC, EXCESS_TIME };
struct excess {
    enum excess_kind kind;
    const char *name; /* static storage */
    /* bytes (memory: at each one's own peak; traffic: a step), or ns a step; positive */
    double amount;
};
enum { EXCESS_MAX = MEM_CAUSE_COUNT + 2 + PHASE_COUNT };
int profile_excess(const struct run_record *run, enum excess_kind kind,
                   struct excess *out); /* returns how many */

#endif
