/* Step logs: losses, hits and hashes, from rows in device memory to the run record. */
#ifndef TRAIN_STEP_LOG_H
#define TRAIN_STEP_LOG_H

#include "train/session.h"

/* Reads the first `rows` rows of all devices' logs and appends their losses and hashes to the
 * record. They belong to its next `rows` steps, whose global batches had global_n[row] samples.
 * The devices must be idle. Collective: all ranks call it after the same step. */
int step_log_read(struct session *s, int rows, const int *global_n);

/* Adds the hits in the first `rows` rows of all devices to *hits. Collective. */
int step_log_hits(struct session *s, int rows, int64_t *hits);

/* Hashes the values as they are now into record->final_hashes. Collective. */
int step_log_final(struct session *s);

#endif
