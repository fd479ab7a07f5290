/* Lists the values and buffers of a model, and reads them from a weights file into host memory. */
#ifndef TESTS_MODELS_VALUES_H
#define TESTS_MODELS_VALUES_H

#include <stdlib.h>

#include "base/error.h"
#include "base/files/safetensors.h"
#include "models/model.h"

/* The tensors of a model's file, whose data are here; buffers as in nn/buffer.h, or NULL: without
 * them. Returns their number. */
static inline int values_list(const struct model *m, float *const *values, char *buffers,
                              struct safetensors_item *items) {
    const int count = m->param_count + (buffers ? m->buffer_count : 0);
    for (int i = 0; i < count; i++) {
        const int k = i - m->param_count; /* of the buffers */
        const struct buffer_spec *b = k < 0 ? NULL : &m->buffers[k];
        const struct param_spec *p = b ? NULL : &m->params[i];
        items[i] = (struct safetensors_item){.name = b ? b->name : p->name,
                                             .dims = b ? b->rank : p->rank,
                                             .dtype = b && b->dtype == DTYPE_I64 ? "I64" : "F32"};
        for (int d = 0; d < items[i].dims; d++)
            items[i].shape[d] = b ? b->dims[d] : p->dims[d];
        items[i].data = b ? (void *)(buffers + buffer_offset(m->buffers, m->buffer_count, k))
                          : (void *)values[i];
    }
    return count;
}

/* buffers: NULL: not wanted. After an error nothing is left. */
static inline int values_load(const struct model *m, const char *path, float ***values,
                              void **buffers) {
    struct safetensors file = {0};
    *values = NULL;
    int code = safetensors_open(&file, path);
    if (!code) code = model_values_alloc(m, values);
    if (buffers) *buffers = calloc(1, model_buffer_bytes(m) + 1);
    struct safetensors_item item[m->param_count + m->buffer_count];
    int count = code ? 0 : values_list(m, *values, buffers ? *buffers : NULL, item);
    for (int i = 0; i < count && !code; i++)
        code = safetensors_read(&file, item[i].dtype, item[i].name, item[i].dims, item[i].shape,
                                (void *)item[i].data);
    safetensors_close(&file);
    if (code) model_values_free(*values), *values = NULL;
    return code;
}

#endif
