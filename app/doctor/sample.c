/* A model and a batch: see sample.h. */
#include "doctor/sample.h"

#include <stdlib.h>

#include "base/error.h"

/* The initial values are multiplied so that the scores of the classes differ. With LeNet's own
 * initial values all classes have nearly the same probability whatever the picture is, and the loss
 * would hardly depend on the first layers. */
static const struct {
    const char *name;
    float factor; /* for the initial values */
    struct sample_shape sample;
    int classes;
} models[SAMPLE_MODELS] = {{"lenet", 10, {1, 28, 28}, 10},
                           {"convnet", 1.5f, {1, 28, 28}, 10},
                           {"complex", 3, {3, 9, 11}, 37}}; /* colours, odd sides, more classes */

const char *sample_name(int i) {
    return models[i].name;
}

int sample_open(struct sample *s, const struct doctor *d, int i, uint64_t seed) {
    const struct model_options options = {
        .dropout = -1, .sample = models[i].sample, .classes = models[i].classes};
    int n = d->config.quick ? 9 : SAMPLE_MOST - 3; /* segments that end inside a group of 16 */
    struct rng rng;
    CHECK(model_open(&s->model, models[i].name, &options));
    CHECK(model_values_init(&s->model, seed, &s->values));
    for (int p = 0; p < s->model.param_count; p++)
        for (size_t k = 0; k < param_spec_count(&s->model.params[p]); k++)
            s->values[p][k] *= models[i].factor;
    s->pixels_each = (size_t)(s->model.channels * s->model.height * s->model.width);
    s->pixels = malloc((size_t)n * s->pixels_each * sizeof(float));
    if (!s->pixels) return fail(ERR_MEMORY, "doctor: no host memory for a batch: free some memory");
    rng_seed(&rng, seed + 1);
    rng_uniform(&rng, s->pixels, (size_t)n * s->pixels_each, 0, 1);
    s->segments = (struct segments){2, n, {{0, n / 2 + 1}, {1, n - n / 2 - 1}}};
    for (int k = 0; k < n; k++)
        s->labels[k] = (int32_t)(rng_u32(&rng) % (uint32_t)s->model.classes);
    return OK;
}

void sample_free(struct sample *s) {
    free(s->pixels);
    model_values_free(s->values);
    model_free(&s->model);
}
