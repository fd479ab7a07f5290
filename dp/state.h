/* The inside of a DataParallel run, shared by dp.c, which has the step, and setup.c, which makes
 * and frees all that it works on. */
#ifndef DP_STATE_H
#define DP_STATE_H

#include "dp/dp.h"
#include "dp/worker.h"
#include "scatter_gather/scatter_gather.h"

struct dp {
    int count, segments; /* W and S */
    int own_loss;        /* 1: each device computes its own loss */
    struct replica replica[MAX_DEVICES];
    struct device_group group;
    struct workers *workers;
    /* Ranges of the parameter arena, at most 10 MiB each, that replicate and reduce move at once.
     * */
    struct param_range *groups;
    int group_count;
    struct reduce_plan reduce;

    /* Loss on device 0. */
    struct tape *loss_tape;
    struct tensor gathered; /* device 0: (max_samples, classes) */
    float
        *grad_share[MAX_DEVICES]; /* device r > 0: its rows of dL/dy, (its most samples, classes) */

    /* The step being worked on. Thread 0 writes it before the threads start; only output[r] is
     * written by thread r. */
    const struct step_block *step;
    int training;
    const struct segments *all; /* those of the whole batch */
    struct segments share[MAX_DEVICES];
    int sizes[MAX_DEVICES];          /* samples of each share */
    struct var *output[MAX_DEVICES]; /* on the tape of device r; not set by a replayed step */
    struct tensor grad_output[MAX_DEVICES]; /* dL/dy, on device r */

    struct span_log waits; /* thread 0's waits for the other threads */
};

#endif
