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

/* Allocates zeroed host memory. (*values)[i] belongs to parameter i; all values are in one block,
 * which state_values_free frees (NULL is fine). *buffers has the layout of nn/buffer.h, or is NULL
 * without buffers; free() frees it. */
int state_values(const struct state *state, float ***values);
int state_buffers(const struct state *state, void **buffers);
void state_values_free(float **values);

/* Lists the tensors in such memory: with wide 1 those with 8-byte elements, otherwise all others. A
 * file has the wide ones first, so that all its tensors are aligned. Returns their number. */
int state_items(const struct state *state, float *const *values, const void *buffers, int wide,
                struct safetensors_item *items);

/* Reads the tensors with these names from a file; skips values or buffers if NULL. */
int state_read(const struct state *state, const struct safetensors *file, float *const *values,
               void *buffers);

#endif
