/* What the model files share: each describes itself to model_open, which knows them by name. */
#ifndef MODELS_MODELS_H
#define MODELS_MODELS_H

#include "models/model.h"

enum { MODEL_MAX_LAYERS = 17 }; /* of an mlp: 16 hidden and the last */

/* Fills in what model_open has not: init, forward, parameters, normalisation, kind of loss. */
int lenet_describe(struct model *model, const struct model_options *options);
int convnet_describe(struct model *model, const struct model_options *options);
int mlp_describe(struct model *model, const struct model_options *options);

/* Copies the specs into the model. */
int model_set_params(struct model *model, const struct param_spec *specs, int count);

#endif
