/* The layers of a model, called by number. A forward function uses them for the layers that the
 * model describes (models/module.c). Each does the same as PyTorch's module. */
#include "base/error.h"
#include "nn/tape/tape_internal.h"

/* Layer i of the pass's model. If there is none, the tape keeps the error and the result is
 * NULL. */
static const struct layer *layer_at(duet_tape *t, int i) {
    if (i >= 0 && i < t->layer_count) return &t->layers[i];
    return t->inside_model
               ? tape_refuse(t, "layer %d: the model has described %d layers, from 0 on", i,
                             t->layer_count)
               : tape_refuse(t,
                             "layer %d: the parameters of this pass have %d layers: make them of a "
                             "struct duet_model, or call duet_linear and similar functions",
                             i, t->layer_count);
}

static duet_var *normalise(duet_tape *t, const struct layer *l, duet_var *x, int with_relu,
                           duet_var *residual) {
    struct norm_config config = norm_config_default(&t->buffers->buffer[l->buffers]);
    config.epsilon = l->epsilon;
    config.momentum = l->momentum;
    config.synchronised = t->sync_bn;
    config.relu = with_relu;
    config.residual = residual;
    struct param *w = &t->step.params->param[l->weight], *b = &t->step.params->param[l->bias];
    return batch_norm(t, x, w, b, &config);
}

static duet_var *drop(duet_tape *t, const struct layer *l, duet_var *x) {
    double p = t->dropout < 0 ? l->p : t->dropout;
    return l->kind == LAYER_DROPOUT ? duet_dropout(t, x, p) : duet_dropout2d(t, x, p);
}

static duet_var *convolve(duet_tape *t, const struct layer *l, duet_var *x) {
    const struct duet_conv how = {.stride = {l->stride, l->stride},
                                  .padding = {l->padding, l->padding}};
    return duet_conv2d(t, x, l->weight, l->bias, &how);
}

static duet_var *apply(duet_tape *t, const struct layer *l, duet_var *x) {
    switch (l->kind) {
    case LAYER_CONV2D: return convolve(t, l, x);
    case LAYER_LINEAR: return duet_linear(t, x, l->weight, l->bias);
    case LAYER_BATCH_NORM: return normalise(t, l, x, 0, NULL);
    case LAYER_DROPOUT:
    case LAYER_DROPOUT2D: return drop(t, l, x);
    }
    return NULL;
}

duet_var *duet_layer(duet_tape *t, int layer, duet_var *x) {
    const struct layer *l = tape_failed(t, x) ? NULL : layer_at(t, layer);
    return l ? apply(t, l, x) : NULL;
}

/* The relu of y, the result of a layer on x that nobody else has. Dropout that does nothing gives x
 * itself. */
static duet_var *relu_of(duet_tape *t, duet_var *y, const duet_var *x) {
    duet_var *relu = duet_relu(t, y);
    if (y != x) tape_forget(t, y);
    return relu;
}

duet_var *duet_layer_relu(duet_tape *t, int layer, duet_var *x) {
    const struct layer *l = tape_failed(t, x) ? NULL : layer_at(t, layer);
    if (!l) return NULL;
    return l->kind == LAYER_BATCH_NORM ? normalise(t, l, x, 1, NULL)
                                       : relu_of(t, apply(t, l, x), x);
}

duet_var *duet_layer_add_relu(duet_tape *t, int layer, duet_var *x, duet_var *residual) {
    const struct layer *l =
        tape_failed(t, x) || tape_failed(t, residual) ? NULL : layer_at(t, layer);
    if (!l) return NULL;
    if (l->kind == LAYER_BATCH_NORM) return normalise(t, l, x, 1, residual);
    duet_var *y = apply(t, l, x), *sum = duet_add(t, y, residual);
    if (y != x) tape_forget(t, y);
    return relu_of(t, sum, x);
}

int duet_layer_count(const duet_tape *t) {
    return t ? t->layer_count : 0;
}

int64_t duet_tape_training(const duet_tape *t) {
    return t && tape_training(t) ? 1 + tape_number(t) : 0;
}
