/* Computes device 0's excess: see excess.h. */
#include "report/excess.h"

#include <math.h>
#include <stdlib.h>

static double square(int64_t x) {
    return (double)x * (double)x;
}

static struct excess excess_in(const struct run_record *r, enum phase p) {
    const struct device_record *first = &r->device[0];
    double others = r->devices - 1, mean = 0, median = 0, squares = 0;
    for (int d = 1; d < r->devices; d++) {
        mean += (double)r->device[d].phase_ns[p] / others;
        median += (double)r->device[d].phase_median_ns[p] / others;
        squares += square(r->device[d].phase_spread_ns[p]) / others;
    }
    struct excess e = {.phase = p,
                       .amount = record_per_step(r, (double)first->phase_ns[p] - mean),
                       /* spread of device 0's time minus the others' mean, assuming independence */
                       .spread = sqrt(square(first->phase_spread_ns[p]) + squares / others)};
    e.within_spread =
        e.amount <= e.spread || (double)first->phase_median_ns[p] - median <= e.spread;
    return e;
}

static int longer_first(const void *left, const void *right) {
    const struct excess *a = left, *b = right;
    if (a->within_spread != b->within_spread) return a->within_spread ? 1 : -1;
    return a->amount < b->amount ? 1 : a->amount > b->amount ? -1 : 0;
}

int time_excess(const struct run_record *r, struct excess out[PHASE_COUNT]) {
    int n = 0;
    for (int p = PHASE_INPUT; p < PHASE_COUNT && r->devices > 1; p++) {
        if (p == PHASE_EVALUATE || p == PHASE_PROOF || phase_is_of_host(p)) continue;
        out[n] = excess_in(r, (enum phase)p);
        n += out[n].amount > 0;
    }
    qsort(out, (size_t)n, sizeof *out, longer_first);
    return n;
}
