/* Makes a duet_params with a model's parameters, buffers and layers, for a program with its own
 * training loop. The command describes the model and draws its values with the same code, so both
 * have the same names and numbers. */
#include "base/error.h"
#include "models/models.h"
#include "nn/tape/tape_internal.h"

static int check_model(const struct duet_model *model) {
    if (!model) return fail(ERR_USAGE, "model is NULL");
    if (!model->name || !model->describe)
        return fail(ERR_USAGE, "model %s: it has no %s: give it one",
                    model->name ? model->name : "(no name)", model->name ? "describe" : "name");
    return OK;
}

/* Moves the list of layers to the parameters. */
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
    if (!code)
        code = params_create(out, device_of(device), model.params, model.param_count, values, 1);
    if (!code) code = params_register(*out, model.buffers, model.buffer_count);
    if (!code) hand_over_layers(*out, &model);
    model_values_free(values);
    model_free(&model);
    if (!code) return OK;
    duet_params_free(*out);
    *out = NULL;
    return code;
}
