/* What a model's functions are called with: initial values from an engine, and a forward pass on
 * the tape of a replica. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/error.h"
#include "models/models.h"
#include "nn/init.h"
#include "nn/tape/tape_internal.h"

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

static int check_output(const struct model *model, const duet_var *x, const duet_var *y) {
    const struct tensor *v = &y->value;
    if (v->rank == 2 && v->dims[0] == x->value.dims[0] && v->dims[1] == model->classes) return OK;
    return fail(
        ERR_USAGE,
        "model %s: forward returned a tensor of %s: it must be (samples, classes), (%d, %d)",
        model->name, SHAPE(v), x->value.dims[0], model->classes);
}

/* While the forward function runs the tape knows its layers, and that others have begun this
 * pass and will end it. */
duet_var *model_forward(const struct model *model, duet_tape *t, struct buffer_set *buffers,
                        duet_var *x) {
    if (tape_stuck(t, x)) return NULL;
    t->layers = model->layers;
    t->layer_count = model->layer_count;
    t->buffers = buffers;
    t->dropout = model->dropout;
    t->sync_bn = model->sync_bn;
    t->model = model;
    t->inside_model = 1;
    duet_var *y = model->forward(t, x, model->context);
    t->inside_model = 0;
    if (!y && !t->error)
        tape_fail(
            t, fail(ERR_USAGE, "model %s: forward returned NULL: return the scores", model->name));
    y = to_plain(t, y);
    if (tape_stuck(t, y) || tape_fail(t, check_output(model, x, y))) return NULL;
    return y;
}

duet_var *model_loss(const struct model *model, duet_tape *t, duet_var *output,
                     const struct tensor *answers, const struct tensor *weights) {
    duet_tensor given = {.device = t->device, .t = *answers, .borrowed = 1},
                weight = {.device = t->device, .t = *weights, .borrowed = 1};
    if (tape_failed(t, output)) return NULL;
    given.t.dims[0] = output->value.dims[0]; /* there is room for larger batches */
    switch (model->loss) {
    case DUET_MSE: return duet_mse_loss(t, output, &given, DUET_MEAN);
    case DUET_SMOOTH_L1: return duet_smooth_l1_loss(t, output, &given, DUET_MEAN);
    case DUET_BCE_WITH_LOGITS:
        return duet_binary_cross_entropy_with_logits(t, output, &given, DUET_MEAN);
    default: break;
    }
    const int dims[3] = {given.t.dims[0], model->places, model_label_classes(model)};
    if (model->places > 1) output = tape_view(t, output, 3, dims);
    const struct duet_loss_options options = {.weight = weights->data ? &weight : NULL,
                                              .ignores = model->class_weights.ignored > 0,
                                              .ignore_index = model->class_weights.ignored - 1,
                                              .label_smoothing = model->label_smoothing};
    return tape_loss_of_step(t, output, &given, &options, model->log_probabilities);
}

int model_label_classes(const struct model *model) {
    return model->places ? model->classes / model->places : model->classes;
}
