/* Makes a model as a .duet file, with weights from a formula in the file next to it. */
#ifndef TESTS_CLI_NETS_H
#define TESTS_CLI_NETS_H

#include <math.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "models/graph/graph.h"
#include "models/model.h"
#include "tests/app/cli/run.h"
#include "tests/golden/golden.h"
#include "tests/models/values.h"

/* formulas.weights of tests/golden/make_exported.py. */
static inline void net_fill(float *x, int number, const struct param_spec *p) {
    size_t count = param_spec_count(p);
    double wide = sqrt(3.0 / (double)(count / (size_t)p->dims[0]));
    for (size_t i = 0; i < count; i++) {
        uint64_t z = golden_splitmix64(((uint64_t)number << 32) + i);
        double u = (double)(z >> 11) * 0x1p-52 - 1;
        x[i] = (float)(p->rank > 1 ? u * wide : strstr(p->name, "bias") ? 0.1 * u : 1 + 0.2 * u);
    }
}

/* Element i of a constant is i; those of a spectral_norm are 1. */
static inline void net_fill_buffers(const struct model *m, char *arena) {
    buffer_initial(m->buffers, m->buffer_count, arena);
    for (int b = 0; b < m->buffer_count; b++) {
        const struct buffer_spec *spec = &m->buffers[b];
        float *x = (float *)(arena + buffer_offset(m->buffers, m->buffer_count, b));
        for (size_t i = 0; i < buffer_spec_bytes(spec) / sizeof *x; i++)
            if (spec->dtype == DTYPE_F32)
                x[i] = strstr(spec->name, "constant.")
                           ? (float)i
                           : strstr(spec->name, "var") || strstr(spec->name, "._");
    }
}

/* Writes a file of weights. */
static inline void put_values(const char *path, const struct model *m, float *const *values,
                              char *buffers) {
    struct safetensors_item items[m->param_count + m->buffer_count];
    struct atomic_file file = {0};
    int count = values_list(m, values, buffers, items);
    cr_assert_eq(atomic_open(&file, path), OK);
    cr_assert_eq(safetensors_write(&file, items, count, NULL, 0), OK);
    cr_assert_eq(atomic_commit(&file), OK, "%s", error_message());
    atomic_abandon(&file);
}

/* Writes text and weights into this folder, as PATH and PATH less .duet with .safetensors. */
static inline struct graph *net_put(const char *path, const char *text, struct model *m) {
    struct graph *g = NULL;
    float **values;
    char weights[64];
    const char *end = strstr(path, ".duet");
    FILE *copy = fopen(path, "w");
    cr_assert(copy && fputs(text, copy) >= 0 && !fclose(copy));
    cr_assert_eq(graph_parse(&g, path, text, strlen(text)), OK, "%s", error_message());
    struct model_options options = {.dropout = -1, .own = &g->model};
    cr_assert_eq(model_open(m, g->name, &options), OK, "%s", error_message());
    cr_assert_eq(model_values_alloc(m, &values), OK);
    for (int i = 0; i < m->param_count; i++)
        net_fill(values[i], i, &m->params[i]);
    char *buffers = calloc(1, model_buffer_bytes(m) + 1);
    net_fill_buffers(m, buffers);
    snprintf(weights, sizeof weights, "%.*s.safetensors",
             (int)(end ? (size_t)(end - path) : strlen(path)), path);
    put_values(weights, m, values, buffers);
    model_values_free(values);
    free(buffers);
    return g;
}

static inline void put_net(const char *path, const char *text) {
    struct model m;
    struct graph *g = net_put(path, text, &m);
    model_free(&m);
    graph_free(g);
}

/* A small model with BatchNorm, for images of 1x9x8 and ten classes. */
static inline void put_norm_model(const char *path) {
    put_net(path, "duet 1\n"
                  "input %x: f32[N, 1, 9, 8]\n"
                  "parameter conv.weight: f32[8, 1, 3, 3]\n"
                  "parameter conv.bias: f32[8]\n"
                  "parameter bn.weight: f32[8]\n"
                  "parameter bn.bias: f32[8]\n"
                  "parameter fc.weight: f32[10, 576]\n"
                  "parameter fc.bias: f32[10]\n"
                  "buffer bn.running_mean: f32[8]\n"
                  "buffer bn.running_var: f32[8]\n"
                  "buffer bn.num_batches_tracked: i64[]\n"
                  "%1: f32[N, 8, 9, 8] = conv2d(%x, conv.weight, conv.bias, padding=1)\n"
                  "%2: f32[N, 8, 9, 8] = batch_norm(%1, bn.weight, bn.bias, bn.running_mean, "
                  "bn.running_var, bn.num_batches_tracked, eps=1e-05, momentum=0.1)\n"
                  "%3: f32[N, 8, 9, 8] = relu(%2)\n"
                  "%4: f32[N, 576] = flatten(%3)\n"
                  "%5: f32[N, 10] = linear(%4, fc.weight, fc.bias)\n"
                  "return %5\n");
}

#endif
