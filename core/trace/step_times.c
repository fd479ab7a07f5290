/* The median and the spread of the steps; see step_times.h. */
#include "trace/step_times.h"

#include <stdlib.h>
#include <string.h>

void step_times_free(struct step_times *times) {
    free(times->start_ns);
    memset(times, 0, sizeof *times);
}

/* Adds step `index`. Returns 0 without host memory. */
static int reach(struct step_times *t, int index) {
    if (index >= t->capacity) {
        int capacity = 2 * index + 64;
        int64_t *start_ns = realloc(t->start_ns, (size_t)capacity * sizeof *start_ns);
        if (!start_ns) return 0;
        memset(start_ns + t->capacity, 0, (size_t)(capacity - t->capacity) * sizeof *start_ns);
        t->start_ns = start_ns;
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
    int64_t *start = &t->start_ns[index];
    if (!*start || span->start_ns < *start) *start = span->start_ns;
}

static int smaller_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static double quantile(const int64_t *sorted, int count, double share) {
    double rank = share * (count - 1);
    int below = (int)rank, above = below + 1 < count ? below + 1 : below;
    return (double)sorted[below] + (rank - below) * (double)(sorted[above] - sorted[below]);
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
    for (int i = 0; i + 1 < t->count; i++)
        if (t->start_ns[i] && t->start_ns[i + 1]) values[n++] = t->start_ns[i + 1] - t->start_ns[i];
    median_and_spread(values, n, &d->step_median_ns, &d->step_spread_ns);
}
