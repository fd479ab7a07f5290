/* A net of two layers under DataParallel, for its tests: devices, two sets of equal parameters, a
 * tape for comparison, and a forward function that fails at a given place. */
#ifndef TESTS_API_DP_WORLD_H
#define TESTS_API_DP_WORLD_H

#include <stdatomic.h>
#include <unistd.h>

#include "dp/dp.h"
#include "tests/duet/shared.h"

enum { W1, B1, W2, B2, UNUSED, PARAMS };
enum { K = 6, HIDDEN = 70, CLASSES = 3, LARGEST = HIDDEN * K, DEVICES = 5, SAMPLES = 40 };
static const struct duet_param shapes[PARAMS] = {{"fc1.weight", 2, {HIDDEN, K}, NULL},
                                                 {"fc1.bias", 1, {HIDDEN}, NULL},
                                                 {"fc2.weight", 2, {CLASSES, HIDDEN}, NULL},
                                                 {"fc2.bias", 1, {CLASSES}, NULL},
                                                 {"unused", 1, {4}, NULL}};

/* Tells forward for which number of samples to fail, and how. */
struct wrong {
    int samples;
    enum { NOT_AT_ALL, BAD_LAYER, OTHER_SHAPE, NOTHING } how;
};

static inline duet_var *forward(duet_tape *t, duet_var *x, void *context) {
    const struct wrong *wrong = context;
    duet_tensor *value;
    int samples = duet_var_value(&value, t, x) ? 0 : duet_tensor_dim(value, 0);
    float seen[SAMPLES * K];
    /* A device other than the first reads its rows before the first has run anything: on late
     * devices the rows are there only if its stream waits for the scatter. */
    if (value && !strstr(duet_device_name(duet_tensor_device(value)), "(0)"))
        duet_tensor_read(value, seen);
    duet_tensor_free(value);
    int here = samples == wrong->samples ? (int)wrong->how : NOT_AT_ALL;
    duet_var *h = duet_relu(t, duet_linear(t, x, W1, here == BAD_LAYER ? PARAMS : B1));
    return here == NOTHING ? NULL : here == OTHER_SHAPE ? h : duet_linear(t, h, W2, B2);
}

struct world {
    int n;
    duet_device *devices[DEVICES];
    duet_params *params, *alone; /* equal values, both on device 0 */
    duet_tape *tape, *loss_tape; /* on device 0 and on the output device */
    duet_data_parallel *dp;
    struct wrong wrong;
    float x[SAMPLES * K];
    int32_t labels[SAMPLES];
};

static inline void open_devices(struct world *w, const char *kind, int n) {
    static float values[PARAMS][LARGEST];
    struct duet_param params[PARAMS];
    duet_rng *rng;
    memset(w, 0, sizeof *w);
    w->n = n;
    MUST(duet_rng_create(&rng, 7));
    memcpy(params, shapes, sizeof shapes);
    for (int i = 0; i < PARAMS; i++) {
        duet_rng_normal(rng, values[i], LARGEST, 0, 0.4);
        params[i].values = values[i];
    }
    duet_rng_normal(rng, w->x, SAMPLES * K, 0, 1);
    duet_rng_free(rng);
    for (int i = 0; i < SAMPLES; i++)
        w->labels[i] = i * 5 % CLASSES;
    MUST(duet_devices_open(w->devices, n, kind, api_memory(kind)));
    MUST(duet_params_create(&w->params, w->devices[0], params, PARAMS));
    MUST(duet_params_create(&w->alone, w->devices[0], params, PARAMS));
    MUST(duet_tape_create(&w->tape, w->devices[0]));
}

static inline void open_world(struct world *w, const char *kind, int n, int output_device) {
    struct duet_data_parallel_options options = {.output_device = output_device};
    open_devices(w, kind, n);
    MUST(duet_tape_create(&w->loss_tape, w->devices[output_device]));
    MUST(duet_data_parallel_create(&w->dp, w->devices, n, w->params, forward, &w->wrong, &options));
    cr_assert_eq(w->dp->used, n);
}

static inline void close_world(struct world *w) {
    duet_data_parallel_free(w->dp);
    duet_tape_free(w->tape);
    duet_tape_free(w->loss_tape);
    duet_params_free(w->params);
    duet_params_free(w->alone);
    duet_devices_close(w->devices, w->n);
}

static inline duet_tensor *samples(struct world *w, int from, int count) {
    duet_tensor *x;
    MUST(duet_tensor_create(&x, w->devices[0], DUET_F32, 2, (int[]){count, K}, w->x + from * K));
    return x;
}

static inline duet_tensor *labels(struct world *w, int device, int from, int count) {
    duet_tensor *y;
    MUST(duet_tensor_create(&y, w->devices[device], DUET_I32, 1, &count, w->labels + from));
    return y;
}

static inline void read_grads(duet_params *params, float grads[PARAMS][LARGEST]) {
    for (int i = 0; i < PARAMS; i++)
        MUST(duet_tensor_read(duet_params_grad(params, i), grads[i]));
}

#endif
