/* The data sets of a command: read once, shared by all ranks of all its jobs. */
#ifndef TRAIN_SHARED_DATA_H
#define TRAIN_SHARED_DATA_H

#include "data/dataset.h"
#include "train/run.h"

/* Reads the training set and, where run_evaluates, the test set into memory files, and sets
 * config->data_fd and data_seconds. Existing files stay. After a failure there are none. */
int shared_data_open(struct run_config *config);
/* Closes the files; jobs that run keep what they have mapped. Takes a config without files. */
void shared_data_close(struct run_config *config);

/* Opens the training part (train 1) or the test part as config says: from its memory file, or if
 * there is none from the disk. */
int run_open_set(const struct run_config *config, struct dataset *set, int train);

#endif
