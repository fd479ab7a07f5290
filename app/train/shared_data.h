/* The data sets of a command are read once and shared by all ranks of all its jobs. */
#ifndef TRAIN_SHARED_DATA_H
#define TRAIN_SHARED_DATA_H

#include "comm/comm.h"
#include "data/dataset.h"
#include "train/run.h"

/* Reads the training set and, if run_evaluates, the test set into memory files, and sets fd and
 * seconds in config->data. Existing files stay. After a failure none are open. */
int shared_data_open(struct run_config *config);
/* Closes the files; running jobs keep their mappings. A config without files is fine. */
void shared_data_close(struct run_config *config);

/* Opens the training part (train 1) or the test part as config says: from its memory file, or
 * without one from the disk. */
int run_open_set(const struct run_config *config, struct dataset *set, int train);

/* Collective: compares the files that each machine has read. ERR_USAGE: some files differ. */
int shared_data_agree(struct comm *comm, const struct dataset *set);

#endif
