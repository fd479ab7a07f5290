/* Tests duet/model.h: the initial values that describe requests, and that each mistake of a program
 * is an error of one line that names it. */
#include "base/error.h"
#include "duet.h"
#include "models/models.h"
#include "models/replica.h"
#include "nn/params/params.h"
#include "nn/tape/tape_internal.h"
#include "tests/harness/harness.h"

#define MUST(call) cr_assert_eq(call, OK, "%s", error_message())

enum { SAMPLES = 12, FEATURES = 6, CLASSES = 4 };

static int open_own(struct model *m, const struct duet_model *own) {
    const struct model_options options = {
        .dropout = -1, .sample = {FEATURES, 1, 1}, .classes = CLASSES, .own = own};
    return model_open(m, own->name, &options);
}

/* One step of `own` over two virtual devices; the gradients go to grads (room for all), the loss is
 * returned. A failure of forward comes in *code. */
static double step(const struct duet_model *own, float *grads, int *code) {
    float pixels[SAMPLES * FEATURES];
    int32_t labels[SAMPLES];
    struct device_config config = {.memory_bytes = 32 << 20, .check_operands = 1, .timeout_s = 20};
    struct replica_config want = {.max_samples = SAMPLES, .log_rows = 1, .log_segments = 2};
    struct segments segments = {2, SAMPLES, {{0, SAMPLES / 2}, {1, SAMPLES / 2}}};
    struct step_block block = {.weight = 1.0f / SAMPLES};
    struct device *device;
    struct model m;
    struct replica r;
    duet_var *output, *loss;
    float **values;
    double sums[2] = {0, 0};
    for (int i = 0; i < SAMPLES * FEATURES; i++)
        pixels[i] = (float)(i * 37 % 101) / 101;
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = i % CLASSES;
    MUST(open_own(&m, own));
    MUST(model_values_init(&m, 5, &values));
    MUST(device_open(&device, &config));
    MUST(replica_init(&r, device, &m, &want, values));
    MUST(replica_write_step(&r, &block));
    MUST(replica_load(&r,
                      &(struct batch){.segments = segments, .pixels = pixels, .labels = labels}));
    *code = replica_forward(&r, &segments, 1, &output);
    if (!*code) {
        MUST(replica_loss(&r, output, 1, &loss));
        MUST(replica_backward(&r, loss));
        MUST(replica_read_logs(&r, 1, sums, NULL, NULL));
        for (int i = 0; i < m.param_count; grads += r.params->set.param[i++].count)
            MUST(param_read_grad(&r.params->set, i, grads));
    }
    replica_free(&r);
    device_close(device);
    model_values_free(values);
    model_free(&m);
    return (sums[0] + sums[1]) / SAMPLES;
}

static void describe_layers(duet_module *m, void *context) {
    (void)context;
    cr_expect_eq(duet_module_linear(m, "fc1", FEATURES, 5, 0), 0);
    cr_expect_eq(duet_module_batch_norm(m, "bn", 5, 1e-5, 0.1), 1);
    cr_expect_eq(duet_module_linear(m, "fc2", 5, duet_module_classes(m), 1), 2);
    cr_expect_eq(duet_module_count(m, 0), 30);
    cr_expect_eq(duet_module_count(m, 5), 0);
}

static duet_var *forward_layers(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    cr_expect(duet_layer_count(t) == 3 && duet_tape_training(t));
    return duet_layer(t, 2, duet_layer_relu(t, 1, duet_layer(t, 0, duet_flatten(t, x))));
}

/* ---- initial values ---- */

static void describe_values(duet_module *m, void *context) {
    (void)context;
    duet_module_parameter(m, "normal", 2, (int[]){40, 50}, (struct duet_init){DUET_NORMAL, 3, 0.5});
    duet_module_parameter(m, "uniform", 1, (int[]){1000}, (struct duet_init){DUET_UNIFORM, 2, 4});
    duet_module_parameter(m, "own", 1, (int[]){20}, (struct duet_init){DUET_CONSTANT, 7, 0});
}

static void draw_more(const duet_module *m, duet_rng *rng, float *const *values, void *context) {
    *(int *)context += 1;
    cr_expect_eq(values[2][19], 7);
    duet_rng_uniform(rng, values[2], duet_module_count(m, 2), 0, 1);
}

Test(module, initial_values_are_drawn_in_order, .timeout = 30) {
    int calls = 0;
    const struct duet_model own = {.name = "own",
                                   .describe = describe_values,
                                   .init = draw_more,
                                   .forward = forward_layers,
                                   .context = &calls};
    struct model m;
    struct rng rng;
    float **values, want[2000];
    MUST(open_own(&m, &own));
    MUST(model_values_init(&m, 11, &values));
    cr_expect_eq(calls, 1);
    rng_seed(&rng, 11);
    rng_normal(&rng, want, 2000, 3, 0.5);
    cr_expect_arr_eq(values[0], want, 2000 * sizeof *want);
    rng_uniform(&rng, want, 1000, 2, 4);
    cr_expect_arr_eq(values[1], want, 1000 * sizeof *want);
    rng_uniform(&rng, want, 20, 0, 1);
    cr_expect_arr_eq(values[2], want, 20 * sizeof *want);
    model_values_free(values);
    model_free(&m);
}

