/* The times of a group's calls, which show which rank waits for which: DUET_TRACE=FILE.
 *
 * Each rank of each group writes its own file when it leaves the group, FILE.GROUP.RANK: a
 * Chrome trace, which ui.perfetto.dev opens. A rank whose job has failed cannot gather the others'
 * times, so `duet report FILE.*` reads the files of all ranks (report/calls/calls.h). All processes
 * of a machine share the clock of the times. An error here is a warning: a measurement must not end
 * a job.
 *
 * A duet_ddp sums its buckets outside of the calls of its group. So they are their own group
 * here, "world-ddp0", with a call for each bucket (ddp/trace.c). */
#ifndef GROUP_CALL_TRACE_H
#define GROUP_CALL_TRACE_H

#include <stdint.h>

struct call_trace;
struct group;

/* NULL where DUET_TRACE is not set, or without host memory. `name`: of the job, or "world"; `made`:
 * the number of this group among those made of it; 0: the job itself. */
struct call_trace *call_trace_open(const char *name, int made, int rank, int n);

/* Of the next ddp around this group; all ranks make them in the same order. NULL: of no group, or
 * the calls of the group are not noted. */
struct call_trace *call_trace_open_ddp(struct group *group);

/* A call of this name, "all_reduce", "send" or "recv", has run from start_ns until now. The
 * collectives of a group are added in their order. Any thread. */
void call_trace_add(struct call_trace *trace, const char *name, uint64_t bytes, int64_t start_ns);

/* Writes the file and frees the trace. NULL is fine. The error of this thread stays as it was. */
void call_trace_close(struct call_trace *trace);

#endif
