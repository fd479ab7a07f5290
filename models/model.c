/* The models by name, and what all of them share. */
#include "models/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const struct {
    const char *name;
    int (*describe)(struct model *model, const struct model_options *options);
} known[] = {{"lenet", lenet_describe}, {"convnet", convnet_describe}, {"mlp", mlp_describe}};

int model_open(struct model *model, const char *name, const struct model_options *options) {
    memset(model, 0, sizeof *model);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, name)) continue;
        *model = (struct model){.name = known[i].name,
                                .channels = 1,
                                .height = 28,
                                .width = 28,
                                .classes = 10,
                                .mean = 0,
                                .std = 1,
                                .dropout = -1};
        int code = known[i].describe(model, options);
        if (code) model_free(model);
        return code;
    }
    return fail(ERR_USAGE, "model: %s: there are lenet, convnet and mlp", name);
}

void model_free(struct model *model) {
    if (!model) return;
    free(model->params);
    free(model->buffers);
    memset(model, 0, sizeof *model);
}

struct var *model_loss(const struct model *model, struct tape *t, struct var *output,
                       const struct tensor *labels) {
    if (model->log_probabilities) return nll_loss(t, output, labels, REDUCE_MEAN);
    return cross_entropy(t, output, labels, REDUCE_MEAN);
}
