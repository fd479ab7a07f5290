/* A model for a program with a training loop of its own: its parameters, buffers and layers as a
 * duet_params. What describes it and draws its values is what the command calls, so both have the
 * same names and numbers. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/error.h"
#include "models/models.h"

static int check_model(const struct duet_model *model) {
    if (!model) return fail(ERR_USAGE, "model: none was given");
    if (!model->name || !model->describe)
        return fail(ERR_USAGE, "model %s: it has no %s: give it one",
                    model->name ? model->name : "(no name)", model->name ? "describe" : "name");
    return OK;
}

static int make_params(duet_params **out, duet_device *device, const struct model *model,
                       float *const *values) {
    struct duet_param *like = calloc((size_t)model->param_count, sizeof *like);
    if (!like) return fail(ERR_MEMORY, "model %s: no host memory", model->name);
    for (int i = 0; i < model->param_count; i++) {
        const struct param_spec *spec = &model->params[i];
        like[i] = (struct duet_param){.name = spec->name, .rank = spec->rank, .values = values[i]};
        memcpy(like[i].shape, spec->dims, sizeof like[i].shape);
    }
    int code = duet_params_create(out, device, like, model->param_count);
    free(like);
    return code;
}

static int register_buffers(duet_params *params, const struct model *model) {
    struct duet_buffer *like = calloc((size_t)model->buffer_count + 1, sizeof *like);
    if (!like) return fail(ERR_MEMORY, "model %s: no host memory", model->name);
    for (int i = 0; i < model->buffer_count; i++) {
        const struct buffer_spec *spec = &model->buffers[i];
        like[i] = (struct duet_buffer){.name = spec->name,
                                       .type = spec->dtype == DTYPE_I64 ? DUET_I64 : DUET_F32,
                                       .rank = spec->rank,
                                       .value = spec->initial};
        memcpy(like[i].shape, spec->dims, sizeof like[i].shape);
    }
    int code =
        model->buffer_count ? duet_params_register_buffers(params, like, model->buffer_count) : OK;
    free(like);
    return code;
}

/* The list of layers goes over to the parameters. */
static void hand_over_layers(duet_params *params, struct model *model) {
    params->layers = params->own_layers = model->layers;
    params->layer_count = model->layer_count;
    model->layers = NULL;
    model->layer_count = 0;
}

int duet_params_create_model(duet_params **out, duet_device *device, const struct duet_model *from,
                             int classes, uint64_t seed) {
    struct model model;
    float **values = NULL;
    CHECK_OUT(out);
    if (!device) return fail(ERR_USAGE, "parameters: no device was given");
    CHECK(check_model(from));
    if (classes < 1)
        return fail(ERR_USAGE, "model %s: %d classes: give at least 1", from->name, classes);
    const struct model_options options = {.dropout = -1, .classes = classes, .own = from};
    CHECK(model_open(&model, from->name, &options));
    int code = model_values_init(&model, seed, &values);
    if (!code) code = make_params(out, device, &model, values);
    if (!code) code = register_buffers(*out, &model);
    if (!code) hand_over_layers(*out, &model);
    model_values_free(values);
    model_free(&model);
    if (!code) return OK;
    duet_params_free(*out);
    *out = NULL;
    return code;
}
