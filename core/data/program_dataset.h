/* A data set of duet/train.h: a program's own data, for the loader and for the command. */
#ifndef DATA_PROGRAM_DATASET_H
#define DATA_PROGRAM_DATASET_H

#include "data/dataset.h"
#include "duet/train.h"

struct duet_dataset {
    struct dataset set;
    int rank; /* dimensions of a sample, as the program specified them */
};

/* Makes *set a data set that refers to the program's arrays, or to its function. ERR_USAGE says
 * what is wrong. The caller has nothing to free. */
int dataset_of_program(const struct duet_data *data, struct dataset *set);

#endif
