/* The parameters and buffers of a model in host memory, and as the tensors of a safetensors file. A
 * program's duet_params and the command's models both use it. */
#ifndef NN_PARAMS_STATE_H
#define NN_PARAMS_STATE_H

#include "base/files/safetensors.h"
#include "nn/buffer.h"
#include "nn/param.h"

/* The parameters and buffers, in registration order. */
struct state {
    const struct param_spec *params;
    int param_count;
    const struct buffer_spec *buffers;
    int buffer_count;
};

/* Host memory, zeros. (*values)[i] is that of parameter i, all of them in one block, which
 * state_values_free frees (NULL is fine). *buffers is laid out as nn/buffer.h says, for free; NULL
 * if there are none. */
int state_values(const struct state *state, float ***values);
int state_buffers(const struct state *state, void **buffers);
void state_values_free(float **values);

/* Lists the tensors of such memory: with wide 1 those of 8-byte elements, else all others. In a
 * file the wide ones come first, so that every tensor of it is aligned. Returns their number. */
int state_items(const struct state *state, float *const *values, const void *buffers, int wide,
                struct safetensors_item *items);

/* Reads a file's tensors of these names; values or buffers NULL: without those. */
int state_read(const struct state *state, const struct safetensors *file, float *const *values,
               void *buffers);

#endif
