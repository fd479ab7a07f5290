/* One launch serves a whole run of parameters whose gradients lie in the same order as their
 * values. A model whose backward ends with its first layer is a single run, also under DDP after
 * the gradients have been laid out again; at worst each parameter is a run of its own. The pads
 * inside a run are zero in values, gradients and state, and every formula turns zeros into zeros.
 * The update of an element reads nothing of its neighbours, so the bits are those of single
 * launches. */
#include "nn/optimizer.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

static const struct {
    const char *name;
    enum op op;
    double learning_rate;
} kinds[OPTIMIZER_COUNT] = {
    {"sgd", OP_SGD, 0.2}, {"adadelta", OP_ADADELTA, 1}, {"adam", OP_ADAM, 0.001}};

const char *optimizer_name(enum optimizer_kind kind) {
    return kinds[kind].name;
}

double optimizer_learning_rate(enum optimizer_kind kind) {
    return kinds[kind].learning_rate;
}

int optimizer_init(struct optimizer *o, const struct param_set *set,
                   const struct optimizer_config *config) {
    memset(o, 0, sizeof *o);
    o->device = set->device;
    o->config = *config;
    o->each = config->kind != OPTIMIZER_SGD ? 2 : config->momentum != 0;
    if (!o->each) return OK;
    size_t count = set->arena_count * (size_t)o->each;
    CHECK(device_alloc(set->device, (void **)&o->state, count * sizeof(float), MEM_OPTIMIZER));
    int dims[2] = {(int)set->arena_count, o->each};
    struct op_args args = {.out[0] = tensor_plain(o->state, DTYPE_F32, 2, dims)};
    return launch(device_compute(set->device), OP_FILL, &args);
}

void optimizer_free(struct optimizer *o) {
    if (!o) return;
    if (o->device) device_free(o->device, o->state);
    memset(o, 0, sizeof *o);
}

/* 1 if the gradient of b lies as far behind that of a as its value does behind the value of a. */
static int in_step(const struct param *a, const struct param *b) {
    return b->value_offset - a->value_offset == b->grad_offset - a->grad_offset;
}

/* Updates the parameters from `first` to `last` in the value arena as one vector. */
static int update(struct optimizer *o, struct param_set *set, const struct param *first,
                  const struct param *last, const struct step_block *step) {
    int count = (int)(last->value_offset + last->count - first->value_offset),
        pairs[2] = {count, 2};
    struct op_args args = {.in[0] = tensor_plain(first->grad.data, DTYPE_F32, 1, &count),
                           .out[0] = tensor_plain(first->value.data, DTYPE_F32, 1, &count),
                           .step = step};
    float *state = o->state + first->value_offset * (size_t)o->each;
    if (o->each == 1) args.out[1] = tensor_plain(state, DTYPE_F32, 1, &count);
    if (o->each == 2) args.out[1] = tensor_plain(state, DTYPE_F32, 2, pairs);
    if (o->config.kind == OPTIMIZER_SGD)
        args.p.sgd = (struct sgd_args){(float)o->config.momentum, (float)o->config.weight_decay};
    else
        args.p.decay = (struct decay_args){(float)o->config.weight_decay};
    return launch(device_compute(set->device), kinds[o->config.kind].op, &args);
}

int optimizer_step(struct optimizer *o, struct param_set *set, const struct step_block *step) {
    for (int i = set->count - 1; i >= 0;) { /* values lie in reverse order of registration */
        const struct param *first = &set->param[i], *last = first;
        while (--i >= 0 && in_step(last, &set->param[i]))
            last = &set->param[i];
        CHECK(update(o, set, first, last, step));
    }
    return OK;
}

void optimizer_schedule(struct step_block *step, double learning_rate, int64_t update) {
    double t = (double)update + 1;
    step->learning_rate = (float)learning_rate;
    step->first_update = update == 0;
    step->adam_rate = (float)(learning_rate / (1 - pow(ADAM_BETA1, t)));
    step->adam_root = (float)sqrt(1 - pow(ADAM_BETA2, t));
}
