/* The parameters of a model in host memory: their number, and their values, drawn from a seed. */
#include <stdlib.h>

#include "base/error.h"
#include "models/models.h"

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

int model_values_alloc(const struct model *model, float ***out) {
    const size_t count = model_count(model);
    float **values = *out = calloc((size_t)model->param_count + 1, sizeof *values);
    float *block = calloc(count + 1, sizeof *block);
    if (!values || !block) {
        free(values);
        free(block);
        *out = NULL;
        return fail(ERR_MEMORY, "parameters: out of host memory for %zu numbers", count);
    }
    values[0] = block;
    for (int i = 0; i < model->param_count; block += param_spec_count(&model->params[i++]))
        values[i] = block;
    return OK;
}

void model_values_free(float **values) {
    if (values) free(values[0]);
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
    case DUET_WEIGHT: rng_weight(engine, x, count, (int)init.a); break;
    case DUET_BIAS: rng_bias(engine, x, count, (int)init.a); break;
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

size_t model_buffer_bytes(const struct model *model) {
    return buffer_offset(model->buffers, model->buffer_count, model->buffer_count);
}
