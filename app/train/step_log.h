/* Step logs move losses, hits and hashes from rows in device memory to the run record. */
#ifndef TRAIN_STEP_LOG_H
#define TRAIN_STEP_LOG_H

#include "train/session.h"

/* A step whose logs have not been read yet. */
struct logged_step {
    int passes;     /* the number of its rows, one per pass: at most config->passes */
    int samples;    /* samples in the global batches of all passes */
    double divisor; /* number of terms in their losses: the samples that are not ignored */
};

/* Reads the rows of all devices' logs for the record's next `count` steps, and appends their losses
 * and hashes to the record. Step i has the rows from i * config->passes on. The devices must be
 * idle. Collective: all ranks call it after the same step. */
int step_log_read(struct session *s, const struct logged_step *steps, int count);

/* Adds the hits and the losses in the first `rows` rows of all devices to *hits and *loss. Each row
 * is a batch, and its loss is the sum over the samples. Collective. */
int step_log_tests(struct session *s, int rows, int64_t *hits, double *loss);

/* Hashes the current values into record->final_hashes. Collective. */
int step_log_final(struct session *s);

#endif
