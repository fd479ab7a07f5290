/* Writes a timeline of one or more runs in the Chrome trace event format, which Perfetto
 * (ui.perfetto.dev) opens. It shows the measured spans that --trace kept.
 *
 *     DDP: cpu(0)                one "process" for each device of a run
 *         steps and phases  | step 7                                        |
 *                           | forward     | loss | backward     | optimizer |
 *         compute           | conv2d | relu | ...
 *         communication                            | allreduce bucket 0 |
 *         host                   DP, device 0: its thread waits for the others
 *
 * "steps and phases" joins the spans of the compute lane below it. Every run begins at 0, the start
 * of its first span, so that runs can be compared. Times are wall times, so slices do not overlap.
 * They are in microseconds, with three decimals. An event's args hold its step, its phase, its CPU
 * time on an emulated device (which the tables add up), and its bytes or flops if it has any. A
 * copy or collective also names the devices that it reads and writes (source, destination). */
#ifndef REPORT_CHROME_CHROME_TRACE_H
#define REPORT_CHROME_CHROME_TRACE_H

#include "base/files/atomic_file.h"
#include "trace/record.h"

struct trace_run {
    const char *title; /* "DP, loss in forward" */
    const struct run_record *run;
};

/* Writes the runs to `file`, which was opened for `path`, and commits it. Does nothing if the file
 * was not opened. ERR_MEMORY; ERR_FAILED: the file cannot be written. */
int chrome_trace_write(struct atomic_file *file, const char *path, const struct trace_run *runs,
                       int count);

#endif
