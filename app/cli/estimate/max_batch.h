/* --find-max-batch of duet profile and duet estimate: the search for each way, and its table. */
#ifndef CLI_ESTIMATE_MAX_BATCH_H
#define CLI_ESTIMATE_MAX_BATCH_H

#include "base/files/atomic_file.h"
#include "train/job.h"
#include "train/run.h"

/* Finds the largest batch of each way that config.device_memory holds, prints the table, and writes
 * it to `json` where that is open. measure 0: by estimates, for all four ways. 1: for the ways of
 * profile by runs, which begin at the estimate. command: of the JSON. ERR_USAGE: --device-memory is
 * missing. ERR_MEMORY: of some way not even the smallest batch fits. */
int max_batch_command(const char *command, const struct run_config *config, int measure,
                      struct atomic_file *json, struct job_result *result);

#endif
