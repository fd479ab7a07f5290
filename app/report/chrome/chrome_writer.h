/* What the files of chrome_trace.h share: writing one event after another. Private to them. */
#ifndef REPORT_CHROME_CHROME_WRITER_H
#define REPORT_CHROME_CHROME_WRITER_H

#include "base/text/json.h"
#include "report/chrome/chrome_trace.h"

/* Process ids, which viewers show: 100, 101, ... for the devices of the first run, 200, ... for
 * those of the second. */
enum { RUN_PROCESSES = 100 };
_Static_assert(MAX_DEVICES <= RUN_PROCESSES, "two runs would share process ids");
/* Thread ids: TRACK_STEPS, and TRACK_LANES + lane. Perfetto takes a thread for the main thread
 * where its id is that of its process; none is. */
enum track { TRACK_STEPS = 1, TRACK_LANES };

struct writer {
    struct json_writer json;
    const struct trace_run *run;
    int first_process; /* id of the run's device 0 */
    int process;       /* id of the device being written */
    int64_t zero_ns;   /* when the run's first span began */
};

/* Writes a slice up to its args, to which the caller adds; close_event ends it. */
void open_slice(struct writer *w, int track, const char *name, const char *category,
                int64_t start_ns, int64_t end_ns);
void close_event(struct writer *w);
/* "process_name" and "thread_name", and their places: "process_sort_index", "thread_sort_index". */
void write_name(struct writer *w, const char *what, int track, const char *name);
void write_place(struct writer *w, const char *what, int track, int place);

#endif
