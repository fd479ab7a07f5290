/* What of a configuration says how parameters are updated: the optimizer, its numbers, and the
 * schedule of the learning rate. */
#include <stddef.h>

#include "base/error.h"
#include "train/run.h"

static void take(double *to, double given) {
    if (given >= 0) *to = given;
}

struct optimizer_config run_optimizer(const struct run_config *config) {
    struct optimizer_config o = optimizer_default(config->update.optimizer);
    o.momentum = config->update.momentum;
    o.dampening = config->update.dampening;
    o.nesterov = config->update.nesterov;
    take(&o.weight_decay, config->update.weight_decay);
    take(&o.rho, config->update.rho);
    take(&o.beta1, config->update.beta1);
    take(&o.beta2, config->update.beta2);
    take(&o.epsilon, config->update.epsilon);
    o.max_norm = config->update.max_norm;
    optimizer_read_groups(config->update.groups, &o); /* run_check_update has read them */
    return o;
}

/* The defaults are PyTorch's: gamma 0.1 in StepLR, eta_min 0 in CosineAnnealingLR. */
struct schedule run_schedule(const struct run_config *config) {
    if (config->update.lr_cosine)
        return (struct schedule){.kind = SCHEDULE_COSINE, .t_max = config->epochs};
    if (!config->update.lr_step) return (struct schedule){.kind = SCHEDULE_NONE};
    return (struct schedule){.kind = SCHEDULE_STEP,
                             .step_size = config->update.lr_step,
                             .gamma = config->update.lr_gamma < 0 ? 0.1 : config->update.lr_gamma};
}

static int check_optimizer(const struct run_config *c) {
    if (c->update.nesterov && (c->update.momentum == 0 || c->update.dampening != 0))
        return fail(ERR_USAGE,
                    "--nesterov: momentum %g, dampening %g: Nesterov momentum requires a momentum "
                    "and zero dampening",
                    c->update.momentum, c->update.dampening);
    struct optimizer_config o = run_optimizer(c);
    return optimizer_check(&o);
}

int run_check_update(const struct run_config *c) {
    struct optimizer_config groups;
    CHECK(optimizer_read_groups(c->update.groups, &groups));
    CHECK(check_optimizer(c));
    if (c->update.lr_step && c->update.lr_cosine)
        return fail(ERR_USAGE,
                    "--lr-step and --lr-cosine: both set the learning rate of an epoch: give one");
    if (c->update.lr_step && c->update.lr_step >= c->epochs)
        return fail(ERR_USAGE,
                    "--lr-step: no effect in %d epoch%s: the rate would change after %d: give "
                    "less than --epochs, or leave it out",
                    c->epochs, c->epochs > 1 ? "s" : "", c->update.lr_step);
    return OK;
}
