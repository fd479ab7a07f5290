/* When each device of a program computed, from the file of duet_devices_timeline: for a model split
 * over devices, which wait for each other. The file is a Chrome trace, which ui.perfetto.dev opens;
 * an event names its device and says whether the device only waited. The bubble is the share of the
 * devices' time, from the first event to the last, in which they neither computed nor copied. */
#ifndef REPORT_CALLS_TIMELINE_H
#define REPORT_CALLS_TIMELINE_H

#include <stdio.h>

/* Reads the file, and prints a lane for each device in letters, its busy time, and the bubble.
 * *is_one 0: the file is of another kind or missing; nothing is printed, and that is not an error.
 * ERR_FAILED: it is torn; ERR_MEMORY. */
int timeline_print(FILE *out, const char *path, int *is_one);

#endif
