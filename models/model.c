/* The models by name, and what all of them share. */
#include "models/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const struct {
    const char *name;
    int (*describe)(struct model *model, const struct model_options *options);
} known[] = {{"lenet", lenet_describe},
             {"convnet", convnet_describe},
             {"mlp", mlp_describe},
             {"resnet18", resnet18_describe}};

enum { DEFAULT_CLASSES = 10 };
static const struct sample_shape default_sample = {1, 28, 28};

static int check_limits(const char *name, const struct sample_shape *s, int classes) {
    char text[SAMPLE_SHAPE_BYTES];
    if (s->channels < 1 || s->height < 1 || s->width < 1 ||
        (double)s->channels * s->height * s->width > MODEL_MAX_SAMPLE)
        return fail(ERR_USAGE, "model %s: samples of %s: give them 1 to %d numbers", name,
                    sample_shape_text(s, text), MODEL_MAX_SAMPLE);
    if (classes < 1 || classes > MODEL_MAX_CLASSES)
        return fail(ERR_USAGE, "model %s: %d classes: give 1 to %d", name, classes,
                    MODEL_MAX_CLASSES);
    return OK;
}

static int check_count(const struct model *model) {
    double count = 0;
    for (int i = 0; i < model->param_count; i++)
        count += (double)param_spec_count(&model->params[i]);
    if (count <= MODEL_MAX_COUNT) return OK;
    return fail(ERR_USAGE,
                "model %s: %.0f parameters: a model has at most %d: give smaller samples or fewer "
                "classes",
                model->name, count, MODEL_MAX_COUNT);
}

static int check_options(const struct model *model) {
    if (model->sync_bn && !model->buffer_count)
        return fail(ERR_USAGE,
                    "--sync-bn: model %s has no BatchNorm: leave it out, or give "
                    "--model resnet18",
                    model->name);
    if (model->init_d2l && strcmp(model->name, "lenet") && strcmp(model->name, "resnet18"))
        return fail(ERR_USAGE, "--init: d2l: the chapters have no %s: there are lenet and resnet18",
                    model->name);
    if (model->label_smoothing && model->log_probabilities) /* nor does PyTorch's nll_loss */
        return fail(ERR_USAGE,
                    "--label-smoothing: %g: %s ends in log_softmax and nll_loss, which has none: "
                    "leave it out, or give a model that ends in scores",
                    model->label_smoothing, model->name);
    return OK;
}

int model_open(struct model *model, const char *name, const struct model_options *options) {
    struct sample_shape sample = options->sample;
    int classes = options->classes ? options->classes : DEFAULT_CLASSES;
    memset(model, 0, sizeof *model);
    if (!sample.channels) sample = default_sample;
    CHECK(check_limits(name, &sample, classes));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, name)) continue;
        *model = (struct model){.name = known[i].name,
                                .channels = sample.channels,
                                .height = sample.height,
                                .width = sample.width,
                                .classes = classes,
                                .mean = 0,
                                .std = 1,
                                .sync_bn = options->sync_bn,
                                .init_d2l = options->init_d2l,
                                .dropout = -1,
                                .label_smoothing = options->label_smoothing};
        int code = known[i].describe(model, options);
        if (!code) code = check_count(model);
        if (!code) code = check_options(model);
        if (code) model_free(model);
        return code;
    }
    return fail(ERR_USAGE, "model: %s: there are lenet, convnet, mlp and resnet18", name);
}

void model_free(struct model *model) {
    if (!model) return;
    free(model->params);
    free(model->buffers);
    memset(model, 0, sizeof *model);
}

int model_needs_pixels(const struct model *model, int side) {
    struct sample_shape s = {model->channels, model->height, model->width};
    char text[SAMPLE_SHAPE_BYTES];
    if (s.height >= side && s.width >= side) return OK;
    return fail(ERR_USAGE, "model %s: samples of %s: it takes pictures of at least %d x %d",
                model->name, sample_shape_text(&s, text), side, side);
}

struct var *model_loss(const struct model *model, struct tape *t, struct var *output,
                       const struct tensor *labels) {
    if (model->log_probabilities) return nll_loss(t, output, labels, REDUCE_MEAN);
    return cross_entropy_smoothed(t, output, labels, REDUCE_MEAN, model->label_smoothing);
}
