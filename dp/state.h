/* The inside of a DataParallel run, shared by dp.c (a step) and setup.c (its beginning and end). */
#ifndef DP_STATE_H
#define DP_STATE_H

#include "dp/dp.h"
#include "dp/worker.h"
#include "scatter_gather/scatter_gather.h"

struct dp {
    int count, segments; /* W and S */
    int own_loss;        /* each device computes its own loss */
    struct replica replica[MAX_DEVICES];
    struct device_group group;
    struct workers *workers;
    /* of parameters, at most 10 MiB each: what replicate and reduce move at once */
    struct param_range *groups;
    int group_count;
    struct reduce_plan reduce;

    /* Loss on device 0. */
    struct tape *loss_tape;
    struct tensor gathered; /* device 0: (max_samples, classes) */
    /* device r > 0: (its most samples, classes), its rows of dL/dy */
    float *grad_share[MAX_DEVICES];

    /* The step being worked on: written by thread 0 before the threads start; output[r] by
     * thread r. */
    const struct step_block *step;
    int training;
    const struct segments *all; /* of the whole batch */
    struct segments share[MAX_DEVICES];
    int sizes[MAX_DEVICES];          /* samples of each share */
    struct var *output[MAX_DEVICES]; /* on the tape of thread r; of a replayed step: nothing */
    struct tensor grad_output[MAX_DEVICES]; /* dL/dy, on device r */

    struct span_log waits;
};

#endif
