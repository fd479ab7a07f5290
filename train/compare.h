/* Compare: the same training as single, DP and DDP, each a job of its own, one after another;
 * then the verdict. */
#ifndef TRAIN_COMPARE_H
#define TRAIN_COMPARE_H

#include "train/job.h"
#include "train/verdict.h"

struct comparison {
    struct run_config config;           /* with V in force */
    struct run_record run[MODE_COUNT];  /* by mode */
    struct verdict verdict[MODE_COUNT]; /* dp and ddp against single; [MODE_SINGLE] unused */
};

/* Runs all of it; progress is printed by the jobs. c zeroed before; comparison_free afterwards,
 * also after a failure. ERR_CHECK: a verdict is DIFFERENT or BEYOND; the comparison is complete
 * then and the caller prints it. */
int compare_run(struct comparison *c, const struct run_config *config, struct job_result *result);
void comparison_free(struct comparison *c);

#endif
