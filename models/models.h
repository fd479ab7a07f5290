/* Inside models/: each model's file describes its model to model_open, which knows them by name. */
#ifndef MODELS_MODELS_H
#define MODELS_MODELS_H

#include "models/model.h"

enum { MODEL_MAX_LAYERS = MODEL_HIDDEN_MAX + 1 }; /* linear layers of an mlp */

/* Each fills in what model_open leaves open: init, forward, parameters, normalisation, the kind of
 * loss. ERR_USAGE names an option that the model cannot have. */
int lenet_describe(struct model *model, const struct model_options *options);
int convnet_describe(struct model *model, const struct model_options *options);
int branches_describe(struct model *model, const struct model_options *options);
int mlp_describe(struct model *model, const struct model_options *options);
int resnet18_describe(struct model *model, const struct model_options *options);
int simple_describe(struct model *model, const struct model_options *options);
int complex_describe(struct model *model, const struct model_options *options);
int described_describe(struct model *model, const struct model_options *options);

/* ERR_USAGE: the samples have fewer than side x side pixels. */
int model_needs_pixels(const struct model *model, int side);

/* Give the model a copy of `count` specs of its parameters and of its buffers. */
int model_set_params(struct model *model, const struct param_spec *specs, int count);
int model_set_buffers(struct model *model, const struct buffer_spec *specs, int count);

#endif
