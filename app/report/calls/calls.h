/* The two answers of `duet report`: who waited for whom in the process groups of a job
 * (calls.c, judge.c), and when each device of a program computed (timeline.c).
 *
 * With DUET_TRACE=FILE each rank of each group leaves a file FILE.GROUP.RANK (group/call_trace.h),
 * a Chrome trace of its calls, all by the clock of one machine. The ranks of a group make the same
 * collectives in the same order, so number k of one rank belongs to number k of the others. A rank
 * that begins one early waits for the rank that comes last:
 *
 *     rank 0   |<--- waits --->|<- moves ->|
 *     rank 1             |<--->|<- moves ->|
 *     rank 2   .........comes last|<-moves>|
 *
 * One slow call at the start of a job outweighs all waits of its steps, so a sum of waits does not
 * show who is to blame. The collectives of training steps repeat: their kind (name and bytes)
 * occurs at least five times, and in both halves of the job. Of each kind and rank
 *
 *     blame = how often the rank came last x the median of the waits for it
 *
 * counts if the rank came last at least three times and in a quarter of all; the largest blame
 * names the rank. All other collectives count as start-up and end, for which nobody is blamed. */
#ifndef REPORT_CALLS_CALLS_H
#define REPORT_CALLS_CALLS_H

#include <stdio.h>

#include "base/limits.h"
#include "base/text/json.h"

/* A collective of one rank. Times are in ns. */
struct traced_call {
    double start, end, bytes;
    char name[20];
};

struct traced_rank {
    struct traced_call *calls;      /* [count], owned; NULL: no file of this rank was found */
    size_t count, messages;         /* messages: sends and receives */
    double bytes, in_calls, waited; /* waited: after the first collective */
    size_t came_last;               /* the number of collectives in steps */
    double median;                  /* of the waits for it in the kind where its blame is largest */
};

struct traced_group {
    char name[64];
    int ranks, files;
    struct traced_rank rank[MAX_DEVICES];
    size_t meetings; /* collectives that all ranks have */
    int blamed;      /* -1: nobody */
    const struct traced_call *blamed_in;
    size_t last_in, calls_in; /* the blamed rank came last in last_in of calls_in such calls */
};

/* Prints the answer and a table of the ranks for each group of these files, which it sorts.
 * ERR_FAILED: one has another format; ERR_MEMORY. */
int calls_report(FILE *out, int width, char **files, int count);

/* Finds who waited for whom in a group that was read, and prints it. ERR_MEMORY. */
int calls_judge(FILE *out, int width, struct traced_group *g);

/* Prints a lane for each device in letters, its busy time, and the bubble, if the file is one of
 * duet_devices_timeline (*is_one). ERR_FAILED: it is torn. */
int timeline_report(FILE *out, const char *path, int *is_one);

/* ---- reading a trace ---- */

/* The text of a file as JSON, which is the caller's. */
int json_of_file(const char *path, struct json **root);
const char *json_word(const struct json *object, const char *key); /* "": there is no such text */
double json_value(const struct json *object, const char *key);     /* NaN: no such number */

/* An event's beginning and end in ns. 0: it has none. */
int event_times(const struct json *event, double *start, double *end);

#endif
