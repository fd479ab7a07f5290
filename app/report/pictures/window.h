/* The window of a timeline: the spans of one representative step.
 *
 * The first steps touch new memory and lay out DDP's buckets, and other work sometimes disturbs a
 * step. So the window is the step whose time is nearest to the median of all steps with spans,
 * except the first two. It includes the copies of the next batch that ran meanwhile. A span may
 * begin before the window or end after it. */
#ifndef REPORT_PICTURES_WINDOW_H
#define REPORT_PICTURES_WINDOW_H

#include "trace/record.h"

/* The rows of a timeline: one for each device and kind of lane. Waits of a host thread are on the
 * compute lane, which is idle meanwhile. */
enum window_row { ROW_COMPUTE, ROW_COMM, ROW_COPY, ROW_COUNT };

struct window {
    int step;
    int64_t step_ns; /* what device 0 takes for it, the time that the median is of */
    int64_t start_ns, end_ns;
    size_t count;              /* 0: the record has no spans of a step */
    const struct span **spans; /* [count] by device, lane and start; the array is owned */
    int has_row[ROW_COUNT];    /* 1: some device has a span in that row */
};

/* Chooses a step of the record. window_free it. ERR_MEMORY. */
int window_open(struct window *window, const struct run_record *run);
void window_free(struct window *window);

/* Returns 1 if the record kept spans of a step, so that its window has some. */
int has_steps(const struct run_record *run);

enum window_row window_row_of(const struct span *span);

/* How many of spans[0 .. count) belong together: same row, phase and kind, and gaps of at most
 * `least_gap` ns. Buckets stay separate. */
size_t window_joined(const struct span *const *spans, size_t count, double least_gap);

#endif
