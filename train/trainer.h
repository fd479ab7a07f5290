/* The trainer: one loop for all strategies. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "comm/comm.h"
#include "trace/record.h"
#include "train/run.h"

/* Trains as config says. single and dp: one process, comm NULL or of one rank. ddp: this rank's
 * part; all ranks call it. initial: parameters to start from (initial_count floats in
 * registration order), NULL: from config's file or seed. Rank 0 prints, saves, writes files and
 * fills in the record; other ranks leave it almost empty. *in_use 1, after a failure: a GPU or a
 * thread did not come to its end and may go on using what was open, comm too: close nothing, end
 * the process. */
int trainer_run(const struct run_config *config, struct comm *comm, const float *initial,
                size_t initial_count, struct run_record *record, int *in_use);

#endif
