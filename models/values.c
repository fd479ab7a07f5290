/* The parameters of a model in host memory: their list, and their values, drawn from a seed or kept
 * in a safetensors file. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/files/safetensors.h"
#include "models/models.h"
#include "nn/init.h"

size_t model_count(const struct model *model) {
    size_t count = 0;
    for (int i = 0; i < model->param_count; i++)
        count += param_spec_count(&model->params[i]);
    return count;
}

size_t model_trained(const struct model *model) {
    size_t count = 0;
    for (int i = 0; i < model->param_count; i++)
        if (!model->params[i].frozen) count += param_spec_count(&model->params[i]);
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

static void fill(float *x, size_t count, double value) {
    for (size_t i = 0; i < count; i++)
        x[i] = (float)value;
}

static void draw(struct rng *engine, struct duet_init init, float *x, size_t count) {
    switch (init.kind) {
    case DUET_CONSTANT: fill(x, count, init.a); break;
    case DUET_NORMAL: rng_normal(engine, x, count, init.a, init.b); break;
    case DUET_UNIFORM: rng_uniform(engine, x, count, init.a, init.b); break;
    case DUET_WEIGHT: init_weight(engine, x, count, (int)init.a); break;
    case DUET_BIAS: init_bias(engine, x, count, (int)init.a); break;
    }
}

/* Draws the values of all parameters, in the order of registration. */
static void draw_all(const struct model *model, struct rng *engine, float *const *values) {
    struct duet_rng rng;
    for (int i = 0; i < model->param_count; i++)
        draw(engine, model->inits[i], values[i], param_spec_count(&model->params[i]));
    if (!model->init_more) return;
    rng.engine = *engine;
    model->init_more((const duet_module *)model, &rng, values, model->context);
    *engine = rng.engine;
}

int model_values_init(const struct model *model, uint64_t seed, float ***out) {
    struct rng engine;
    float **values;
    CHECK(model_values_alloc(model, &values));
    rng_seed(&engine, seed);
    draw_all(model, &engine, values);
    *out = values;
    return OK;
}

static int64_t *shape_of(const struct param_spec *spec, int64_t *shape) {
    for (int i = 0; i < spec->rank; i++)
        shape[i] = spec->dims[i];
    return shape;
}

int model_values_read(const struct model *model, const struct safetensors *file, float ***out) {
    int64_t shape[MAX_RANK];
    int code = OK;
    float **values = NULL;
    CHECK(model_values_alloc(model, &values));
    for (int i = 0; !code && i < model->param_count; i++) {
        const struct param_spec *spec = &model->params[i];
        code = safetensors_read(file, spec->name, spec->rank, shape_of(spec, shape), values[i]);
    }
    if (code)
        model_values_free(values);
    else
        *out = values;
    return code;
}

int model_values_load(const struct model *model, const char *path, float ***out,
                      const char **halves) {
    struct safetensors file = {0};
    CHECK(safetensors_open(&file, path));
    int code = model_values_read(model, &file, out);
    if (halves) *halves = safetensors_halves(&file);
    safetensors_close(&file);
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

static int wide(const struct safetensors_item *item) {
    return item->dtype && !strcmp(item->dtype, "I64");
}

/* 8-byte elements come first, so that every tensor of the file is aligned. */
static void add_of_width(struct safetensors_item *items, int *count,
                         const struct safetensors_item *more, int most, int is_wide) {
    for (int i = 0; i < most; i++)
        if (wide(&more[i]) == is_wide) items[(*count)++] = more[i];
}

int model_state_save(const struct model *model, struct atomic_file *file,
                     const struct model_state *state) {
    int own = model->param_count + model->buffer_count, count = 0;
    struct safetensors_item *all = calloc((size_t)own + 1, sizeof *all),
                            *items = calloc((size_t)(own + state->more_count) + 1, sizeof *items);
    int code = all && items ? OK : fail(ERR_MEMORY, "%s: no host memory", file->name);
    for (int i = 0; !code && i < own; i++) {
        const struct param_spec *spec = &model->params[i];
        if (i < model->param_count) {
            all[i] = (struct safetensors_item){
                .name = spec->name, .dims = spec->rank, .data = state->values[i]};
            shape_of(spec, all[i].shape);
        } else {
            all[i] = buffer_item(model, i - model->param_count, state->buffers);
        }
    }
    for (int is_wide = 1; !code && is_wide >= 0; is_wide--) {
        add_of_width(items, &count, all, own, is_wide);
        add_of_width(items, &count, state->more, state->more_count, is_wide);
    }
    if (!code) code = safetensors_write(file, items, count, state->about, state->pairs);
    free(all);
    free(items);
    return code;
}

int model_values_save(const struct model *model, struct atomic_file *file, float *const *values,
                      const void *buffers) {
    const struct safetensors_pair about = {"format", "pt"};
    const struct model_state state = {
        .values = values, .buffers = buffers, .about = &about, .pairs = 1};
    return model_state_save(model, file, &state);
}

size_t model_buffer_bytes(const struct model *model) {
    return buffer_offset(model->buffers, model->buffer_count, model->buffer_count);
}

int model_buffers_read(const struct model *model, const struct safetensors *file, void **out) {
    int code = OK;
    *out = NULL;
    if (!model->buffer_count) return OK;
    char *block = calloc(1, model_buffer_bytes(model));
    if (!block) return fail(ERR_MEMORY, "model %s: no host memory for its buffers", model->name);
    for (int i = 0; !code && i < model->buffer_count; i++) {
        struct safetensors_item item = buffer_item(model, i, block);
        size_t offset = buffer_offset(model->buffers, model->buffer_count, i);
        code =
            safetensors_read_as(file, item.dtype, item.name, item.dims, item.shape, block + offset);
    }
    if (code)
        free(block);
    else
        *out = block;
    return code;
}

int model_buffers_load(const struct model *model, const char *path, void **out) {
    struct safetensors file = {0};
    *out = NULL;
    if (!model->buffer_count) return OK;
    CHECK(safetensors_open(&file, path));
    int code = model_buffers_read(model, &file, out);
    safetensors_close(&file);
    return code;
}
