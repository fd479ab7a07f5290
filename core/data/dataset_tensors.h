/* The data set of a user in a file of tensors. Inside data/. */
#ifndef DATA_DATASET_TENSORS_H
#define DATA_DATASET_TENSORS_H

#include "data/dataset.h"

/* Opens the training part or the test part of the file c->name; dataset_tensors.c says what it
 * holds. c->shape: taken where the file's samples have as many numbers. ERR_FAILED: it cannot be
 * read, or a tensor of it is not as it must be; ERR_USAGE: it does not go with --loss. */
int dataset_tensors(struct dataset *set, const struct dataset_config *c, int train);

/* From the head of the file: the shape of its samples (zeros: it cannot be read), and whether it
 * has a test part. */
struct sample_shape dataset_tensors_shape(const struct dataset_config *c);
int dataset_tensors_test(const struct dataset_config *c);

#endif
