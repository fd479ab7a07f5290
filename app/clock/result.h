/* The result of a modelled run: times of a step, and how busy each device is. */
#ifndef CLOCK_RESULT_H
#define CLOCK_RESULT_H

#include "base/limits.h"
#include "trace/span.h"

/* The second-to-last step of a run: it is past the warm-up, and the next batch is copied during
 * it. */
struct clock_result {
    int32_t step;                 /* its index, from 0 */
    int64_t step_ns;              /* from the end of the previous step to its end */
    int64_t busy_ns[MAX_DEVICES]; /* compute stream, without waits */
    /* of device 0: */
    int64_t phase_ns[PHASE_COUNT]; /* parts of its busy_ns */
    int64_t comm_ns;               /* communication stream */
    int64_t comm_wait_ns;          /* compute stream, waiting for comm */
};

/* spans are from clock_run. */
void clock_result(const struct span_log *spans, struct clock_result *result);

#endif
