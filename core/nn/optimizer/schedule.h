/* Schedules of the learning rate, as in torch.optim.lr_scheduler with a scheduler.step() after each
 * epoch: the rate is the same in all steps of an epoch. Epochs count from 0.
 *
 *     SCHEDULE_STEP      StepLR: every `step_size` epochs the rate is multiplied by gamma
 *     SCHEDULE_COSINE    CosineAnnealingLR: from the rate given in epoch 0 down towards eta_min,
 *                        which it would reach in epoch t_max, along half a cosine
 *
 * Both are computed from one epoch to the next, as PyTorch does, with the same roundings in double:
 * the rates are equal to its to the bit. */
#ifndef NN_SCHEDULE_H
#define NN_SCHEDULE_H

#ifdef __cplusplus
extern "C" {
#endif

enum schedule_kind { SCHEDULE_NONE, SCHEDULE_STEP, SCHEDULE_COSINE };

struct schedule {
    enum schedule_kind kind;
    int step_size;  /* STEP: epochs, at least 1 */
    double gamma;   /* STEP */
    int t_max;      /* COSINE: epochs, at least 1 */
    double eta_min; /* COSINE */
};

/* The learning rate of an epoch, where `base` is that of epoch 0. */
double schedule_rate(const struct schedule *schedule, double base, int epoch);

#ifdef __cplusplus
}
#endif
#endif
