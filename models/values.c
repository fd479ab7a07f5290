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

size_t model_count(const struct model *model) {
    size_t count = 0;
    for (int i = 0; i < model->param_count; i++)
        count += param_spec_count(&model->params[i]);
    return count;
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

int model_values_save(const struct model *model, struct atomic_file *file, float *const *values) {
    struct safetensors_item *items = calloc((size_t)model->param_count, sizeof *items);
    if (!items) return fail(ERR_MEMORY, "%s: no host memory", file->name);
    for (int i = 0; i < model->param_count; i++) {
        const struct param_spec *spec = &model->params[i];
        items[i] =
            (struct safetensors_item){.name = spec->name, .dims = spec->rank, .data = values[i]};
        shape_of(spec, items[i].shape);
    }
    const struct safetensors_pair about = {"format", "pt"};
    int code = safetensors_write(file, items, model->param_count, &about, 1);
    free(items);
    return code;
}
