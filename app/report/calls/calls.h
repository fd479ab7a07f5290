/* The two answers of `duet report`: which rank waited for which in a job's process groups (calls.c,
 * judge.c), and when each device of a program computed (timeline.c).
 *
 * With DUET_TRACE=FILE each rank of each group writes a file FILE.GROUP.RANK (group/call_trace.h),
 * a Chrome trace of its calls, all on one machine's clock. The ranks of a group make the same
 * collectives in the same order, so the k-th calls of all ranks belong together. A rank that begins
 * early waits for the rank that arrives last:
 *
 *     rank 0   |<--- waits --->|<- moves ->|
 *     rank 1             |<--->|<- moves ->|
 *     rank 2   .........comes last|<-moves>|
 *
 * One slow call at the start of a job outweighs all waits of its steps, so a sum of waits does not
 * show which rank is slow. The collectives of training steps repeat: their kind (name and bytes)
 * occurs at least five times, and in both halves of the job. For each kind and rank
 *
 *     blame = how often the rank came last x the median of the waits for it
 *
 * counts if the rank came last at least three times and in a quarter of all calls. The largest
 * blame names the rank. All other collectives count as start-up and end, without blame. */
#ifndef REPORT_CALLS_CALLS_H
#define REPORT_CALLS_CALLS_H

#include <stdio.h>

#include "base/limits.h"
#include "base/text/json.h"

/* A collective on one rank. Times are in ns. */
struct traced_call {
    double start, end, bytes;
    char name[20];
};

struct traced_rank {
    struct traced_call *calls;      /* [count], owned; NULL: no file of this rank was found */
    size_t count, messages;         /* messages: sends and receives */
    double bytes, in_calls, waited; /* waited: excluding the first collective */
    size_t came_last;               /* the number of collectives in steps */
    double median;                  /* median wait for it, in its worst kind of call */
};

struct traced_group {
    char name[64];
    int ranks, files;
    struct traced_rank rank[MAX_DEVICES];
    size_t meetings; /* collectives that all ranks recorded */
    int blamed;      /* rank to blame; -1: none */
    const struct traced_call *blamed_in;
    size_t last_in, calls_in; /* the blamed rank was last in last_in of calls_in such calls */
};

/* Prints the answer and a table of the ranks for each group of these files, which it sorts.
 * ERR_FAILED: one has another format; ERR_MEMORY. */
int calls_report(FILE *out, int width, char **files, int count);

/* Finds and prints which rank waited for which in a group that was read. ERR_MEMORY. */
int calls_judge(FILE *out, int width, struct traced_group *g);

/* Prints a lane of letters for each device, its busy time, and the bubble, if the file is one of
 * duet_devices_timeline (*is_one). ERR_FAILED: it is incomplete. */
int timeline_report(FILE *out, const char *path, int *is_one);

/* ---- reading a trace ---- */

/* Parses a file as JSON, which the caller frees. */
int json_of_file(const char *path, struct json **root);
const char *json_word(const struct json *object, const char *key); /* "": no such string */
double json_value(const struct json *object, const char *key);     /* NaN: no such number */

/* Reads an event's start and end in ns. Returns 0 if it has none. */
int event_times(const struct json *event, double *start, double *end);

#endif
