/* A timeline of one or several runs in the Chrome trace event format, which Perfetto
 * (ui.perfetto.dev) opens: the spans that --trace kept, as they were measured.
 *
 *     DDP: cpu(0)                                    a "process" a run and device
 *         steps and phases      | step 7                                        |     the compute lane's spans,
 *                               | forward     | loss | backward      | optimizer |    put together
 *         compute               | conv2d | relu | ...
 *         communication                                | allreduce bucket 0 |         DDP
 *         host                                                                        DP, device 0: its thread waits
 *
 * Every run begins at 0, the start of its first span, so that several lie one below the other.
 * Times are in microseconds and exact to the nanosecond; an event's args hold step, phase, and
 * bytes or flops where there are any. */
#ifndef REPORT_CHROME_TRACE_H
#define REPORT_CHROME_TRACE_H

#include "base/atomic_file.h"
#include "trace/record.h"

struct trace_run {
    const char *title; /* "DP, loss in forward" */
    const struct run_record *run;
};

/* Writes the runs to `file`, opened for `path`, and commits it; nothing where it was not opened.
 * ERR_MEMORY, or the file could not be written. */
int chrome_trace_write(struct atomic_file *file, const char *path, const struct trace_run *runs,
                       int count);

#endif
