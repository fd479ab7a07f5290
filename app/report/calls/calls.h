/* The two answers of `duet report`: which rank waited for which in a job's process groups
 * (calls.c), and when each device of a program computed (timeline.c).
 *
 * With DUET_TRACE=FILE each rank of each group writes a Chrome trace of its calls, all on one
 * machine's clock (group/call_trace.h). The ranks of a group make the collectives of one name in
 * the same order, so their k-th calls of a name belong together, even if their bytes differ. A rank
 * that begins early waits for the rank that arrives last:
 *
 *     rank 0   |<--- waits --->|<- moves ->|
 *     rank 1             |<--->|<- moves ->|
 *     rank 2   .........comes last|<-moves>|
 *
 * Waits count from the time when every rank has begun a call. One slow call may still outweigh all
 * waits of the steps, so their sum does not show which rank is slow. The collectives of training
 * steps repeat. For each rank and kind (name, bytes at rank 0) in which it came last five times,
 *
 *     blame = how often it came last x the median of the waits for it
 *
 * The rank with the largest blame is named. */
#ifndef REPORT_CALLS_CALLS_H
#define REPORT_CALLS_CALLS_H

#include <stdio.h>

#include "base/text/json.h"

/* Prints the answer and a table of the ranks for each group of these files, which it sorts, and a
 * timeline for a file of duet_devices_timeline. ERR_FAILED: one has another format; ERR_MEMORY. */
int calls_report(FILE *out, int width, char **files, int count);

/* Prints a lane of letters for each device of this file, its busy time, and the bubble. */
int timeline_print(FILE *out, const char *path, const struct json *root);

/* ---- timeline.c, for calls.c as well ---- */

int calls_refuse(const char *path, const char *what); /* ERR_FAILED */

/* Reads an event's start and end in ns. Returns 0 if it has none. */
int event_times(const struct json *event, double *start, double *end);

#endif
