/* What the dashboard remembers of each run that it has seen, and the shares of time that follow
 * from it: the inside of report/live/live_view.h. */
#ifndef REPORT_LIVE_LIVE_SHARES_H
#define REPORT_LIVE_LIVE_SHARES_H

#include "trace/live_page.h"

enum { SEEN_BINS = 512 };

struct seen_run {
    int begun;
    struct live_facts facts;
    struct live_progress progress;
    /* The curve: bin b has the sum and the number of the finite losses of its steps. Bins divide
     * the steps of the run evenly; there are at most as many as steps. */
    int bins;
    uint64_t losses; /* read so far */
    double sum[SEEN_BINS];
    int count[SEEN_BINS];
    struct {
        int step;
        double accuracy;
    } epoch[LIVE_EPOCHS];
    /* The last reading of each device; the one that shares count from, and one between them. */
    struct live_device device[MAX_DEVICES], since[MAX_DEVICES], between[MAX_DEVICES];
};

struct live_view {
    struct seen_run run[LIVE_RUNS];
    int current; /* the run that goes on, or was the last; -1: none yet */
};

/* What time is spent on: the phases by their number, and these. */
enum { SHARE_COMM = PHASE_COUNT, SHARE_WAIT, SHARE_NO_CORE, SHARE_IDLE, SHARES, SHARE_BUSY };
const char *share_name(int share); /* static storage */

/* The share of the training time that device d spent on it, from 0 to about 1. */
double seen_share(const struct seen_run *run, int d, int share);
double seen_share_of_others(const struct seen_run *run, int share); /* mean of devices 1, 2, ... */

/* Fills list[] with at most `most` kinds of time, those with the largest shares, in the order of
 * their numbers. Returns how many there are; what takes less than half a percent is left out. */
int seen_largest_shares(const struct seen_run *run, int *list, int most);

/* The accuracies that are known and their places between the first step and the last, 0 to 1.
 * Returns their number. */
int seen_accuracies(const struct seen_run *run, double at[LIVE_EPOCHS],
                    double accuracy[LIVE_EPOCHS]);

#endif
