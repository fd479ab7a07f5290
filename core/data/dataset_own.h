/* The data set "own", which a program brings along. Inside data/. */
#ifndef DATA_DATASET_OWN_H
#define DATA_DATASET_OWN_H

#include "data/dataset.h"

/* *set gets arrays of its own with all samples of `from`, one of struct dataset_config: bytes with
 * labels where `from` has bytes and its labels are below 256; else numbers, of bytes as byte / 255.
 * ERR_USAGE: a label is below 0, or not below the number of classes that `from` gives. ERR_FAILED:
 * the set's own function has failed. ERR_MEMORY. */
int dataset_own(struct dataset *set, const struct dataset *from);

#endif
