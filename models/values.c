/* The parameters of a model in host memory: their list, and their values, drawn from a seed or kept
 * in a safetensors file. */
#include <stdlib.h>
#include <string.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "data/safetensors.h"
#include "models/models.h"

int model_set_params(struct model *model, const struct param_spec *specs, int count) {
    model->params = malloc((size_t)count * sizeof *specs);
    if (!model->params) return fail(ERR_MEMORY, "model %s: no host memory", model->name);
    memcpy(model->params, specs, (size_t)count * sizeof *specs);
    model->param_count = count;
    return OK;
}

int model_set_buffers(struct model *model, const struct buffer_spec *specs, int count) {
    model->buffers = malloc((size_t)count * sizeof *specs);
    if (!model->buffers) return fail(ERR_MEMORY, "model %s: no host memory", model->name);
    memcpy(model->buffers, specs, (size_t)count * sizeof *specs);
    model->buffer_count = count;
    return OK;
}

size_t model_count(const struct model *model) {
    size_t count = 0;
    for (int i = 0; i < model->param_count; i++)
        count += param_spec_count(&model->params[i]);
    return count;
}

int model_hashes(const struct model *model) {
    return 2 * model->param_count + model->buffer_count;
}

/* One block for all parameters, and a pointer to each one's part of it. */
int model_values_alloc(const struct model *model, float ***out) {
    float **values = calloc((size_t)model->param_count + 1, sizeof *values);
    float *block = calloc(model_count(model) + 1, sizeof *block);
    if (!values || !block) {
        free(values);
        free(block);
        return fail(ERR_MEMORY, "model %s: no host memory for %zu parameters", model->name,
                    model_count(model));
    }
    for (int i = 0; i < model->param_count; i++) {
        values[i] = block;
        block += param_spec_count(&model->params[i]);
    }
    *out = values;
    return OK;
}

void model_values_free(float **values) {
    if (!values) return;
    free(values[0]);
    free(values);
}

int model_values_init(const struct model *model, uint64_t seed, float ***out) {
    struct rng engine;
    float **values;
    CHECK(model_values_alloc(model, &values));
    rng_seed(&engine, seed);
    int code = model->init(model, &engine, values);
    if (code)
        model_values_free(values);
    else
        *out = values;
    return code;
}

static int64_t *shape_of(const struct param_spec *spec, int64_t *shape) {
    for (int i = 0; i < spec->rank; i++)
        shape[i] = spec->dims[i];
    return shape;
}

int model_values_load(const struct model *model, const char *file, float ***out) {
    struct safetensors s = {0};
    int64_t shape[MAX_RANK];
    int code = OK;
    float **values = NULL;
    CHECK_GOTO(safetensors_open(&s, file), code, done);
    CHECK_GOTO(model_values_alloc(model, &values), code, done);
    for (int i = 0; i < model->param_count; i++) {
        const struct param_spec *spec = &model->params[i];
        CHECK_GOTO(safetensors_read(&s, spec->name, spec->rank, shape_of(spec, shape), values[i]),
                   code, done);
    }
    *out = values;
    values = NULL;
done:
    model_values_free(values);
    safetensors_close(&s);
    return code;
}

static const char *dtype_of(const struct buffer_spec *spec) {
    return spec->dtype == DTYPE_I64 ? "I64" : "F32";
}

static struct safetensors_item buffer_item(const struct model *model, int i, const void *buffers) {
    const struct buffer_spec *spec = &model->buffers[i];
    size_t offset = buffer_offset(model->buffers, model->buffer_count, i);
    struct safetensors_item item = {.name = spec->name,
                                    .dtype = dtype_of(spec),
                                    .dims = spec->rank,
                                    .data = buffers ? (const char *)buffers + offset : NULL};
    for (int d = 0; d < spec->rank; d++)
        item.shape[d] = spec->dims[d];
    return item;
}

int model_values_save(const struct model *model, struct atomic_file *file, float *const *values,
                      const void *buffers, const char *prefix) {
    int count = 0, most = model->param_count + model->buffer_count;
    struct safetensors_item *items = calloc((size_t)most + 1, sizeof *items);
    if (!items) return fail(ERR_MEMORY, "%s: no host memory", file->name);
    /* 8-byte elements come first, so that every tensor of the file is aligned */
    for (int i = 0; i < model->buffer_count; i++)
        if (model->buffers[i].dtype == DTYPE_I64) items[count++] = buffer_item(model, i, buffers);
    for (int i = 0; i < model->param_count; i++) {
        const struct param_spec *spec = &model->params[i];
        items[count] =
            (struct safetensors_item){.name = spec->name, .dims = spec->rank, .data = values[i]};
        shape_of(spec, items[count++].shape);
    }
    for (int i = 0; i < model->buffer_count; i++)
        if (model->buffers[i].dtype != DTYPE_I64) items[count++] = buffer_item(model, i, buffers);
    for (int i = 0; i < count; i++)
        items[i].prefix = prefix;
    const struct safetensors_pair about = {"format", "pt"};
    int code = safetensors_write(file, items, count, &about, 1);
    free(items);
    return code;
}

size_t model_buffer_bytes(const struct model *model) {
    return buffer_offset(model->buffers, model->buffer_count, model->buffer_count);
}

int model_buffers_load(const struct model *model, const char *file, void **out) {
    struct safetensors s = {0};
    int code = OK;
    *out = NULL;
    if (!model->buffer_count) return OK;
    char *block = calloc(1, model_buffer_bytes(model));
    if (!block) return fail(ERR_MEMORY, "model %s: no host memory for its buffers", model->name);
    CHECK_GOTO(safetensors_open(&s, file), code, done);
    for (int i = 0; i < model->buffer_count; i++) {
        struct safetensors_item item = buffer_item(model, i, block);
        size_t offset = buffer_offset(model->buffers, model->buffer_count, i);
        CHECK_GOTO(
            safetensors_read_as(&s, item.dtype, item.name, item.dims, item.shape, block + offset),
            code, done);
    }
    *out = block;
    block = NULL;
done:
    free(block);
    safetensors_close(&s);
    return code;
}
