/* Inside models/: the models that --model knows by name, and a few models' options that duet.h
 * lacks. */
#ifndef MODELS_MODELS_H
#define MODELS_MODELS_H

#include "models/model.h"

enum { MODEL_MAX_LAYERS = MODEL_HIDDEN_MAX + 1 }; /* linear layers of an mlp */

extern const struct duet_model lenet_model, convnet_model, mlp_model, resnet18_model, simple_model,
    complex_model, wide_model, branches_model, described_model;

/* A net that is stored as a graph in the program, only for dry runs (nets.c). The result has its
 * name and its sample; NULL: no such net. */
const struct duet_model *net_find(const char *name);
/* The first name that contains `word`, or else the most similar name; NULL: none. */
const char *net_like(const char *word);
/* The graph of such a net for samples of these sizes; the caller frees it. */
int net_open(struct graph **out, const struct duet_model *model, const struct sample_shape *sample,
             int classes);

/* A duet_module is the struct model in the making, under another name. */
static inline struct model *model_of(duet_module *module) {
    return (struct model *)module;
}
static inline const struct model *const_model_of(const duet_module *module) {
    return (const struct model *)module;
}

/* For describe: the model's options; a failure with this code, whose message is set. */
const struct model_options *module_options(const duet_module *module);
void module_fail(duet_module *module, int code);

/* Refuses images with a side shorter than `side`. */
void module_needs_pixels(duet_module *module, int side);

/* Registers a buffer, ignoring the name in `spec`, and returns its index. */
int module_buffer(duet_module *module, const char *name, const struct buffer_spec *spec);

/* Calls `describe` to fill in parameters, buffers and layers, and sets the functions. Returns the
 * first failure of describe. The caller has set the model's name, sample and classes. */
int module_describe(struct model *model, const struct duet_model *from,
                    const struct model_options *options);
void module_free(struct model *model);

#endif
