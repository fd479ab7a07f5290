/* Reads the values and buffers of a model from a weights file into host memory. */
#ifndef TESTS_MODELS_VALUES_H
#define TESTS_MODELS_VALUES_H

#include "base/error.h"
#include "base/files/safetensors.h"
#include "models/model.h"
#include "nn/params/state.h"

/* buffers: NULL: not wanted. After an error nothing is left. */
static inline int values_load(const struct model *m, const char *path, float ***values,
                              void **buffers) {
    const struct state state = {m->params, m->param_count, m->buffers, m->buffer_count};
    struct safetensors file = {0};
    *values = NULL;
    int code = safetensors_open(&file, path);
    if (!code) code = state_values(&state, values);
    if (!code && buffers) code = state_buffers(&state, buffers);
    if (!code) code = state_read(&state, &file, *values, buffers ? *buffers : NULL);
    safetensors_close(&file);
    if (code) model_values_free(*values), *values = NULL;
    return code;
}

#endif
