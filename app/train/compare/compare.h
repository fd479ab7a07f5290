/* Compares the modes: it runs the same training as single, DP, DDP and FSDP, or as some of them,
 * one job after another, and then reaches the verdict. */
#ifndef TRAIN_COMPARE_COMPARE_H
#define TRAIN_COMPARE_COMPARE_H

#include "base/error.h"
#include "train/compare/verdict.h"
#include "train/estimate/need.h"
#include "train/job.h"

struct comparison {
    /* as passed to compare_run, with the virtual devices and the kind of device that were used */
    struct run_config config;
    struct run_record run[MODE_COUNT]; /* by mode; zeroed for a mode that was left out */
    /* The mode that the others are compared with: single, or the first mode that fits its
     * devices. */
    enum run_mode reference;
    struct verdict verdict[MODE_COUNT]; /* compared with the reference, which itself has none */
    int judged[MODE_COUNT];             /* 1: the verdict is set */
    char full[MODE_COUNT][ERROR_BYTES]; /* the error of a mode that did not fit, or "" */
    struct need need[MODE_COUNT];       /* the memory that such a mode would need */
};

/* Runs the comparison; the jobs print their progress. Zero *c first, and call comparison_free even
 * after a failure. ERR_CHECK: a verdict is DIFFERENT or BEYOND, or a loss is not finite; the
 * comparison is then complete and can be printed. ERR_MEMORY: a mode that ran out of memory is in
 * `full`, with no record and no verdict. The others are compared, DDP with DP if single did not
 * fit. If no mode fits, nothing can be printed.
 *
 * After another failure c->run has the completed runs, with the verdicts that their hashes decide.
 * If a file of results was requested (run_writes_results), SIGINT and SIGTERM stop the current run
 * after a step, and c->run also has that run, up to that step. */
int compare_run(struct comparison *c, const struct run_config *config, struct job_result *result);

/* Why a comparison with this configuration leaves the mode out; NULL: it does not. */
const char *compare_leaves_out(const struct run_config *config, enum run_mode mode);

void comparison_free(struct comparison *c);

#endif
