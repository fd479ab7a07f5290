/* Lists the tensors in a file of parameters; see state.h. */
#include "nn/params/state.h"

#include <stdlib.h>

#include "base/error.h"

int state_values(const struct state *s, float ***out) {
    size_t count = 0;
    for (int i = 0; i < s->param_count; i++)
        count += param_spec_count(&s->params[i]);
    float **values = *out = calloc((size_t)s->param_count + 1, sizeof *values);
    float *block = calloc(count + 1, sizeof *block);
    if (!values || !block) {
        free(values);
        free(block);
        *out = NULL;
        return fail(ERR_MEMORY, "parameters: out of host memory for %zu numbers", count);
    }
    values[0] = block;
    for (int i = 0; i < s->param_count; block += param_spec_count(&s->params[i++]))
        values[i] = block;
    return OK;
}

void state_values_free(float **values) {
    if (values) free(values[0]);
    free(values);
}

int state_buffers(const struct state *s, void **out) {
    size_t bytes = buffer_offset(s->buffers, s->buffer_count, s->buffer_count);
    *out = bytes ? calloc(1, bytes) : NULL;
    if (*out || !bytes) return OK;
    return fail(ERR_MEMORY, "buffers: out of host memory for %zu bytes", bytes);
}

static struct safetensors_item item_of(const char *name, const char *dtype, int rank,
                                       const int *dims, const void *data) {
    struct safetensors_item item = {.name = name, .dtype = dtype, .dims = rank, .data = data};
    for (int d = 0; d < rank; d++)
        item.shape[d] = dims[d];
    return item;
}

static struct safetensors_item param_item(const struct state *s, int i, const float *values) {
    const struct param_spec *spec = &s->params[i];
    return item_of(spec->name, NULL, spec->rank, spec->dims, values);
}

static struct safetensors_item buffer_item(const struct state *s, int i, const void *arena) {
    const struct buffer_spec *spec = &s->buffers[i];
    return item_of(spec->name, spec->dtype == DTYPE_I64 ? "I64" : "F32", spec->rank, spec->dims,
                   (const char *)arena + buffer_offset(s->buffers, s->buffer_count, i));
}

int state_items(const struct state *s, float *const *values, const void *buffers, int wide,
                struct safetensors_item *items) {
    int count = 0;
    for (int i = 0; !wide && i < s->param_count; i++)
        items[count++] = param_item(s, i, values[i]);
    for (int i = 0; i < s->buffer_count; i++)
        if ((s->buffers[i].dtype == DTYPE_I64) == wide) items[count++] = buffer_item(s, i, buffers);
    return count;
}

int state_read(const struct state *s, const struct safetensors *file, float *const *values,
               void *buffers) {
    for (int i = 0; values && i < s->param_count; i++) {
        struct safetensors_item item = param_item(s, i, NULL);
        CHECK(safetensors_read(file, item.name, item.dims, item.shape, values[i]));
    }
    for (int i = 0; buffers && i < s->buffer_count; i++) {
        struct safetensors_item item = buffer_item(s, i, buffers);
        CHECK(safetensors_read_as(file, item.dtype, item.name, item.dims, item.shape,
                                  (void *)item.data));
    }
    return OK;
}
