/* With DUET_TRACE=FILE a group records when its calls ran, which shows which rank waits for which.
 *
 * Each rank of each group writes its own file when it leaves the group, FILE.GROUP.RANK: a
 * Chrome trace, which ui.perfetto.dev opens. A rank whose job has failed cannot gather the others'
 * times, so `duet report FILE.*` reads the files of all ranks (report/calls/calls.h). All processes
 * on a machine use the same clock. An error here is only a warning, because a measurement must not
 * end a job. */
#ifndef GROUP_CALL_TRACE_H
#define GROUP_CALL_TRACE_H

#include <stdint.h>

struct call_trace;
struct group;

/* NULL if DUET_TRACE is not set or host memory runs out. `name` is the job's name, or "world".
 * `made` is the number of this group among the job's groups; 0 is the job itself. */
struct call_trace *call_trace_open(const char *name, int made, int rank, int n);

/* The trace of this group. NULL if the group is NULL or its calls are not recorded. */
struct call_trace *call_trace_of(struct group *group);

/* Records that a call of this name, "all_reduce", "send" or "allreduce bucket 0", ran between these
 * times. Calls of one name are added in their order. Any thread may call it. */
void call_trace_add(struct call_trace *trace, const char *name, uint64_t bytes, int64_t start_ns,
                    int64_t end_ns);

/* Writes the file and frees the trace. NULL is fine. The error of this thread does not change. */
void call_trace_close(struct call_trace *trace);

#endif
