/* Finds the largest global batch that fits the memory of the devices, by searching over estimates
 * of a few steps. */
#ifndef TRAIN_ESTIMATE_MAX_BATCH_H
#define TRAIN_ESTIMATE_MAX_BATCH_H

#include "train/run.h"

/* Steps after which memory no longer grows. A second batch is on the device from the first step on,
 * the step arena is one block from the second step on, and then DDP's buckets are rebuilt. A search
 * estimates this many steps, or --steps if fewer. */
enum { MAX_BATCH_STEPS = 4 };

struct max_batch {
    int unit;    /* batches are multiples of it, so that virtual devices have equal shares */
    int batch;   /* the largest that fits, in samples; 0: not even one unit fits */
    int next;    /* one unit more, which does not fit; 0: there are no more samples */
    int samples; /* samples in the data set, which no batch exceeds */
};

/* Searches in config's mode, which is dry; its batch size is ignored. guess is a batch to try
 * first, or 0; if it is right, the search takes two estimates. Both `batch` and `next` have been
 * tried when this returns OK. The search assumes that a larger batch holds more. But a run with one
 * batch per epoch copies no second batch and holds less, so another limit besides `batch` may
 * exist. */
int max_batch_find(const struct run_config *config, int guess, struct max_batch *out);

#endif
