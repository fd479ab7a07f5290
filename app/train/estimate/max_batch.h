/* The largest global batch that fits the memory of the devices: a search over estimates of a few
 * steps. */
#ifndef TRAIN_ESTIMATE_MAX_BATCH_H
#define TRAIN_ESTIMATE_MAX_BATCH_H

#include "train/run.h"

/* Steps after which a run holds no more than before: a second batch is on the device from the
 * first step on, the step arena is one block from the second on, and then the buckets of DDP are
 * rebuilt. A search takes so many, or --steps where those are fewer. */
enum { MAX_BATCH_STEPS = 4 };

struct max_batch {
    int unit;    /* batches are multiples of it: every virtual device has as many samples */
    int batch;   /* the largest that fits, in samples; 0: not even one unit does */
    int next;    /* one unit more, which was tried and does not fit; 0: there are no more samples */
    int samples; /* of the data set: no batch is larger */
};

/* Searches for a way of config's mode, which is dry; its batch size is of no account. guess: a
 * batch to begin with, where one is expected to be right (then it takes two estimates); 0: none.
 * Both `batch` and `next` have been tried when this returns OK. A larger batch is taken to hold
 * more; a run with one batch an epoch has no second batch on the way and holds less than that,
 * which can make `batch` not the only such place. */
int max_batch_find(const struct run_config *config, int guess, struct max_batch *out);

#endif
