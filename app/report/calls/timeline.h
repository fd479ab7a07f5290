/* When each device of a program computed, from the file of duet_devices_timeline: for a model in
 * parts, whose devices wait for each other.
 *
 *     {"duet_timeline": 1, "devices": ["cpu(0)", "cpu(1)"],
 *      "spans": [[0, "linear forward", START_NS, END_NS, WAITING], ...]}
 *
 * It becomes a run like one of `duet profile`, in one step, whose picture it shares. The bubble is
 * the part of the devices' time, from the first span to the last, in which they computed and copied
 * nothing. */
#ifndef REPORT_CALLS_TIMELINE_H
#define REPORT_CALLS_TIMELINE_H

#include "base/files/atomic_file.h"
#include "trace/record.h"

struct timeline {
    struct run_record *run; /* its kept spans; times of phases and idle time of each device */
    int64_t start_ns, end_ns;
};

/* Reads the file. *is_one 0: it is of another kind, or none, and all is well. ERR_FAILED: it is
 * torn; ERR_MEMORY. timeline_free it, also after a failure. */
int timeline_read(struct timeline *t, const char *path, int *is_one);
void timeline_free(struct timeline *t);

/* A lane for each device in letters, its busy time, and the bubble. */
void timeline_print(FILE *file, const struct timeline *t);

/* The same as profile's picture, SVG; and as a timeline for Perfetto. They commit the file. */
int timeline_picture(const struct timeline *t, struct atomic_file *file);
int timeline_trace(const struct timeline *t, struct atomic_file *file);

#endif
