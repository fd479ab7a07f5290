/* The verdict says whether two modes trained exactly the same model. It compares the hashes of
 * every step, not only the final weights, and then every loss and the accuracy. */
#ifndef TRAIN_COMPARE_VERDICT_H
#define TRAIN_COMPARE_VERDICT_H

#include "trace/record.h"

enum verdict_kind {
    VERDICT_EQUAL,     /* all values and gradients are equal, at every step, on every device */
    VERDICT_DIFFERENT, /* a hash, a loss or an accuracy differs although equal bits are promised */
    VERDICT_WITHIN,    /* lock step: all gradients are within the bound */
    VERDICT_BEYOND,    /* lock step: a gradient is beyond the bound */
};

struct verdict {
    enum verdict_kind kind;
    int steps; /* steps compared; in lock step, points compared */
    /* WITHIN and BEYOND: the largest relative L2 distance of a gradient, and its bound */
    double worst, bound;
    /* DIFFERENT: where the first difference is. BEYOND: where the worst gradient is. Buffers are
     * numbered after the parameters. */
    int step, parameter, device;
    /* DIFFERENT: 1: the reduced gradient differs, 0: the value before the step differs */
    int in_gradient;
    /* DIFFERENT: the hashes agree, but "loss" of the step, or "test accuracy" or "valid_loss" after
     * epoch `step`, differs: values[0] in the other mode, values[1] here. NULL: a hash differs. */
    const char *result;
    double values[2];
    /* DIFFERENT: 1: a replica differs from device 0 of its own run; 0: from the other mode */
    int among_replicas;
    /* the first step at which the loss of either run is not finite; -1: none */
    int not_finite_at;
    char why_not[160]; /* why equal bits are not promised; empty if they are */
    /* If equal bits are not promised: the steps at which the runs diverged; -1: never. */
    int bits_apart_at;     /* the first step whose hashes differ from the other mode's */
    int loss_apart_at;     /* the first step whose losses differ by more than 1 % */
    double final_loss_gap; /* relative difference of the losses at the last step */
};

/* Judges b against a, the reference run (single, if it fits), using their hashes. Returns 1 if that
 * decides. It returns 0 if equal bits are not promised and b's replicas agree: then lockstep.h
 * decides. */
int verdict_judge(const struct run_record *a, const struct run_record *b, struct verdict *v);

/* Describes a difference: "step 3: the gradient of W1 on device 2". Only for VERDICT_DIFFERENT and
 * BEYOND. Returns text. */
enum { VERDICT_WORDS = 256 };
char *verdict_difference(const struct verdict *v, const struct run_record *run,
                         char text[VERDICT_WORDS]);

/* Prints the verdict in one to four sentences, wrapped at `width`. */
void verdict_print(FILE *file, int width, const struct verdict *v, const struct run_record *a,
                   const struct run_record *b);
/* Writes the verdict as an object under `key`. */
void verdict_json(struct json_writer *w, const char *key, const struct verdict *v,
                  const struct run_record *b);

#endif
