/* One launch updates a whole run of parameters whose gradients are in the same order as their
 * values. A model whose backward ends with its first layer is a single run, also under DDP after
 * the gradients have been laid out again. At worst each parameter is its own run. The pads inside a
 * run are zero in values, gradients and state, and every formula turns zeros into zeros. The update
 * of an element does not read its neighbours, so the bits are those of single launches. */
#include "nn/optimizer/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const struct {
    const char *name;
    enum op op;
    double learning_rate;
} kinds[OPTIMIZER_COUNT] = {{"sgd", OP_SGD, 0.2},
                            {"adadelta", OP_ADADELTA, 1},
                            {"adam", OP_ADAM, 0.001},
                            {"adamw", OP_ADAM, 0.001}};

const char *optimizer_name(enum optimizer_kind kind) {
    return kinds[kind].name;
}

enum optimizer_kind optimizer_named(const char *name) {
    int kind = 0;
    while (kind < OPTIMIZER_COUNT && strcmp(kinds[kind].name, name))
        kind++;
    return (enum optimizer_kind)kind;
}

double optimizer_learning_rate(enum optimizer_kind kind) {
    return kinds[kind].learning_rate;
}

struct optimizer_config optimizer_default(enum optimizer_kind kind) {
    return (struct optimizer_config){.kind = kind,
                                     .weight_decay = kind == OPTIMIZER_ADAMW ? 0.01 : 0,
                                     .rho = 0.9,
                                     .beta1 = 0.9,
                                     .beta2 = 0.999,
                                     .epsilon = kind == OPTIMIZER_ADADELTA ? 1e-6 : 1e-8};
}

int optimizer_check(const struct optimizer_config *c) {
    int sgd = c->kind == OPTIMIZER_SGD, adadelta = c->kind == OPTIMIZER_ADADELTA;
    if (!(c->weight_decay >= 0 && isfinite(c->weight_decay)))
        return fail(ERR_USAGE, "weight_decay: %g: Invalid weight_decay value: give at least 0",
                    c->weight_decay);
    if (sgd && !(c->momentum >= 0 && isfinite(c->momentum)))
        return fail(ERR_USAGE, "momentum: %g: Invalid momentum value: give at least 0",
                    c->momentum);
    if (sgd && !isfinite(c->dampening))
        return fail(ERR_USAGE, "dampening: %g: give a finite number", c->dampening);
    if (sgd && c->nesterov && (c->momentum == 0 || c->dampening != 0))
        return fail(
            ERR_USAGE,
            "nesterov: momentum %g, dampening %g: Nesterov momentum requires a momentum and "
            "zero dampening",
            c->momentum, c->dampening);
    if (adadelta && !(c->rho >= 0 && c->rho <= 1))
        return fail(ERR_USAGE, "rho: %g: Invalid rho value: give 0 to 1", c->rho);
    if (!sgd && !(c->epsilon >= 0 && isfinite(c->epsilon)))
        return fail(ERR_USAGE, "epsilon: %g: Invalid epsilon value: give at least 0", c->epsilon);
    if (!sgd && !adadelta && !(c->beta1 >= 0 && c->beta1 < 1))
        return fail(ERR_USAGE,
                    "beta1: %g: Invalid beta parameter at index 0: give a value from 0 to below 1",
                    c->beta1);
    if (!sgd && !adadelta && !(c->beta2 >= 0 && c->beta2 < 1))
        return fail(ERR_USAGE,
                    "beta2: %g: Invalid beta parameter at index 1: give a value from 0 to below 1",
                    c->beta2);
    return OK;
}

int optimizer_init(struct optimizer *o, const struct param_set *set,
                   const struct optimizer_config *config) {
    memset(o, 0, sizeof *o);
    o->device = set->device;
    o->config = *config;
    o->each = config->kind != OPTIMIZER_SGD ? 2 : config->momentum != 0;
    o->missed = calloc((size_t)set->count + 1, sizeof *o->missed);
    o->group_of = calloc((size_t)set->count + 1, 1);
    if (!o->missed || !o->group_of) return fail(ERR_MEMORY, "optimizer: out of host memory");
    o->config.groups = 0;
    for (int g = 0; g < config->groups; g++)
        CHECK(optimizer_add_group(o, set, &config->group[g]));
    if (!o->each || !set->grad_count) return OK;
    size_t count = set->grad_count * (size_t)o->each;
    CHECK(device_alloc(set->device, (void **)&o->state, count * sizeof(float), MEM_OPTIMIZER));
    int dims[2] = {(int)set->grad_count, o->each};
    struct op_args args = {.out[0] = tensor_plain(o->state, DTYPE_F32, 2, dims)};
    return launch(device_compute(set->device), OP_FILL, &args);
}

