/* The verdict: did two modes train the very same model? By the hashes of every step, not by a
 * run's end. */
#ifndef TRAIN_VERDICT_H
#define TRAIN_VERDICT_H

#include "trace/record.h"

enum verdict_kind {
    VERDICT_EQUAL,     /* equal to the bit: every value and gradient, every step, every device */
    VERDICT_DIFFERENT, /* a hash differs where equal bits are promised */
    VERDICT_WITHIN,    /* lock step: gradients within the bound */
    VERDICT_BEYOND,    /* lock step: a gradient beyond the bound */
};

struct verdict {
    enum verdict_kind kind;
    int steps; /* compared; lock step: points checked */
    /* lock step: largest relative L2 distance of a gradient, and what is allowed */
    double worst, bound;
    /* DIFFERENT: the first difference; BEYOND: the worst. */
    int step, parameter, device;
    /* 1: the reduced gradient differs, 0: the value before the step; of DIFFERENT */
    int in_gradient;
    /* DIFFERENT: from device 0 of the same run; the other mode's bits are not demanded */
    int among_replicas;
    /* Where bits are not promised: since when the two runs are apart, -1: never. */
    int bits_apart_at;     /* first step whose hashes differ from the other mode's */
    int loss_apart_at;     /* first step whose losses differ by more than 1 percent */
    double final_loss_gap; /* relative, at the last step */
    char why_not[160];     /* why bits are not promised; empty where they are */
};

/* 1 if the rules of docs/design.md section 2 promise equal bits between the two runs; else why
 * not. */
int verdict_promised(const struct run_record *a, const struct run_record *b, char *why_not,
                     size_t bytes);

/* Looks for the first difference between run `b` and device 0 of run `a` (the single run): step,
 * parameter, device. 1 if there is one, written to *v (step, parameter, device, in_gradient).
 * Both must be hashed. */
int verdict_first_difference(const struct run_record *a, const struct run_record *b,
                             struct verdict *v);

/* The same within one run: the replicas of all devices must agree with device 0's at every step
 * and at the end, whatever the algorithm. */
int verdict_replicas_differ(const struct run_record *run, struct verdict *v);

/* Judges b against a by hashes; where bits are not promised only bits_apart_at, loss_apart_at and
 * final_loss_gap are set, and lockstep.h decides. Returns 1 if decided. */
int verdict_judge(const struct run_record *a, const struct run_record *b, struct verdict *v);

/* One or two lines for people, each ended by a newline. */
void verdict_print(FILE *file, const struct verdict *v, const struct run_record *a,
                   const struct run_record *b);
void verdict_json(struct json_writer *w, const char *key, const struct verdict *v,
                  const struct run_record *b);

#endif
