/* The kinds of data sets that data/dataset_list.c opens. Only data/ includes this file. */
#ifndef DATA_DATASET_KINDS_H
#define DATA_DATASET_KINDS_H

#include "data/dataset.h"

/* dataset_make for "fashion-mnist" and "mnist", with a zeroed *set. The second function reads the
 * shape of the training images from their file's header; zeros if it cannot. */
int dataset_files(struct dataset *set, const struct dataset_config *config, int train);
struct sample_shape dataset_files_shape(const struct dataset_config *config);

/* The same for "synthetic" and "random", and dataset_check. The last one returns a set with the
 * sizes of such a part, but without arrays. */
int dataset_made(struct dataset *set, const struct dataset_config *config, int train);
int dataset_made_check(const struct dataset_config *config);
struct dataset dataset_made_sizes(const struct dataset_config *config, int train);

/* Opens the training part or the test part of the file c->name; dataset_tensors.c describes it.
 * c->shape applies if a sample in the file has as many numbers. ERR_FAILED: the file cannot be
 * read, or a tensor is wrong. ERR_USAGE: the data do not fit --loss. */
int dataset_tensors(struct dataset *set, const struct dataset_config *c, int train);
/* Both read the file's header. They return the shape of a sample, zeros if the file cannot be read,
 * and whether the file has a test part. */
struct sample_shape dataset_tensors_shape(const struct dataset_config *c);
int dataset_tensors_test(const struct dataset_config *c);

/* Opens "own", the data of a program. *set gets the arrays of `from`, which is in struct
 * dataset_config, or new arrays that the function of `from` fills. ERR_USAGE: a label from that
 * function is out of range. ERR_FAILED: the function failed. ERR_MEMORY. */
int dataset_own(struct dataset *set, const struct dataset *from);

#endif
