/* Finds out which rank waited for which in the process group calls of a job, from the files of
 * DUET_TRACE=FILE (group/call_trace.h). There is one file FILE.GROUP.RANK for each rank of each
 * group, all from one machine. Each is a Chrome trace, in which a call has its number and its
 * bytes.
 *
 * Collectives with the same number belong together. A rank that begins one early waits for the rank
 * that comes last:
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

#include <stdint.h>
#include <stdio.h>

#include "base/limits.h"
#include "base/text/json.h"

struct traced_call {
    uint64_t number, bytes;
    int64_t start_ns, end_ns;
    int message; /* 1: send or recv */
    char name[20];
};

struct traced_rank {
    struct traced_call *calls; /* [count], owned; NULL: no file of this rank was found */
    size_t count, collectives; /* the collectives come first */
    int64_t in_calls_ns, waited_ns;
    uint64_t bytes;
    size_t came_last;  /* the number of collectives in steps */
    int64_t median_ns; /* of the waits for it in the kind where its blame is largest */
};

/* A collective that all ranks have. */
struct traced_meeting {
    const struct traced_call *call; /* of any rank: its name and bytes */
    int last;
    int64_t waited_ns; /* the wait of the rank that came first */
};

struct traced_group {
    char name[64];
    int ranks, files;
    struct traced_rank rank[MAX_DEVICES];
    int64_t first_ns, last_ns;
    struct traced_meeting *met; /* [meetings], owned */
    size_t meetings;
    int blamed; /* -1: nobody */
    const struct traced_call *blamed_in;
    size_t last_in, calls_in; /* the blamed rank came last in last_in of calls_in such calls */
};

struct traced_job {
    struct traced_group *group; /* [groups], owned, those with the most calls first */
    int groups;
};

/* The text of a file as JSON, which is the caller's. */
int json_of_file(const char *path, struct json **root);
const char *json_word(const struct json *object, const char *key); /* "": there is no such text */
/* Of an event of a trace. ERR_FAILED without a text: it has none. */
int event_times(const struct json *event, int64_t *start_ns, int64_t *end_ns);
int64_t json_whole(const struct json *object, const char *key, int64_t otherwise);

/* Reads all files PATH.GROUP.RANK. ERR_FAILED: there is none, or one has another format;
 * ERR_MEMORY. calls_free it, also after a failure. */
int calls_read(struct traced_job *job, const char *path);
void calls_free(struct traced_job *job);

/* Finds who waited for whom in a group that was read. ERR_MEMORY. */
int calls_judge(struct traced_group *g);

/* The answer, then a table of the ranks, for each group. */
void calls_print(FILE *file, int width, const struct traced_job *job);

#endif
