/* Medians and spreads over the steps; see step_times.h. */
#include "trace/step_times.h"

#include <stdlib.h>
#include <string.h>

void step_times_free(struct step_times *times) {
    free(times->step);
    memset(times, 0, sizeof *times);
}

/* Adds step `index` with zero times. Returns 0 without host memory. */
static int reach(struct step_times *t, int index) {
    if (index >= t->capacity) {
        int capacity = 2 * index + 64;
        struct step_time *step = realloc(t->step, (size_t)capacity * sizeof *step);
        if (!step) return 0;
        memset(step + t->capacity, 0, (size_t)(capacity - t->capacity) * sizeof *step);
        t->step = step;
        t->capacity = capacity;
    }
    if (index >= t->count) t->count = index + 1;
    return 1;
}

void step_times_add(struct step_times *t, const struct span *span, int first_step) {
    int index = span->step - first_step;
    if (span->lane != LANE_COMPUTE || span->waiting) return;
    if (span->step < 0 || span->phase == PHASE_NONE || span->phase == PHASE_EVALUATE) return;
    if (index < 0 || index >= TRACE_STEPS || !reach(t, index)) return;
    struct step_time *step = &t->step[index];
    if (!step->start_ns || span->start_ns < step->start_ns) step->start_ns = span->start_ns;
    step->phase_ns[span->phase] += span_busy_ns(span);
}

static int smaller_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static double quantile(const int64_t *sorted, int count, double share) {
    double place = share * (count - 1);
    int below = (int)place, above = below + 1 < count ? below + 1 : below;
    return (double)sorted[below] + (place - below) * (double)(sorted[above] - sorted[below]);
}

void median_and_spread(int64_t *values, int count, int64_t *median, int64_t *spread) {
    static const double MIDDLE = 0.68;
    *median = *spread = 0;
    if (count < 1) return;
    qsort(values, (size_t)count, sizeof *values, smaller_first);
    *median = (int64_t)quantile(values, count, 0.5);
    *spread = (int64_t)((quantile(values, count, 0.5 + MIDDLE / 2) -
                         quantile(values, count, 0.5 - MIDDLE / 2)) /
                        2);
}

void step_times_sum_up(const struct step_times *t, struct device_record *d) {
    int64_t values[TRACE_STEPS];
    int n = 0;
    for (int p = 0; p < PHASE_COUNT; p++) {
        for (int i = 0; i < t->count; i++)
            values[i] = t->step[i].phase_ns[p];
        median_and_spread(values, t->count, &d->phase_median_ns[p], &d->phase_spread_ns[p]);
    }
    for (int i = 0; i + 1 < t->count; i++)
        if (t->step[i].start_ns && t->step[i + 1].start_ns)
            values[n++] = t->step[i + 1].start_ns - t->step[i].start_ns;
    median_and_spread(values, n, &d->step_median_ns, &d->step_spread_ns);
}
