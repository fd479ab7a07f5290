/* A run whose ranks mpirun or srun has started on several machines: each process of the command is
 * one rank. Rank 0 prints, writes the files and continues after the run; the others end with it. */
#ifndef TRAIN_SPREAD_H
#define TRAIN_SPREAD_H

#include "base/error.h"
#include "comm/comm.h"
#include "data/dataset.h"
#include "trace/record.h"
#include "train/run.h"

/* Before the options are read: config->spread, and as many devices as ranks. */
int spread_begin(struct run_config *config);

/* Behind the options and before any file is opened: ERR_USAGE says what does not go over several
 * machines. Ranks but 0 say nothing. */
enum spread_command { SPREAD_TRAIN, SPREAD_PROFILE, SPREAD_COMPARE };
int spread_check(struct run_config *config, enum spread_command command);

/* This process's part of the run. Only rank 0 returns, with the spans of all. *signal: the one that
 * stopped the run after a step, which succeeded; 0: none. */
int spread_run(const struct run_config *config, struct run_record *record,
               struct failures *unwritten, int *signal);

/* Collective: each machine has read its own files. ERR_USAGE: the files of one machine differ. */
int spread_same_data(struct comm *comm, const struct dataset *set);

#endif
