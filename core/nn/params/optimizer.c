/* The optimizers that programs create. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "nn/params/optimizer.h"

/* PyTorch's; the command has the chapter's, 0.2. */
static const double SGD_LEARNING_RATE = 0.001;

static int kind_of(const char *name, enum optimizer_kind *kind) {
    if (!name) return fail(ERR_USAGE, "optimizer: no name was given");
    *kind = optimizer_named(name);
    if (*kind != OPTIMIZER_COUNT) return OK;
    return fail(ERR_USAGE, "optimizer: '%.40s': expected sgd, adadelta, adam or adamw", name);
}

int duet_optimizer_defaults(struct duet_optimizer_options *options, const char *name) {
    enum optimizer_kind kind;
    if (!options) return fail(ERR_USAGE, "optimizer: the output pointer is NULL");
    CHECK(kind_of(name, &kind));
    struct optimizer_config c = optimizer_default(kind);
    *options = (struct duet_optimizer_options){
        .name = name,
        .lr = kind == OPTIMIZER_SGD ? SGD_LEARNING_RATE : optimizer_learning_rate(kind),
        .weight_decay = c.weight_decay,
        .momentum = c.momentum,
        .dampening = c.dampening,
        .nesterov = c.nesterov,
        .rho = c.rho,
        .beta1 = c.beta1,
        .beta2 = c.beta2,
        .eps = c.epsilon};
    return OK;
}

static int check_rate(double lr) {
    if (lr >= 0 && lr <= FLT_MAX) return OK;
    return fail(ERR_USAGE, "optimizer: learning rate %g: give 0 to %g", lr, (double)FLT_MAX);
}

static int config_of(const struct duet_optimizer_options *options, struct optimizer_config *c) {
    *c = (struct optimizer_config){.groups = 0};
    CHECK(kind_of(options->name, &c->kind));
    c->weight_decay = options->weight_decay;
    c->momentum = options->momentum;
    c->dampening = options->dampening;
    c->nesterov = options->nesterov;
    c->rho = options->rho;
    c->beta1 = options->beta1;
    c->beta2 = options->beta2;
    c->epsilon = options->eps;
    CHECK(check_rate(options->lr));
    return optimizer_check(c);
}

int optimizer_of_params(duet_optimizer **out, duet_params *params,
                        const struct optimizer_config *config) {
    struct duet_optimizer *o = calloc(1, sizeof *o);
    *out = NULL;
    if (!o) return fail(ERR_MEMORY, "optimizer: out of host memory");
    o->params = params;
    params->in_use = 1;
    int code = optimizer_init(&o->optimizer, param_set_own(&params->set), config);
    if (code)
        duet_optimizer_free(o);
    else
        *out = o;
    return code;
}

int duet_optimizer_create(duet_optimizer **out, duet_params *params,
                          const struct duet_optimizer_options *options) {
    struct optimizer_config config;
    CHECK_OUT(out);
    if (!params) return fail(ERR_USAGE, "optimizer: no parameters were given");
    if (!options) return fail(ERR_USAGE, "optimizer: no options were given");
    CHECK(config_of(options, &config));
    CHECK(optimizer_of_params(out, params, &config));
    (*out)->lr = options->lr;
    int code = stream_sync(device_compute(params->set.device));
    if (code) {
        duet_optimizer_free(*out);
        *out = NULL;
    }
    return code;
}

void duet_optimizer_free(duet_optimizer *o) {
    if (!o) return;
    stream_sync(device_compute(o->params->set.device));
    optimizer_free(&o->optimizer);
    free(o);
}

int duet_optimizer_add_group(duet_optimizer *o, const struct duet_param_group *group) {
    if (!o || !group || !group->params)
        return fail(ERR_USAGE, "group: no %s given", o ? "group was" : "optimizer was");
    struct param_group g = {.lr = group->lr, .weight_decay = group->weight_decay};
    if (strlen(group->params) >= sizeof g.params)
        return fail(ERR_USAGE, "group: '%.80s': give a name of at most %zu bytes", group->params,
                    sizeof g.params - 1);
    strcpy(g.params, group->params);
    return optimizer_add_group(&o->optimizer, &o->params->set, &g);
}

int duet_optimizer_set_lr(duet_optimizer *o, int group, double lr) {
    if (!o) return fail(ERR_USAGE, "optimizer is NULL");
    if (group < 0 || group > o->optimizer.config.groups)
        return fail(ERR_USAGE, "optimizer: group %d: %d were added: give 0 for the first", group,
                    o->optimizer.config.groups);
    CHECK(check_rate(lr));
    *(group ? &o->optimizer.rate[group - 1] : &o->lr) = lr;
    return OK;
}

int optimizer_update(duet_optimizer *o, const struct step_block *now) {
    struct duet_params *p = o->params;
    return optimizer_step(&o->optimizer, param_set_own(&p->set), p->step, p->has_grad, now);
}

int duet_optimizer_step(duet_optimizer *o) {
    if (!o) return fail(ERR_USAGE, "optimizer is NULL");
    struct step_block step = {.row = 0};
    optimizer_schedule(&step, &o->optimizer.config, o->lr, o->updates);
    CHECK(stream_write(device_compute(o->params->set.device), o->params->step, &step, sizeof step));
    CHECK(optimizer_update(o, &step));
    o->updates++;
    return OK;
}
