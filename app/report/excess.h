/* The extra load on device 0, and the balance of the devices. */
#ifndef REPORT_EXCESS_H
#define REPORT_EXCESS_H

#include "trace/record.h"

/* What device 0 has more of than the mean of the others. */
enum excess_kind { EXCESS_MEMORY, EXCESS_TRAFFIC, EXCESS_TIME };
struct excess {
    enum excess_kind kind;
    int key;          /* enum mem_cause; 0 in, 1 out; enum phase */
    const char *name; /* static storage */
    /* Positive. Memory: bytes, each device at its own peak; traffic: bytes per step; time: ns per
     * step. */
    double amount;
    double spread; /* time: of this difference over the steps (step_times.h), in ns; else 0 */
    /* 1: time that is no more than the spread of the steps, so that it need not be device 0's. Mean
     * and median must both be beyond it: one step that was disturbed moves the mean alone. */
    int within_spread;
};
enum { EXCESS_MAX = MEM_CAUSE_COUNT + 2 + PHASE_COUNT };
/* Writes the excess of one kind to out[EXCESS_MAX]: first what is beyond the spread, the largest
 * first, then what is within it. Returns the number of entries; 0 for a run on one device. */
int profile_excess(const struct run_record *run, enum excess_kind kind, struct excess *out);

/* How evenly the devices share something. */
enum load { LOAD_MEMORY, LOAD_BYTES_IN, LOAD_BYTES_OUT, LOAD_BUSY, LOAD_COUNT };
struct imbalance {
    const char *name;   /* static storage */
    double max_to_mean; /* 1: evenly, and where nobody has any */
    double min_to_max;  /* 1: evenly */
    int most;           /* the device that has most */
};
struct imbalance imbalance_of(const struct run_record *run, enum load load);
/* nn.DataParallel warns of "an imbalance between your GPUs" where one has less than 75 % of the
 * memory or the cores of another. The same bound is used for what the devices were made to bear. */
extern const double IMBALANCE_BOUND;

#endif
