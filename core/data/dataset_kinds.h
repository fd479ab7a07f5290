/* The kinds of data sets that data/dataset.c opens. Inside data/. */
#ifndef DATA_DATASET_KINDS_H
#define DATA_DATASET_KINDS_H

#include "data/dataset.h"

/* As dataset_make, for "fashion-mnist" and "mnist". *set is zeroed. And the shape of the training
 * images, by the head of their file; zeros where it cannot be read. */
int dataset_files(struct dataset *set, const struct dataset_config *config, int train);
struct sample_shape dataset_files_shape(const struct dataset_config *config);

/* Opens the training part or the test part of the file c->name; dataset_tensors.c describes it.
 * c->shape: used if the file's samples have as many numbers. ERR_FAILED: it cannot be read, or one
 * of its tensors is wrong; ERR_USAGE: it does not go with --loss. */
int dataset_tensors(struct dataset *set, const struct dataset_config *c, int train);
/* From the head of the file: the shape of its samples (zeros: it cannot be read), and whether it
 * has a test part. */
struct sample_shape dataset_tensors_shape(const struct dataset_config *c);
int dataset_tensors_test(const struct dataset_config *c);

/* "own", which a program brings along: *set gets the arrays of `from`, one of struct
 * dataset_config, or new arrays filled by the function of `from`. ERR_USAGE: a label of that is out
 * of range. ERR_FAILED: the function has failed. ERR_MEMORY. */
int dataset_own(struct dataset *set, const struct dataset *from);

#endif
