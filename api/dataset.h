/* A program's own data inside the library: for api/ and for the command. */
#ifndef API_DATASET_H
#define API_DATASET_H

#include "data/dataset.h"
#include "duet.h"

/* Makes *set a data set that refers to the program's arrays, or to its function. ERR_USAGE says
 * what is wrong. Nothing is to be freed. */
int api_dataset_of(const struct duet_data *data, struct dataset *set);

#endif
