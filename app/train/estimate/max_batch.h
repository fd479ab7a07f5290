/* The largest global batch that fits the memory of the devices: a search over estimates of a few
 * steps. */
#ifndef TRAIN_ESTIMATE_MAX_BATCH_H
#define TRAIN_ESTIMATE_MAX_BATCH_H

#include "train/run.h"

/* Steps after which a run holds no more than before: a second batch is on the device from the first
 * step on, the step arena is one block from the second on, and then the buckets of DDP are rebuilt.
 * A search takes that many, or --steps if fewer. */
enum { MAX_BATCH_STEPS = 4 };

struct max_batch {
    int unit;    /* batches are multiples of it: every virtual device has as many samples */
    int batch;   /* the largest that fits, in samples; 0: not even one unit does */
    int next;    /* one unit more, which was tried and does not fit; 0: there are no more samples */
    int samples; /* of the data set: no batch is larger */
};

/* Searches for config's mode, which is dry; its batch size is ignored. guess: a batch to begin
 * with, if one is expected to be right (then it takes two estimates); 0: none. Both `batch` and
 * `next` have been tried when this returns OK. The search assumes that a larger batch holds more.
 * But a run with one batch per epoch has no second batch on the way and holds less, so there may be
 * another limit besides `batch`. */
int max_batch_find(const struct run_config *config, int guess, struct max_batch *out);

#endif
