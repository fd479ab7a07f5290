/* The functions duet_module_*, with which `describe` of a struct duet_model describes a model. A
 * duet_module is a struct model under another name. The lists of parameters, buffers and layers
 * grow with each registration. The first failure is kept, so describe needs no checks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/grow.h"
#include "models/models.h"
#include "nn/tape/tape_internal.h"

struct model_build {
    const struct model_options *options;
    int param_room, init_room, buffer_room, layer_room; /* room in the lists, in elements */
    struct failures failed;                             /* the first failure */
};

const struct model_options *module_options(const duet_module *module) {
    return const_model_of(module)->build->options;
}

void module_fail(duet_module *module, int code) {
    failures_first(&model_of(module)->build->failed, code);
}

/* 1: nothing more is registered. */
static int stuck(const duet_module *module) {
    const struct model *model = const_model_of(module);
    return !model || !model->build || model->build->failed.code;
}

void module_needs_pixels(duet_module *module, int side) {
    if (stuck(module)) return;
    const struct model *model = const_model_of(module);
    const struct sample_shape s = {model->channels, model->height, model->width};
    char text[SAMPLE_SHAPE_BYTES];
    if (model->height >= side && model->width >= side) return;
    module_fail(module,
                fail(ERR_USAGE, "model %s: samples of %s: it takes images of at least %d x %d",
                     model->name, sample_shape_text(&s, text), side, side));
}

const int *duet_module_sample(const duet_module *module) {
    return module ? &const_model_of(module)->channels : NULL;
}

int duet_module_classes(const duet_module *module) {
    return module ? const_model_of(module)->classes : 0;
}

size_t duet_module_count(const duet_module *module, int i) {
    const struct model *model = const_model_of(module);
    return model && i >= 0 && i < model->param_count ? param_spec_count(&model->params[i]) : 0;
}

/* ---- lists that grow ---- */

/* "fc1", ".weight" -> "fc1.weight". */
static int join(const struct model *model, const char *name, const char *suffix, char **out) {
    char what[64];
    snprintf(what, sizeof what, "model %.40s", model->name);
    CHECK(name_check(what, name));
    size_t bytes = strlen(name) + strlen(suffix) + 1;
    *out = malloc(bytes);
    if (!*out) return fail(ERR_MEMORY, "model %s: out of host memory", model->name);
    snprintf(*out, bytes, "%s%s", name, suffix);
    return OK;
}

static int check_shape(const struct model *model, const char *name, int rank, const int *shape) {
    double count = 1;
    if (rank < 1 || rank > DUET_MAX_RANK || !shape)
        return fail(ERR_USAGE, "model %s: %.100s: rank %d: give 1 to %d", model->name, name, rank,
                    DUET_MAX_RANK);
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 1)
            return fail(ERR_USAGE, "model %s: %.100s: dimension %d is %d: give at least 1",
                        model->name, name, i, shape[i]);
        count *= shape[i];
    }
    if (count <= INT32_MAX) return OK;
    return fail(ERR_USAGE, "model %s: %.100s: %.0f numbers: give smaller samples or fewer classes",
                model->name, name, count);
}

static int check_init(const struct model *model, const char *name, struct duet_init init) {
    if ((unsigned)init.kind > DUET_BIAS)
        return fail(ERR_USAGE, "model %s: %.100s: initial values of kind %d: see duet_init_kind",
                    model->name, name, (int)init.kind);
    if ((init.kind == DUET_WEIGHT || init.kind == DUET_BIAS) &&
        !(init.a >= 1 && init.a <= INT32_MAX))
        return fail(ERR_USAGE, "model %s: %.100s: fan-in %g: give at least 1", model->name, name,
                    init.a);
    return OK;
}

static int add_param(struct model *model, const char *name, const char *suffix, int rank,
                     const int *shape, struct duet_init init) {
    struct model_build *build = model->build;
    int i = model->param_count;
    char *full;
    if (i == MOST_PARAMS)
        return fail(ERR_USAGE, "model %s: more than %d parameters: give it fewer", model->name, i);
    CHECK(list_grow(model->name, &model->params, i, &build->param_room, sizeof *model->params));
    CHECK(list_grow(model->name, &model->inits, i, &build->init_room, sizeof *model->inits));
    CHECK(join(model, name, suffix, &full));
    model->params[i] = (struct param_spec){.name = full, .rank = rank};
    model->inits[i] = init;
    model->param_count++; /* model_free then frees the name */
    CHECK(check_shape(model, full, rank, shape));
    CHECK(check_init(model, full, init));
    memcpy(model->params[i].dims, shape, (size_t)rank * sizeof *shape);
    return OK;
}

