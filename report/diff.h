/* What changed between two runs, A and B, from their records: settings, times, memory, bytes and
 * losses. The table of `duet diff` and its JSON are both made of these.
 *
 * Memory and bytes are exact counts, so every difference is one. Times vary from step to step: a
 * difference of two medians counts only where it is beyond the spreads of both runs together (the
 * root of the sum of their squares; trace/step_times.h says what a spread is). */
#ifndef REPORT_DIFF_H
#define REPORT_DIFF_H

#include "report/results.h"

struct diff_pair {
    const struct results_run *a, *b;
};

/* The pairs of two files. Runs of the same name belong together; two files of one run each are one
 * pair, whatever the names are. Returns their number; further ones are left out. */
enum { DIFF_PAIRS = 256 };
int diff_pairs(const struct results *a, const struct results *b,
               struct diff_pair pairs[DIFF_PAIRS]);

/* ---- what was asked ---- */

enum { DIFF_NAME = 48, DIFF_VALUE = 64, DIFF_MOST = 96 };
struct diff_setting {
    char name[DIFF_NAME];              /* the field of the run, or a flag: "lr", "--workers" */
    char a[DIFF_VALUE], b[DIFF_VALUE]; /* "-": there is none */
};
/* The fields of both runs that are not results and differ, and flags that differ and have no such
 * field. Returns how many there are, at most DIFF_MOST. */
int diff_settings(const struct diff_pair *pair, const struct results *a, const struct results *b,
                  struct diff_setting list[DIFF_MOST]);

/* ---- times ---- */

/* Of one device, or the mean of several, in ns. */
struct diff_time {
    double p50[2], p90[2], spread[2]; /* of A and B */
    int known;                        /* 0: a mean over the steps in p50, and no spread */
    int within_spread;                /* 0 where it is not known */
};
/* What a time is of: a phase; the whole step, from its start to the start of the next; or, as means
 * alone, the communication lane and what the compute lane waited. */
enum { DIFF_STEP = PHASE_COUNT, DIFF_COMM, DIFF_WAIT, DIFF_TIMES };
const char *diff_time_name(int what); /* "forward", "whole step", "allreduce, mean" */

/* first, last[2]: the devices, from `first` on, the last one in A and in B. Both runs are timed. */
struct diff_time diff_time(const struct run_record *a, const struct run_record *b, int what,
                           int first, const int last[2]);

/* Samples a second of training. The spread is that of the steps of device 0 where both runs are
 * timed, else that of the epochs where both have at least three; else it is not known. */
struct diff_speed {
    double rate[2], spread[2];
    int known, within_spread;
};
struct diff_speed diff_speed(const struct run_record *a, const struct run_record *b);

/* ---- losses ---- */

struct diff_losses {
    int compared; /* steps that both runs have */
    int first;    /* the first of them whose losses differ in any digit; -1: none */
    double a, b;  /* there */
    double worst; /* the largest relative difference of any */
};
struct diff_losses diff_losses(const struct run_record *a, const struct run_record *b);

#endif
