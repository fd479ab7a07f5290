/* The inside of a DataParallel run. dp.c has the step, moves.c what crosses devices in it, loss.c
 * what the output device does, and setup.c makes and frees all that they work on. */
#ifndef DP_STATE_H
#define DP_STATE_H

#include "dp/dp.h"
#include "dp/worker.h"
#include "scatter_gather/shards.h"

struct dp {
    int count, segments; /* W and S */
    int own_loss;        /* 1: each device computes its own loss */
    int output_device;   /* the device that gathers outputs or losses and computes the loss */
    int sharded;         /* 1: `shards` sums the gradients, not `reduce` */
    struct replica replica[MAX_DEVICES];
    struct device_group group;
    struct workers *workers;
    /* Ranges of the parameter arena, at most 10 MiB each: replicate and reduce move one at once. */
    struct param_range *groups;
    int group_count;
    struct reduce_plan reduce;
    struct sharded_reduce shards;

    /* Loss on the output device. */
    duet_tape *loss_tape;
    struct tensor gathered; /* (max_samples, classes) */
    void
        *labels; /* labels or targets, (max_samples); NULL where device 0 is that, which has them */
    float
        *grad_share[MAX_DEVICES]; /* other devices: their rows of dL/dy, (most samples, classes) */
    int loss_sizes[MAX_DEVICES];  /* samples whose loss a device computes: all on one device */

    /* The step being worked on. Thread 0 writes it before the threads start; only output[r] is
     * written by thread r. */
    const struct step_block *step;
    int training;
    const struct segments *all; /* those of the whole batch */
    struct segments share[MAX_DEVICES];
    int sizes[MAX_DEVICES];        /* samples of each share */
    duet_var *output[MAX_DEVICES]; /* on the tape of device r; not set by a replayed step */
    struct tensor grad_output[MAX_DEVICES]; /* dL/dy, on device r */

    struct span_log waits; /* thread 0's waits for the other threads */
};

/* moves.c and loss.c: parts of a step on the caller's thread. dp_enter sets the phase of the
 * leading stream, which it returns; dp_write_step is called on thread r. */
struct stream *dp_enter(struct dp *dp, enum phase phase);
int dp_write_step(struct dp *dp, int r);
int dp_input(struct dp *dp, const struct batch *batch);
int dp_scatter(struct dp *dp);
int dp_replicate(struct dp *dp, enum phase phase);
int dp_reduce_to_first(struct dp *dp);
int dp_collect_shards(struct dp *dp);

int dp_begin_loss(struct dp *dp);
/* From the outputs, or the losses, of all devices to the log and, in training, to dL/dy on every
 * device. */
int dp_loss(struct dp *dp);

#endif
