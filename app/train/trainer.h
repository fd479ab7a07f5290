/* The trainer: one loop for all strategies. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "base/error.h"
#include "comm/comm.h"
#include "trace/record.h"
#include "train/run.h"

/* Trains as config says. single and dp run in one process, where comm is NULL or has one rank; in
 * ddp all ranks call it. Rank 0 prints, saves, writes the files and fills in the record; other
 * ranks leave it almost empty. An output that cannot be written at the end is added to *unwritten
 * and does not fail the run, whose record is complete. *in_use becomes 1 if, after a failure, a GPU
 * or a thread still runs and may use open objects, including comm: then close nothing and end the
 * process. */
int trainer_run(const struct run_config *config, struct comm *comm, struct run_record *record,
                struct failures *unwritten, int *in_use);

#endif
