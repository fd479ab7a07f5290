/* Device 0's excess and the imbalance: see excess.h. */
#include "report/excess.h"

#include <math.h>
#include <stdlib.h>

const double IMBALANCE_BOUND = 0.75;

typedef double value_of(const struct device_record *, int key);

static double mean_of_others(const struct run_record *r, value_of *value, int key) {
    double sum = 0;
    for (int d = 1; d < r->devices; d++)
        sum += value(&r->device[d], key);
    return sum / (r->devices - 1);
}

static double over_the_others(const struct run_record *r, value_of *value, int key) {
    return value(&r->device[0], key) - mean_of_others(r, value, key);
}

static double memory_of(const struct device_record *d, int cause) {
    return (double)d->memory.at_peak[cause];
}
static double traffic_of(const struct device_record *d, int out) {
    return (double)(out ? d->bytes_out : d->bytes_in);
}
static double phase_of(const struct device_record *d, int phase) {
    return (double)d->phase_ns[phase];
}
static double median_of(const struct device_record *d, int phase) {
    return (double)d->phase_median_ns[phase];
}
static double square_of_spread(const struct device_record *d, int phase) {
    return (double)d->phase_spread_ns[phase] * (double)d->phase_spread_ns[phase];
}

/* The spread of device 0's time minus the mean of the others', as of independent times. */
static double spread_of(const struct run_record *r, int phase) {
    return sqrt(square_of_spread(&r->device[0], phase) +
                mean_of_others(r, square_of_spread, phase) / (r->devices - 1));
}

static struct excess time_excess(const struct run_record *r, int phase) {
    struct excess e = {.kind = EXCESS_TIME,
                       .key = phase,
                       .name = phase_name(phase),
                       .amount = record_per_step(r, over_the_others(r, phase_of, phase)),
                       .spread = spread_of(r, phase)};
    e.within_spread = e.amount <= e.spread || over_the_others(r, median_of, phase) <= e.spread;
    return e;
}

static int larger_first(const void *left, const void *right) {
    const struct excess *a = left, *b = right;
    if (a->within_spread != b->within_spread) return a->within_spread ? 1 : -1;
    return a->amount < b->amount ? 1 : a->amount > b->amount ? -1 : 0;
}

int profile_excess(const struct run_record *r, enum excess_kind kind, struct excess *out) {
    int n = 0, kept = 0;
    if (r->devices < 2) return 0;
    for (int c = 0; kind == EXCESS_MEMORY && c < MEM_CAUSE_COUNT; c++)
        out[n++] = (struct excess){kind, c, mem_cause_name(c), over_the_others(r, memory_of, c),
                                   .within_spread = 0};
    for (int k = 0; kind == EXCESS_TRAFFIC && k < 2; k++)
        out[n++] = (struct excess){kind, k, k ? "bytes out" : "bytes in",
                                   record_per_step(r, over_the_others(r, traffic_of, k)),
                                   .within_spread = 0};
    for (int p = PHASE_INPUT; kind == EXCESS_TIME && p < PHASE_COUNT; p++)
        if (p != PHASE_EVALUATE && p != PHASE_PROOF && !phase_is_of_host(p))
            out[n++] = time_excess(r, p);
    for (int i = 0; i < n; i++)
        if (out[i].amount > 0) out[kept++] = out[i];
    qsort(out, (size_t)kept, sizeof *out, larger_first);
    return kept;
}

static double load_of(const struct device_record *d, enum load load) {
    switch (load) {
    case LOAD_MEMORY: return (double)d->memory.total_peak;
    case LOAD_BYTES_IN: return (double)d->bytes_in;
    case LOAD_BYTES_OUT: return (double)d->bytes_out;
    default: return (double)d->busy_ns;
    }
}

struct imbalance imbalance_of(const struct run_record *r, enum load load) {
    static const char *const names[LOAD_COUNT] = {"memory at peak", "bytes in", "bytes out",
                                                  "busy time"};
    struct imbalance i = {.name = names[load], .max_to_mean = 1, .min_to_max = 1};
    double sum = 0, least = load_of(&r->device[0], load);
    for (int d = 0; d < r->devices; d++) {
        double one = load_of(&r->device[d], load);
        sum += one;
        if (one < least) least = one;
        if (one > load_of(&r->device[i.most], load)) i.most = d;
    }
    double most = load_of(&r->device[i.most], load);
    if (most > 0) {
        i.max_to_mean = most / (sum / r->devices);
        i.min_to_max = least / most;
    }
    return i;
}
