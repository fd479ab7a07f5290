/* A run whose ranks mpirun or srun started on several machines: each process of the command is one
 * rank. Rank 0 prints, writes the files and continues after the run; the others end with it. */
#ifndef TRAIN_SPREAD_H
#define TRAIN_SPREAD_H

#include "base/error.h"
#include "trace/record.h"
#include "train/run.h"

/* Called before the options are read: sets config->spread and the number of devices. */
int spread_begin(struct run_config *config);

/* Called after the options are read and before files are opened. ERR_USAGE names what several
 * machines do not support. Only rank 0 prints it. */
enum spread_command { SPREAD_TRAIN, SPREAD_PROFILE, SPREAD_COMPARE };
int spread_check(struct run_config *config, enum spread_command command);

/* Runs this process's part. Only rank 0 returns, with the spans of all. *signal becomes the signal
 * that stopped the run after a step, or 0; the run still succeeds. */
int spread_run(const struct run_config *config, struct run_record *record,
               struct failures *unwritten, int *signal);

#endif
