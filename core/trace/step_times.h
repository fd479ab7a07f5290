/* Measures how the time of a step varies. A mean cannot show whether a mode is slower than another
 * or was only disturbed in a few steps; the spread over the steps can.
 *
 * The spread is half the range of the middle 68 % of the steps. For normally distributed times it
 * is the standard deviation. Unlike the standard deviation, it does not grow with the first step,
 * which touches new memory, or with a single disturbed step. */
#ifndef TRACE_STEP_TIMES_H
#define TRACE_STEP_TIMES_H

#include "trace/record.h"

/* When one device's first TRACE_STEPS steps began. All zero: empty. */
struct step_times {
    int64_t *start_ns;   /* owned; of a step's first span on the compute lane; 0: it has none */
    int count, capacity; /* steps up to the last one that has a span */
};
void step_times_free(struct step_times *times);

/* Adds a compute-lane span to its step. It ignores spans of other lanes, waits, spans of evaluation
 * or without a step, and all spans if host memory runs out. first_step is the run's first step. */
void step_times_add(struct step_times *times, const struct span *span, int first_step);

/* Sets the median and the spread in `device`. */
void step_times_sum_up(const struct step_times *times, struct device_record *device);

/* The median of values[0..count) and the spread; sorts them. Both are 0 if count is 0. */
void median_and_spread(int64_t *values, int count, int64_t *median, int64_t *spread);

#endif
