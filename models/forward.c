/* What a model's functions are called with: initial values from an engine, and a forward pass on
 * the tape of a replica. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/error.h"
#include "models/models.h"
#include "nn/init.h"
#include "nn/tape_internal.h"

static void fill(float *x, size_t count, double value) {
    for (size_t i = 0; i < count; i++)
        x[i] = (float)value;
}

static void draw(struct rng *engine, struct duet_init init, float *x, size_t count) {
    switch (init.kind) {
    case DUET_CONSTANT: fill(x, count, init.a); break;
    case DUET_NORMAL: rng_normal(engine, x, count, init.a, init.b); break;
    case DUET_UNIFORM: rng_uniform(engine, x, count, init.a, init.b); break;
    case DUET_WEIGHT: init_weight(engine, x, count, (int)init.a); break;
    case DUET_BIAS: init_bias(engine, x, count, (int)init.a); break;
    }
}

void module_init(const struct model *model, struct rng *engine, float *const *values) {
    struct duet_rng rng;
    for (int i = 0; i < model->param_count; i++)
        draw(engine, model->inits[i], values[i], param_spec_count(&model->params[i]));
    if (!model->init_more) return;
    rng.engine = *engine;
    model->init_more((const duet_module *)model, &rng, values, model->context);
    *engine = rng.engine;
}

static int check_output(const struct model *model, const struct var *x, const struct var *y) {
    const struct tensor *v = &y->value;
    if (v->rank == 2 && v->dims[0] == x->value.dims[0] && v->dims[1] == model->classes) return OK;
    return fail(ERR_USAGE,
                "model %s: forward returned a tensor of rank %d, %d x %d: it must be (samples, "
                "classes), %d x %d",
                model->name, v->rank, v->dims[0], v->rank > 1 ? v->dims[1] : 1, x->value.dims[0],
                model->classes);
}

struct var *model_forward(const struct model *model, struct tape *tape, struct param_set *params,
                          struct buffer_set *buffers, struct var *x) {
    struct duet_tape t = {.device = tape->device,
                          .tape = tape,
                          .params = params,
                          .segments = tape->segments,
                          .layers = model->layers,
                          .layer_count = model->layer_count,
                          .buffers = buffers,
                          .dropout = model->dropout,
                          .sync_bn = model->sync_bn,
                          .model = model,
                          .inside_model = 1};
    if (tape_stuck(tape, x)) return NULL;
    struct var *y = var_of(model->forward(&t, public_var(x), model->context));
    if (t.error) tape_fail(tape, fail(t.error, "%s", t.message));
    if (!y && !tape->error)
        tape_fail(tape, fail(ERR_USAGE, "model %s: forward returned NULL: return the scores",
                             model->name));
    y = to_plain(tape, y);
    if (tape_stuck(tape, y) || tape_fail(tape, check_output(model, x, y))) return NULL;
    return y;
}
