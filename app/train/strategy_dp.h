/* Shared by the two files of the strategy DataParallel: strategy_dp_open.c has its table, opens and
 * closes; strategy_dp.c has the step. */
#ifndef TRAIN_STRATEGY_DP_H
#define TRAIN_STRATEGY_DP_H

#include "dp/dp.h"
#include "train/session.h"

struct dp_strategy {
    int segments; /* S */
    int own_loss; /* 1: each device computes its own loss, at the end of forward */
    int output;   /* the device that gathers the outputs */
    struct replica replica[MAX_DEVICES];
    struct duet_data_parallel *model;
    struct dp_shares shares;
    duet_tape *tape; /* for the loss, on the output device; NULL with own_loss */
    void *labels;    /* the whole batch's labels, if that is not device 0; owned; else NULL */

    /* The current step. Thread 0 writes these while the other threads sleep. */
    const struct step_block *step;
    int training;
    const struct segments *all; /* the segments of the whole batch */
    struct segments share[MAX_DEVICES];
};

/* ---- strategy_dp.c: called by the model's threads; context is the strategy ---- */

int dp_strategy_begin_on(void *strategy, int r);
duet_var *dp_strategy_forward(duet_tape *t, duet_var *x, void *strategy);
duet_var *dp_strategy_loss(duet_tape *t, duet_var *y, const duet_tensor *labels, void *strategy);

/* ---- strategy_dp.c: of struct strategy ---- */

int dp_strategy_step(struct session *s, const struct step_block *step, const struct batch *batch);
int dp_strategy_evaluate(struct session *s, const struct step_block *step,
                         const struct batch *batch);
int dp_strategy_hash_values(struct session *s, const struct step_block *step);
struct span_log *dp_strategy_waits(struct session *s);

#endif
