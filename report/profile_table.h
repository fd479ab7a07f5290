/* The profile: where memory, bytes and time go, device by device, and what device 0 has more of
 * than the others. All of it comes from ledgers and spans; nothing is estimated. */
#ifndef REPORT_PROFILE_TABLE_H
#define REPORT_PROFILE_TABLE_H

#include <stdio.h>

#include "trace/record.h"

/* Prints one run. For each device: memory by cause (now and at its peak); per step, the bytes over
 * links, the busy time and the time by phase. Then device 0's excess over the others. */
void profile_table(FILE *file, const char *title, const struct run_record *run);

/* What device 0 has more of than the mean of the others. */
enum excess_kind { EXCESS_MEMORY, EXCESS_TRAFFIC, EXCESS_TIME };
struct excess {
    enum excess_kind kind;
    const char *name; /* static storage */
    /* Positive. Memory: bytes, each device at its own peak; traffic: bytes per step; time: ns per
     * step. */
    double amount;
};
enum { EXCESS_MAX = MEM_CAUSE_COUNT + 2 + PHASE_COUNT };
/* Writes the excess of one kind, the largest entry first, to out[EXCESS_MAX]. Returns the number of
 * entries; 0 for a run on one device. */
int profile_excess(const struct run_record *run, enum excess_kind kind, struct excess *out);

#endif