void optimizer_free(struct optimizer *o) {
    if (!o) return;
    if (o->device) device_free(o->device, o->state);
    if (o->device) device_free(o->device, o->blocks);
    free(o->missed);
    free(o->group_of);
    memset(o, 0, sizeof *o);
}

static int group_of(const struct optimizer *o, const struct param_set *set, const struct param *p) {
    return o->group_of[p - set->param];
}

/* The distance from a's memory to b's, in elements. */
static size_t apart(const struct tensor *a, const struct tensor *b) {
    return ((uintptr_t)b->data - (uintptr_t)a->data) / sizeof(float);
}

/* 1 if b follows a, its gradient has the same distance from a's as its value, and both are in one
 * group and have missed as many updates. In a shard the next parameter may be elsewhere. */
static int in_step(const struct optimizer *o, const struct param_set *set, const struct param *a,
                   const struct param *b) {
    return b->value_offset - (a->value_offset + a->count) < PARAM_ALIGN &&
           apart(&a->value, &b->value) == b->value_offset - a->value_offset &&
           apart(&a->grad, &b->grad) == b->value_offset - a->value_offset &&
           group_of(o, set, a) == group_of(o, set, b) &&
           o->missed[a - set->param] == o->missed[b - set->param];
}

enum op optimizer_op(const struct optimizer_config *c, struct op_args *args) {
    float decay = (float)c->weight_decay;
    switch (c->kind) {
    case OPTIMIZER_ADADELTA:
        args->p.adadelta = (struct adadelta_args){decay, c->rho, c->epsilon};
        break;
    case OPTIMIZER_ADAM:
    case OPTIMIZER_ADAMW:
        args->p.adam =
            (struct adam_args){decay, c->kind == OPTIMIZER_ADAMW, c->beta1, c->beta2, c->epsilon};
        break;
    case OPTIMIZER_SGD:
    case OPTIMIZER_COUNT:
        args->p.sgd = (struct sgd_args){(float)c->momentum, decay, c->dampening, c->nesterov};
    }
    return kinds[c->kind].op;
}

/* Updates the parameters from `first` to `last` in the value arena as one vector. */
static int update(struct optimizer *o, struct param_set *set, const struct param *first,
                  const struct param *last, const struct step_block *step) {
    const int group = group_of(o, set, first);
    if (first == last && !first->count) return OK; /* this shard has no part of it */
    const struct optimizer_config config = optimizer_of_group(o, group);
    int count = (int)(last->value_offset + last->count - first->value_offset),
        pairs[2] = {count, 2};
    struct op_args args = {.in[0] = tensor_plain(first->grad.data, DTYPE_F32, 1, &count),
                           .out[0] = tensor_plain(first->value.data, DTYPE_F32, 1, &count),
                           .step = group ? &o->blocks[group - 1] : step};
    float *state = o->state + first->value_offset * (size_t)o->each;
    if (o->each == 1) args.out[1] = tensor_plain(state, DTYPE_F32, 1, &count);
    if (o->each == 2) args.out[1] = tensor_plain(state, DTYPE_F32, 2, pairs);
    enum op op = optimizer_op(&config, &args);
    return launch(device_compute(set->device), op, &args);
}

/* Writes the step block of a group, for parameters that have missed `missed` updates. */
static int write_block(struct optimizer *o, int group, struct step_block *step,
                       const struct step_block *now, int64_t missed) {
    struct step_block own = *now;
    const struct optimizer_config config = optimizer_of_group(o, group);
    double rate = group && o->rate[group - 1] >= 0 ? o->rate[group - 1] : now->rate;
    optimizer_schedule(&own, &config, rate, now->update - missed);
    return stream_write(device_compute(o->device), group ? &o->blocks[group - 1] : step, &own,
                        sizeof own);
}

int optimizer_step(struct optimizer *o, struct param_set *set, struct step_block *step,
                   const char *used, const struct step_block *now) {
    const struct param *first = NULL, *last = NULL;
    int64_t written[OPTIMIZER_GROUPS + 1]; /* the missed updates that each block is for; -1: none */
    for (int g = 0; g <= OPTIMIZER_GROUPS; g++)
        written[g] = g ? -1 : 0;
    for (int i = set->count - 1; i >= 0; i--) { /* values are in reverse order of registration */
        const struct param *p = &set->param[i];
        int64_t *in_block = &written[(int)o->group_of[i]];
        if (!param_trains(p) || (used && !used[i])) {
            o->missed[i] += param_trains(p);
            continue;
        }
        int joins = first && in_step(o, set, last, p);
        if (first && !joins) CHECK(update(o, set, first, last, step));
        if (o->missed[i] != *in_block)
            CHECK(write_block(o, o->group_of[i], step, now, o->missed[i]));
        *in_block = o->missed[i];
        if (!joins) first = p;
        last = p;
    }
    if (first) CHECK(update(o, set, first, last, step));
    return *written ? stream_write(device_compute(o->device), step, now, sizeof *now) : OK;
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
