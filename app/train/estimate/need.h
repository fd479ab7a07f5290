/* Computes the memory that a run would have needed if it did not fit, with an estimate on devices
 * that never run out of memory. */
#ifndef TRAIN_ESTIMATE_NEED_H
#define TRAIN_ESTIMATE_NEED_H

#include <stdint.h>

#include "train/run.h"

/* Makes *estimate a configuration with which runs of `config` can be estimated (estimate.h); it
 * replaces a user's image files with a stub of the same sizes. *can becomes 0 if such runs cannot
 * be estimated. ERR_FAILED: the set cannot be opened. */
int need_outline(const struct run_config *config, struct run_config *estimate, int *can);

struct need {
    uint64_t bytes; /* the largest peak of a device; 0: unknown */
    int device;     /* the device with this peak; -1: all devices */
};

/* Never fails: after an error bytes is 0, and the error text is overwritten. */
struct need need_of(const struct run_config *config);

/* ": it needs at least 57.1 MiB on device 0 (computed from its shapes)", or "on each device"; "" if
 * bytes is 0. */
enum { NEED_WORDS = 96 };
char *need_words(const struct need *need, char text[NEED_WORDS]);

#endif
