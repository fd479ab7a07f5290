/* The rate of an epoch follows from that of the epoch before. A closed formula would round
 * differently, and then a run would drift from PyTorch's. */
#include "nn/optimizer/schedule.h"

#include <math.h>
#include <stdint.h>

#include "nn/optimizer/optimizer.h"

static double after_step(const struct schedule *s, double rate, int epoch) {
    return epoch % s->step_size ? rate : rate * s->gamma;
}

/* 1 + cos goes through 0 in epoch t_max, so the way up from there begins anew. */
static double after_cosine(const struct schedule *s, double base, double rate, int epoch) {
    if (((int64_t)epoch - 1 - s->t_max) % (2 * (int64_t)s->t_max) == 0)
        return rate + (base - s->eta_min) * (1 - cos(M_PI / s->t_max)) / 2;
    return (1 + cos(M_PI * epoch / s->t_max)) / (1 + cos(M_PI * (epoch - 1) / s->t_max)) *
               (rate - s->eta_min) +
           s->eta_min;
}

double schedule_rate(const struct schedule *s, double base, int epoch) {
    double rate = base;
    for (int e = 1; e <= epoch && s->kind != SCHEDULE_NONE; e++)
        rate = s->kind == SCHEDULE_STEP ? after_step(s, rate, e) : after_cosine(s, base, rate, e);
    return rate;
}

void optimizer_schedule(struct step_block *step, const struct optimizer_config *config,
                        double learning_rate, int64_t update) {
    double t = (double)update + 1;
    step->learning_rate = (float)learning_rate;
    step->first_update = update == 0;
    step->update = update;
    step->rate = learning_rate;
    step->adam_rate = (float)(learning_rate / (1 - pow(config->beta1, t)));
    step->adam_root = (float)sqrt(1 - pow(config->beta2, t));
    step->adam_keep = (float)(1 - learning_rate * config->weight_decay);
}