/* ---- mistakes ---- */

static void describe_badly(duet_module *m, void *context) {
    const struct duet_init one = {DUET_CONSTANT, 1, 0};
    switch (*(int *)context) {
    case 0: duet_module_linear(m, "a", 3, 0, 1); break;
    case 1: duet_module_linear(m, NULL, 3, 3, 1); break;
    case 2:
        duet_module_linear(m, "a", 3, 3, 1);
        duet_module_parameter(m, "a.bias", 1, (int[]){3}, one);
        break;
    case 3: duet_module_parameter(m, "a", 9, (int[]){1, 1, 1, 1, 1, 1, 1, 1, 1}, one); break;
    case 4: duet_module_parameter(m, "a", 1, (int[]){3}, (struct duet_init){9, 0, 0}); break;
    case 5: duet_module_conv2d(m, "a", 3, 3, 3, 0, 0, 1); break;
    case 6: duet_module_dropout(m, "a", 1.5); break;
    case 7: module_needs_pixels(m, 9); break;
    case 8: break;
    case 9: duet_module_linear(m, "a", 100000, 100000, 1); break;
    case 10: duet_module_linear(m, "module.a", 3, 3, 1); break;
    case 11: duet_module_batch_norm(m, "a", 3, -1, 0.1); break;
    }
    /* After a failure nothing more is done; without one there is a parameter. */
    if (*(int *)context != 8 && duet_module_linear(m, "last", 3, 3, 1) >= 0)
        cr_expect_eq(*(int *)context, 2, "case %d went on", *(int *)context);
}

Test(module, mistakes_of_describe_are_named, .timeout = 30) {
    static const char *const says[] = {
        "model own: a.weight: dimension 0 is 0",
        "model own: it has no name",
        "model own: two are named 'a.bias'",
        "model own: a: rank 9",
        "initial values of kind 9",
        "stride 0, padding 0",
        "dropout probability has to be between 0 and 1, but got 1.5",
        "model own: samples of 6: it takes images of at least 9 x 9",
        "it has no parameters",
        "model own: a.weight: 10000000000 numbers",
        "files use the prefix module.",
        "eps -1",
    };
    for (int i = 0; i < (int)(sizeof says / sizeof *says); i++) {
        const struct duet_model own = {
            .name = "own", .describe = describe_badly, .forward = forward_layers, .context = &i};
        struct model m;
        cr_expect_eq(open_own(&m, &own), ERR_USAGE, "case %d", i);
        cr_expect(strstr(error_message(), says[i]), "case %d: \"%s\" does not say \"%s\"", i,
                  error_message(), says[i]);
    }
}

static duet_var *forward_badly(duet_tape *t, duet_var *x, void *context) {
    x = duet_flatten(t, x);
    switch (*(int *)context) {
    case 0: return NULL;
    case 1: return x;
    case 2: return duet_layer(t, 3, x);
    case 3: duet_tape_begin(t, NULL, 1, DUET_TRAIN); return duet_layer(t, 0, x);
    case 4: duet_backward(t, x, NULL); return duet_layer(t, 0, x);
    case 5: return duet_layer(t, 2, x);
    case 6: return duet_batch_norm(t, x, 1, 2, 0, 1e-5, 0.1, 0);
    case 7: return duet_linear(t, x, 99, 0);
    case 8: return duet_add(t, x, duet_reshape(t, x, 3, (int[]){-1, 1, 6}));
    case 9: return duet_matmul(t, x, duet_reshape(t, x, 3, (int[]){-1, 6, 1}));
    }
    return x;
}

Test(module, mistakes_of_forward_are_named, .timeout = 30) {
    static const char *const says[] = {
        "model own: forward returned NULL",
        "(12, 6): it must be (samples, classes), (12, 4)",
        "layer 3: the model has described 3 layers",
        "duet_tape_begin: the forward function of a model has called it",
        "duet_backward: the forward function",
        "linear fc2.weight: takes 5 inputs",
        "batch",
        "parameter 99",
        "add: it would mix the samples of a batch",
        "matmul: it would mix the samples of a batch",
    };
    for (int i = 0; i < (int)(sizeof says / sizeof *says); i++) {
        const struct duet_model own = {
            .name = "own", .describe = describe_layers, .forward = forward_badly, .context = &i};
        float grads[64];
        int code;
        step(&own, grads, &code);
        cr_expect(code != OK && strstr(error_message(), says[i]),
                  "case %d: code %d, \"%s\" does not say \"%s\"", i, code, error_message(),
                  says[i]);
    }
}
