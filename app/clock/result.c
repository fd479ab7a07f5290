/* See result.h. */
#include "clock/result.h"

#include <string.h>

static int32_t last_step(const struct span_log *spans) {
    int32_t step = -1;
    for (size_t i = 0; i < spans->count; i++)
        if (spans->spans[i].step > step) step = spans->spans[i].step;
    return step;
}

static void add(struct clock_result *r, const struct span *x) {
    int64_t ns = x->end_ns - x->start_ns;
    if (x->lane == LANE_COMPUTE && !x->waiting) r->busy_ns[x->device] += ns;
    if (x->device) return;
    if (x->lane == LANE_COMM && !x->waiting) r->comm_ns += ns;
    if (x->lane != LANE_COMPUTE) return;
    if (!x->waiting)
        r->phase_ns[x->phase] += ns;
    else if (x->phase == PHASE_ALLREDUCE || x->phase == PHASE_REPLICATE || x->phase == PHASE_REDUCE)
        r->comm_wait_ns += ns;
}

void clock_result(const struct span_log *spans, struct clock_result *r) {
    int64_t end = 0, end_before = 0;
    int32_t step = last_step(spans);
    if (step > 0) step--;
    memset(r, 0, sizeof *r);
    r->step = step;
    for (size_t i = 0; i < spans->count; i++) {
        const struct span *x = &spans->spans[i];
        int32_t of = x->step;
        if (of == step) add(r, x);
        int64_t *latest = of == step ? &end : &end_before;
        /* the copy stream already loads the next step's batch, and a stream may have begun to wait
         * for it */
        if (x->lane == LANE_COPY || x->waiting || of < step - 1 || of > step) continue;
        if (x->end_ns > *latest) *latest = x->end_ns;
    }
    r->step_ns = end - end_before;
}