static int add_buffer(struct model *model, const char *name, const char *suffix,
                      struct buffer_spec spec) {
    struct model_build *build = model->build;
    int i = model->buffer_count;
    char *full;
    if (i == MOST_PARAMS)
        return fail(ERR_USAGE, "model %s: more than %d buffers: give it fewer", model->name, i);
    CHECK(list_grow(model->name, &model->buffers, i, &build->buffer_room, sizeof *model->buffers));
    CHECK(join(model, name, suffix, &full));
    spec.name = full;
    model->buffers[i] = spec;
    model->buffer_count++;
    return spec.rank ? check_shape(model, full, spec.rank, spec.dims) : OK;
}

static int add_layer(struct model *model, const char *name, struct layer layer) {
    struct model_build *build = model->build;
    int i = model->layer_count;
    CHECK(list_grow(model->name, &model->layers, i, &build->layer_room, sizeof *model->layers));
    CHECK(join(model, name, "", &layer.name));
    model->layers[i] = layer;
    model->layer_count++;
    return OK;
}

/* The index of what has been added last, or -1. */
static int added(duet_module *module, int code, int count) {
    module_fail(module, code);
    return code ? -1 : count - 1;
}

/* ---- parameters and buffers ---- */

int duet_module_parameter(duet_module *module, const char *name, int rank, const int *shape,
                          struct duet_init init) {
    if (stuck(module)) return -1;
    struct model *model = model_of(module);
    int code = add_param(model, name, "", rank, shape, init);
    return added(module, code, model->param_count);
}

int module_buffer(duet_module *module, const char *name, const struct buffer_spec *spec) {
    if (stuck(module)) return -1;
    int code = add_buffer(model_of(module), name, "", *spec);
    return added(module, code, model_of(module)->buffer_count);
}

/* ---- layers ---- */

/* NAME.weight of this shape, and NAME.bias of as many elements as it has rows, with PyTorch's
 * initial values for `fan_in` inputs of each output. */
static int add_weight_and_bias(struct model *model, const char *name, int rank, const int *shape,
                               double fan_in, int with_bias, struct layer *layer) {
    layer->weight = model->param_count;
    layer->bias = with_bias ? layer->weight + 1 : DUET_NO_BIAS;
    CHECK(
        add_param(model, name, ".weight", rank, shape, (struct duet_init){DUET_WEIGHT, fan_in, 0}));
    if (!with_bias) return OK;
    return add_param(model, name, ".bias", 1, shape, (struct duet_init){DUET_BIAS, fan_in, 0});
}

static int check_window(const struct model *model, const char *name, int stride, int padding) {
    if (stride >= 1 && stride <= MOST_WINDOW && padding >= 0 && padding <= MOST_WINDOW) return OK;
    return fail(ERR_USAGE, "model %s: %.100s: stride %d, padding %d: give 1 and 0 to %d",
                model->name, name ? name : "", stride, padding, MOST_WINDOW);
}

int duet_module_conv2d(duet_module *module, const char *name, int in, int out, int kernel,
                       int stride, int padding, int bias) {
    if (stuck(module)) return -1;
    struct model *model = model_of(module);
    struct layer layer = {.kind = LAYER_CONV2D, .stride = stride, .padding = padding};
    double fan_in = (double)in * kernel * kernel;
    int code = check_window(model, name, stride, padding);
    if (!code)
        code = add_weight_and_bias(model, name, 4, (int[]){out, in, kernel, kernel}, fan_in, bias,
                                   &layer);
    if (!code) code = add_layer(model, name, layer);
    return added(module, code, model->layer_count);
}

int duet_module_linear(duet_module *module, const char *name, int in, int out, int bias) {
    if (stuck(module)) return -1;
    struct model *model = model_of(module);
    struct layer layer = {.kind = LAYER_LINEAR};
    int code = add_weight_and_bias(model, name, 2, (int[]){out, in}, in, bias, &layer);
    if (!code) code = add_layer(model, name, layer);
    return added(module, code, model->layer_count);
}

