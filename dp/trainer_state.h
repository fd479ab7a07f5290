/* The inside of DataParallel of the command. trainer.c has what a step does besides dp.c's,
 * trainer_loss.c what the output device does, trainer_setup.c makes and frees what they work on. */
#ifndef DP_TRAINER_STATE_H
#define DP_TRAINER_STATE_H

#include "dp/dp.h"
#include "dp/trainer.h"

struct dp_trainer {
    struct dp dp;
    int segments; /* S */
    int own_loss; /* 1: each device computes its own loss */
    struct replica replica[MAX_DEVICES];

    /* Loss on the output device. */
    struct device *output_device; /* borrowed */
    duet_tape *loss_tape;
    struct tensor gathered; /* (max_samples, classes) */
    /* Labels or targets, (max_samples); NULL where device 0 is that device, which has them. */
    void *labels;
    float
        *grad_share[MAX_DEVICES]; /* other devices: their rows of dL/dy, (most samples, classes) */
    int loss_sizes[MAX_DEVICES];  /* samples whose loss a device computes: all on one device */

    /* The step being worked on. Thread 0 writes it before the threads start; only output[r] is
     * written by thread r. */
    const struct step_block *step;
    const struct segments *all; /* those of the whole batch */
    struct segments share[MAX_DEVICES];
    int sizes[MAX_DEVICES];        /* samples of each share */
    duet_var *output[MAX_DEVICES]; /* on the tape of device r; not set by a replayed step */
    struct tensor grad_output[MAX_DEVICES]; /* dL/dy, on device r */
};

/* The parts that run on thread r. */
int dp_trainer_forward(void *trainer, int r);
int dp_trainer_backward(void *trainer, int r);

int dp_trainer_begin_loss(struct dp_trainer *t);
/* From the outputs, or the losses, of all devices to the log and, in training, to dL/dy on every
 * device. The output device leads. */
int dp_trainer_loss(void *trainer);

#endif
