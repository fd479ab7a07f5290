/* Compare: the same training as single, DP, DDP and FSDP, or as some of them, one after another,
 * each as a job; then the verdict. */
#ifndef TRAIN_COMPARE_COMPARE_H
#define TRAIN_COMPARE_COMPARE_H

#include "base/error.h"
#include "train/compare/verdict.h"
#include "train/estimate/need.h"
#include "train/job.h"

struct comparison {
    /* as given to compare_run, with the virtual devices and the kind of device that were used */
    struct run_config config;
    struct run_record run[MODE_COUNT]; /* by mode; zeroed for a mode that was left out */
    /* What the others are compared with: single, or the first mode that fits its devices. */
    enum run_mode reference;
    struct verdict verdict[MODE_COUNT]; /* each mode against the reference, whose own is unused */
    int judged[MODE_COUNT];             /* 1: the verdict is there */
    char full[MODE_COUNT]
             [ERROR_BYTES];       /* the error of a mode that did not fit its devices; or "" */
    struct need need[MODE_COUNT]; /* the memory that such a mode would need */
};

/* Runs all of it; the jobs print their progress. Zero *c before, and comparison_free it afterwards,
 * also after a failure. ERR_CHECK: a verdict is DIFFERENT or BEYOND, or a loss is not finite; the
 * comparison is complete then, for the caller to print. ERR_MEMORY: a mode that ran out of memory
 * is in `full`, with no record and no verdict; the others are compared, DDP with DP if single did
 * not fit. If no mode fits, there is nothing to print.
 *
 * After another failure c->run has the completed runs, judged as far as their hashes decide. If a
 * file of results was requested (run_writes_results), SIGINT and SIGTERM stop the current run after
 * a step, and c->run has that run, too, up to that step. */
int compare_run(struct comparison *c, const struct run_config *config, struct job_result *result);

/* Why the mode is left out of a comparison with this configuration; NULL: it is not. */
const char *compare_leaves_out(const struct run_config *config, enum run_mode mode);

void comparison_free(struct comparison *c);

#endif
