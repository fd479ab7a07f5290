/* The data sets that are in files. Inside data/. */
#ifndef DATA_DATASET_FILES_H
#define DATA_DATASET_FILES_H

#include "data/dataset.h"

/* As dataset_make, for "fashion-mnist" and "mnist". *set is zeroed. */
int dataset_files(struct dataset *set, const struct dataset_config *config, int train);

/* The shape of the training pictures, by the head of their file; zeros where it cannot be read. */
struct sample_shape dataset_files_shape(const struct dataset_config *config);

#endif
