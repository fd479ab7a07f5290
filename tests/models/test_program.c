/* Tests duet_params_create_model: a struct duet_model in a program with its own training loop. Its
 * names, shapes, initial values and buffers are those that describe requests; its layers do what
 * the functions of the tape do; misuse is one line of error. With CUDA_EMULATION it also runs on
 * GPUs. */
#include <math.h>

#include "tests/duet/shared.h"

enum { CONV, BN, DROP, FC, N = 3, CLASSES = 4, PIXELS = 2 * 6 * 6, FLAT = 5 * 3 * 3 };

static void describe(duet_module *m, void *context) {
    (void)context;
    duet_module_conv2d(m, "conv", duet_module_sample(m)[0], 5, 3, 2, 1, 0);
    duet_module_batch_norm(m, "bn", 5, 1e-3, 0.2);
    duet_module_dropout(m, "drop", 0.5);
    duet_module_linear(m, "fc", FLAT, duet_module_classes(m), 1);
}

static void init(const duet_module *m, duet_rng *rng, float *const *values, void *context) {
    (void)rng, (void)context;
    values[4][CLASSES - 1] = (float)duet_module_count(m, 4); /* fc.bias */
}

static const struct duet_model model = {"small", .sample = {2, 6, 6}, .describe = describe,
                                        .init = init};

static duet_var *by_layers(duet_tape *t, duet_var *x) {
    duet_var *h = duet_layer_relu(t, BN, duet_layer(t, CONV, x));
    return duet_layer(t, FC, duet_flatten(t, duet_layer(t, DROP, h)));
}

static duet_var *by_functions(duet_tape *t, duet_var *x) {
    const struct duet_conv half = {.stride = {2, 2}, .padding = {1, 1}};
    duet_var *h =
        duet_batch_norm(t, duet_conv2d(t, x, 0, DUET_NO_BIAS, &half), 1, 2, 0, 1e-3, 0.2, 0);
    return duet_linear(t, duet_flatten(t, duet_dropout(t, duet_relu(t, h), 0.5)), 3, 4);
}

/* One step from seed 7; `after`: fc.weight and the running mean. */
static void train(const char *kind, duet_var *(*forward)(duet_tape *, duet_var *),
                  float after[FLAT * CLASSES + 5]) {
    duet_device *device;
    duet_params *params;
    duet_tape *tape;
    duet_tensor *x, *y;
    float host[N * PIXELS];
    int32_t labels[N] = {0, 3, 1};
    MUST(duet_devices_open(&device, 1, kind, api_memory(kind)));
    MUST(duet_params_create_model(&params, device, &model, CLASSES, 7));
    MUST(duet_tape_create(&tape, device));
    x = api_tensor(device, 4, (int[]){N, 2, 6, 6}, host);
    MUST(duet_tensor_create(&y, device, DUET_I32, 1, (int[]){N}, labels));
    MUST(duet_tape_begin(tape, params, N, DUET_TRAIN));
    duet_var *scores = forward(tape, duet_input(tape, x));
    MUST(duet_backward(tape, duet_cross_entropy(tape, scores, y, DUET_MEAN, NULL), NULL));
    MUST(duet_sgd(params, 0.1, 1));
    MUST(duet_tensor_read(duet_params_value(params, 3), after));
    MUST(duet_tensor_read(duet_params_buffer(params, 0), after + FLAT * CLASSES));
    duet_tensor_free(x), duet_tensor_free(y);
    duet_tape_free(tape), duet_params_free(params);
    duet_devices_close(&device, 1);
}

Test(api_model, layers_are_the_functions_of_the_tape, .timeout = 60) {
    for (int k = 0; k < API_KINDS; k++) {
        float layers[FLAT * CLASSES + 5], functions[FLAT * CLASSES + 5];
        train(api_kinds[k], by_layers, layers);
        train(api_kinds[k], by_functions, functions);
        cr_expect_arr_eq(layers, functions, sizeof layers, "%s", api_kinds[k]);
        cr_expect_neq(layers[FLAT * CLASSES], 0, "the running mean has moved");
    }
}

Test(api_model, values_are_those_of_describe_and_the_seed, .timeout = 60) {
    duet_device *device;
    duet_params *params;
    duet_rng *rng;
    float got[FLAT * CLASSES], want[FLAT * CLASSES];
    double bound = 1 / sqrt(2 * 3 * 3);
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    MUST(duet_params_create_model(&params, device, &model, CLASSES, 7));
    cr_assert_eq(duet_params_count(params), 5);
    MUST(duet_rng_create(&rng, 7));
    duet_rng_uniform(rng, want, 5 * 18, -bound, bound); /* nn.Conv2d's, the first that is drawn */
    MUST(duet_tensor_read(duet_params_value(params, 0), got));
    cr_expect_arr_eq(got, want, 5 * 18 * sizeof *got);
    MUST(duet_tensor_read(duet_params_value(params, 1), got));
    cr_expect_eq(got[4], 1);
    MUST(duet_tensor_read(duet_params_value(params, 4), got));
    cr_expect_eq(got[CLASSES - 1], CLASSES); /* what init has changed */
    MUST(duet_tensor_read(duet_params_buffer(params, 1), got));
    cr_expect_eq(got[4], 1);
    cr_expect_eq(duet_tensor_type(duet_params_buffer(params, 2)), DUET_I64);
    duet_rng_free(rng), duet_params_free(params);
    duet_devices_close(&device, 1);
}

static void refuse(duet_module *m, void *context) {
    (void)context;
    duet_module_linear(m, "fc", 0, 1, 1);
}

Test(api_model, misuse_is_one_line, .timeout = 60) {
    const struct duet_model nameless = {.describe = describe}, empty = {.name = "empty"},
                            bad = {.name = "bad", .describe = refuse};
    struct duet_param plain = {"w", 1, {1}, NULL};
    duet_device *device;
    duet_params *p;
    duet_tape *tape;
    duet_tensor *x;
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    MUST_FAIL(duet_params_create_model(&p, device, &nameless, 4, 0), DUET_USAGE, "no name");
    MUST_FAIL(duet_params_create_model(&p, device, &empty, 4, 0), DUET_USAGE, "no describe");
    MUST_FAIL(duet_params_create_model(&p, device, &model, 0, 0), DUET_USAGE, "0 classes");
    MUST_FAIL(duet_params_create_model(&p, device, &bad, 4, 0), DUET_USAGE, "fc");
    cr_assert_null(p);
    /* layers that are not there */
    MUST(duet_tape_create(&tape, device));
    MUST(duet_tensor_create(&x, device, DUET_F32, 2, (int[]){1, 1}, NULL));
    MUST(duet_params_create(&p, device, &plain, 1));
    MUST(duet_tape_begin(tape, p, 1, DUET_EVALUATE));
    cr_assert_null(duet_layer(tape, 0, duet_input(tape, x)));
    MUST_FAIL(duet_tape_error(tape), DUET_USAGE, "layer 0: the parameters of this pass have 0");
    duet_params_free(p);
    MUST(duet_params_create_model(&p, device, &model, 4, 0));
    MUST(duet_tape_begin(tape, p, 1, DUET_EVALUATE));
    cr_assert_null(duet_layer(tape, FC + 1, duet_input(tape, x)));
    MUST_FAIL(duet_tape_error(tape), DUET_USAGE, "layer 4: the parameters of this pass have 4");
    duet_params_free(p), duet_tensor_free(x), duet_tape_free(tape);
    duet_devices_close(&device, 1);
}
