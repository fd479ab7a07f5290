/* The data set "own", which a program brings along. Inside data/. */
#ifndef DATA_DATASET_OWN_H
#define DATA_DATASET_OWN_H

#include "data/dataset.h"

/* *set gets the arrays of `from`, one of struct dataset_config, or arrays of its own with what the
 * function of `from` makes. ERR_USAGE: a label of that is below 0, or not below the number of
 * classes that `from` gives. ERR_FAILED: the function has failed. ERR_MEMORY. */
int dataset_own(struct dataset *set, const struct dataset *from);

#endif