static int add_norm(struct model *model, const char *name, int channels, struct layer *layer) {
    const struct duet_init one = {DUET_CONSTANT, 1, 0}, zero = {DUET_CONSTANT, 0, 0};
    struct buffer_spec mean = {.dtype = DTYPE_F32, .rank = 1, .dims = {channels}}, variance = mean,
                       batches = {.dtype = DTYPE_I64};
    variance.initial = 1;
    layer->weight = model->param_count;
    layer->bias = layer->weight + 1;
    layer->buffers = model->buffer_count;
    CHECK(add_param(model, name, ".weight", 1, &channels, one));
    CHECK(add_param(model, name, ".bias", 1, &channels, zero));
    CHECK(add_buffer(model, name, ".running_mean", mean));
    CHECK(add_buffer(model, name, ".running_var", variance));
    return add_buffer(model, name, ".num_batches_tracked", batches);
}

int duet_module_batch_norm(duet_module *module, const char *name, int channels, double eps,
                           double momentum) {
    if (stuck(module)) return -1;
    struct model *model = model_of(module);
    struct layer layer = {.kind = LAYER_BATCH_NORM, .epsilon = eps, .momentum = momentum};
    int code = eps >= 0 && momentum <= 1
                   ? OK
                   : fail(ERR_USAGE,
                          "model %s: %.100s: eps %g, momentum %g: give at least 0 and at most 1",
                          model->name, name ? name : "", eps, momentum);
    if (!code) code = add_norm(model, name, channels, &layer);
    if (!code) code = add_layer(model, name, layer);
    return added(module, code, model->layer_count);
}

static int dropout_layer(duet_module *module, const char *name, double p, enum layer_kind kind) {
    if (stuck(module)) return -1;
    struct model *model = model_of(module);
    int code =
        p >= 0 && p <= 1
            ? OK
            : fail(ERR_USAGE, "dropout probability has to be between 0 and 1, but got %g", p);
    if (!code) code = add_layer(model, name, (struct layer){.kind = kind, .p = p});
    return added(module, code, model->layer_count);
}

int duet_module_dropout(duet_module *module, const char *name, double p) {
    return dropout_layer(module, name, p, LAYER_DROPOUT);
}

int duet_module_dropout2d(duet_module *module, const char *name, double p) {
    return dropout_layer(module, name, p, LAYER_DROPOUT2D);
}

/* ---- the whole ---- */

/* Parameters and buffers share the names of a file; layers are named in messages. */
static int check_names(const struct model *model) {
    char what[64];
    snprintf(what, sizeof what, "model %.40s", model->name);
    return names_check_differ(what, model->params, model->param_count, model->buffers,
                              model->buffer_count);
}

int module_describe(struct model *model, const struct duet_model *from,
                    const struct model_options *options) {
    struct model_build build = {.options = options};
    model->build = &build;
    from->describe((duet_module *)model, from->context);
    model->build = NULL;
    model->init_more = from->init;
    model->forward = from->forward;
    model->context = from->context;
    for (int i = 0; i < model->layer_count; i++)
        if (model->layers[i].kind == LAYER_DROPOUT || model->layers[i].kind == LAYER_DROPOUT2D)
            model->dropout = options->dropout;
    model->norms |= model->buffer_count > 0; /* a program's own BatchNorm has buffers, too */
    if (build.failed.code) return failures_end(&build.failed);
    if (!model->param_count)
        return fail(ERR_USAGE, "model %s: it has no parameters: nothing can be trained",
                    model->name);
    CHECK(check_names(model));
    for (int i = 0; i < model->param_count; i++)
        if (!model->params[i].frozen) return OK;
    return fail(ERR_USAGE,
                "model %s: all %d parameters are frozen: element 0 of tensors does not require "
                "grad and does not have a grad_fn: leave one to be trained",
                model->name, model->param_count);
}

void module_free(struct model *model) {
    for (int i = 0; i < model->param_count; i++)
        free((char *)model->params[i].name);
    for (int i = 0; i < model->buffer_count; i++)
        free((char *)model->buffers[i].name);
    for (int i = 0; i < model->layer_count; i++)
        free(model->layers[i].name);
    free(model->params);
    free(model->inits);
    free(model->buffers);
    free(model->layers);
}
