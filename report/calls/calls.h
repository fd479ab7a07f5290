/* Who waited for whom in a job's calls of process groups, from the files that DUET_TRACE=FILE left
 * (group/call_trace.h): FILE.GROUP.RANK, one of each rank of each group, all of one machine.
 *
 *     {"duet_calls": 1, "group": "world", "rank": 0, "ranks": 2, "lost": 0,
 *      "calls": [[1, "all_reduce", 4096, START_NS, END_NS], ...]}
 *
 * A call is its number, its name, the bytes of a block, and when it began to run and ended.
 * Collectives of one number belong together. A rank that begins one before the last rank does waits
 * for that, which comes last:
 *
 *     rank 0   |<--- waits --->|<- moves ->|
 *     rank 1             |<--->|<- moves ->|
 *     rank 2   .........comes last|<-moves>|                                                   */
#ifndef REPORT_CALLS_CALLS_H
#define REPORT_CALLS_CALLS_H

#include <stdint.h>
#include <stdio.h>

#include "base/files/atomic_file.h"
#include "base/limits.h"
#include "report/calls/remote.h"

struct traced_call {
    uint64_t number, bytes;
    int64_t start_ns, end_ns;
    int64_t waited_ns; /* for the rank that came last; 0: this one did, or a message */
    int last;          /* of a collective that all ranks have: the rank that came last; else -1 */
    int message;       /* 1: send or recv */
    char name[20];
};

struct traced_rank {
    struct traced_call *calls; /* [count], owned; NULL: no file of this rank was found */
    size_t count;
    int64_t lost;
    int64_t in_calls_ns, waited_ns; /* of collectives */
    int64_t others_waited_ns;       /* all ranks together, for this one */
    size_t collectives, messages, came_last;
    uint64_t bytes;
};

struct traced_group {
    char name[64];
    int ranks, files;
    struct traced_rank rank[MAX_DEVICES];
    int64_t first_ns, last_ns;
    size_t together; /* collectives that all ranks have */
};

struct traced_job {
    struct traced_group *group; /* [groups], owned, those with the most calls first */
    int groups;
    struct remote_job remote; /* the calls of duet_rpc_* */
};

/* Reads all files PATH.GROUP.RANK, also those of remote calls (remote.h), and finds who waited.
 * ERR_FAILED: there is none, or one is no such file; ERR_MEMORY. calls_free it, also after a
 * failure. */
int calls_read(struct traced_job *job, const char *path);
void calls_free(struct traced_job *job);

/* The answer, then a table of the ranks and one of the calls, for each group. */
void calls_print(FILE *file, int width, const struct traced_job *job);

/* "1.5 ms", "3.78 s". Returns text. */
const char *calls_seconds(int64_t ns, char text[24]);

/* A timeline for Perfetto. As chrome_trace_write. */
int calls_write_trace(const struct traced_job *job, struct atomic_file *file, const char *path);

#endif
