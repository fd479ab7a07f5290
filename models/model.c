/* Finds a model by its name, and opens it. */
#include "models/models.h"

#include <string.h>

#include "base/error.h"
#include "base/text/nearest.h"
#include "models/graph/graph.h"

static const struct duet_model *const known[] = {
    &lenet_model,   &convnet_model, &mlp_model,      &resnet18_model,  &simple_model,
    &complex_model, &wide_model,    &branches_model, &described_model,
};
/* The last one is only for estimates and is not offered. */
enum {
    KNOWN = sizeof known / sizeof *known,
    OFFERED = KNOWN - 1,
    DEFAULT_CLASSES = 10,
    WIDE_CLASSES = 2000,
    PICTURE_CLASSES = 1000 /* as in torchvision */
};

/* The program's own model takes precedence over a built-in one. NULL: there is none. */
static const struct duet_model *find(const char *name, const struct model_options *options) {
    if (options->own && !strcmp(options->own->name, name)) return options->own;
    for (int i = 0; i < KNOWN; i++)
        if (!strcmp(known[i]->name, name)) return known[i];
    return net_find(name);
}

int model_is_known(const char *name) {
    return find(name, &(struct model_options){.classes = 0}) != NULL;
}

int model_is_outline(const char *name) {
    return net_find(name) != NULL;
}

/* For example gpt2 is not trained, but part of a name that estimate knows. */
static int unknown_model(const char *name, const struct model_options *options) {
    const char *words[OFFERED + 1], *net = net_like(name);
    int count = 0;
    if (options->own) words[count++] = options->own->name;
    for (int i = 0; i < OFFERED; i++)
        words[count++] = known[i]->name;
    for (int i = 0; i < count; i++)
        if (strcasestr(words[i], name)) net = NULL;
    if (!net || nearest_word(name, words, count)) return unknown_value("model", name, words, count);
    return fail(ERR_USAGE,
                "model: '%.60s': did you mean %s, for duet estimate? docs/models.md "
                "lists those that it knows",
                name, net);
}

struct sample_shape model_sample(const char *name, const struct model_options *options) {
    const struct duet_model *from = find(name, options);
    if (!from || !from->sample[0]) return (struct sample_shape){1, 28, 28};
    return (struct sample_shape){from->sample[0], from->sample[1], from->sample[2]};
}

int model_classes(const char *name, const struct model_options *options) {
    const struct duet_model *from = find(name, options);
    const struct graph *graph = from && from == options->own ? graph_of(from) : NULL;
    if (graph) return graph_classes(graph, loss_of_targets(options->loss));
    if (from && from->sample[1] > 1 && model_is_outline(name)) return PICTURE_CLASSES;
    return from == &wide_model ? WIDE_CLASSES : 0;
}

int model_positions(const char *name, const struct model_options *options) {
    const struct duet_model *from = find(name, options);
    const struct graph *graph = from && from == options->own ? graph_of(from) : NULL;
    return graph && !loss_of_targets(options->loss) ? graph_positions(graph) : 0;
}

static int check_limits(const char *name, const struct sample_shape *s, int classes, int tokens) {
    char text[SAMPLE_SHAPE_BYTES];
    if (!sample_shape_fits(s))
        return fail(ERR_USAGE, "model %s: samples of %s: give them 1 to %d numbers", name,
                    sample_shape_text(s, text), SAMPLE_NUMBERS);
    if (classes < 1 || (classes > MODEL_MAX_CLASSES && !tokens)) /* then they cover all tokens */
        return fail(ERR_USAGE, "model %s: %d classes: give 1 to %d", name, classes,
                    MODEL_MAX_CLASSES);
    return OK;
}

static int check_count(const struct model *model) {
    double count = 0;
    for (int i = 0; i < model->param_count; i++)
        count += (double)param_spec_count(&model->params[i]);
    if (count <= MODEL_MAX_PARAMETERS) return OK;
    return fail(ERR_USAGE,
                "model %s: %.0f parameters: a model has at most %d: give smaller samples or fewer "
                "classes",
                model->name, count, MODEL_MAX_PARAMETERS);
}

static int check_options(const struct model *model) {
    if (model->sync_bn && !model->norms)
        return fail(ERR_USAGE,
                    "--sync-bn: model %s has no BatchNorm: leave it out, or give --model resnet18",
                    model->name);
    if (model->init_d2l && strcmp(model->name, "lenet") && strcmp(model->name, "resnet18"))
        return fail(ERR_USAGE, "--init: d2l: the chapters have no %s: expected lenet or resnet18",
                    model->name);
    return OK;
}

int model_open(struct model *model, const char *name, const struct model_options *options) {
    const struct duet_model *from = find(name, options);
    int classes = options->classes ? options->classes : DEFAULT_CLASSES;
    memset(model, 0, sizeof *model);
    if (!from) return unknown_model(name, options);
    struct sample_shape sample =
        options->sample.channels ? options->sample : model_sample(name, options);
    CHECK(check_limits(name, &sample, classes, options->tokens));
    *model = (struct model){.name = from->name,
                            .channels = sample.channels,
                            .height = sample.height,
                            .width = sample.width,
                            .classes = classes,
                            .normalised = from->std != 0,
                            .mean = (float)from->mean,
                            .std = from->std != 0 ? (float)from->std : 1,
                            .loss = options->loss,
                            .log_probabilities = from->loss == DUET_NLL,
                            .sync_bn = options->sync_bn,
                            .init_d2l = options->init_d2l,
                            .dropout = -1};
    int code = from == net_find(name) ? net_open(&model->net, from, &sample, classes) : OK;
    if (model->net) from = &model->net->model;
    if (!code) code = module_describe(model, from, options);
    if (!code && from != &described_model && !model->net) code = check_count(model);
    if (!code) code = check_options(model);
    if (!code && graph_of(from)) code = graph_check(model);
    if (code) model_free(model);
    return code;
}

void model_free(struct model *model) {
    if (!model) return;
    module_free(model);
    graph_free(model->net);
    memset(model, 0, sizeof *model);
}
