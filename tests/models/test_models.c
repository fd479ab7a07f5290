/* Tests the models' descriptions: names, shapes and counts of parameters, and initial values with
 * PyTorch's bits. */
#include "tests/harness/harness.h"

#include <unistd.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/files/safetensors.h"
#include "models/replica.h"
#include "nn/tape/tape_internal.h"
#include "tests/golden/golden.h"
#include "tests/models/described.h"
#include "tests/models/values.h"

#define MUST(call) cr_assert_eq(call, OK, "%s", error_message())

static void open_model(struct model *m, const char *name) {
    struct model_options options = {.dropout = -1};
    MUST(model_open(m, name, &options));
}

static void expect(int code, int want, const char *text) {
    cr_assert_eq(code, want, "code %d: %s", code, error_message());
    cr_assert(strstr(error_message(), text), "\"%s\" does not say \"%s\"", error_message(), text);
}

/* Those of transformers' GPT2LMHeadModel. BERT lacks the pooler and sentence pairs. */
Test(models, transformers_have_the_originals_parameters) {
    static const struct {
        const char *name;
        size_t count;
    } known[] = {{"gpt2-small", 124439808},
                 {"gpt2-medium", 354823168},
                 {"gpt2-large", 774030080},
                 {"gpt2-xl", 1557611200},
                 {"bert-base", 110106428 - (768 * 768 + 768) - (2 * 768 + 2) - 2 * 768},
                 {"bert-large", 336226108 - (1024 * 1024 + 1024) - (2 * 1024 + 2) - 2 * 1024}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct model m;
        open_model(&m, known[i].name);
        cr_expect_eq(model_count(&m), known[i].count, "%s: %zu", m.name, model_count(&m));
        model_free(&m);
    }
    struct model_options long_text = {.dropout = -1, .sample = {1025, 1, 1}};
    struct model m;
    expect(model_open(&m, "gpt2-small", &long_text), ERR_USAGE, "of 1 to 1024 tokens");
}

Test(models, parameters_are_those_of_the_originals, .timeout = 30) {
    static const struct {
        const char *name, *params;
        size_t count;
    } known[] = {
        {"lenet", "W1(20,1,3,3) b1(20) W2(50,20,5,5) b2(50) W3(800,128) b3(128) W4(128,10) b4(10)",
         129068},
        {"convnet",
         "cn1.weight(16,1,3,3) cn1.bias(16) cn2.weight(32,16,3,3) cn2.bias(32) fc1.weight(64,4608) "
         "fc1.bias(64) "
         "fc2.weight(10,64) fc2.bias(10)",
         160 + 4640 + 294976 + 650},
        {"simple", "fc.weight(10,10) fc.bias(10)", 110},
        {"complex", "conv1.weight(64,3,3,3) conv1.bias(64) fc.weight(10,65536) fc.bias(10)",
         657162},
        {"mlp", "fc1.weight(256,784) fc1.bias(256) fc2.weight(10,256) fc2.bias(10)",
         784 * 256 + 256 + 2570},
    };
    for (int i = 0; i < 5; i++) {
        struct model m;
        char text[1024];
        open_model(&m, known[i].name);
        describe(&m, text);
        cr_assert_str_eq(text, known[i].params);
        cr_assert_eq(model_count(&m), known[i].count);
        cr_assert_eq(m.normalised, i == 1);
        cr_assert_eq(m.log_probabilities, i == 1);
        if (m.normalised) cr_assert(m.mean == 0.1302f && m.std == 0.3069f);
        model_free(&m);
        model_free(&m);
    }
}

static void check_initial_values(const char *name, uint64_t seed, const char *file) {
    struct model m;
    float **values;
    open_model(&m, name);
    MUST(model_values_init(&m, seed, &values));
    for (int i = 0; i < m.param_count; i++) {
        char key[64], line[512], got[128];
        uint32_t first[4];
        snprintf(key, sizeof key, "init %s", m.params[i].name);
        const char *fact = golden_fact(file, key, line), *first4 = strstr(fact, "first4 ");
        memcpy(first, values[i], sizeof first);
        snprintf(got, sizeof got, "first4 %08x %08x %08x %08x", first[0], first[1], first[2],
                 first[3]);
        cr_assert_str_eq(got, first4, "%s of %s begins otherwise", m.params[i].name, name);
        snprintf(got, sizeof got, "fnv1a64 %016llx ",
                 (unsigned long long)fnv1a64(values[i], param_spec_count(&m.params[i])));
        cr_assert_eq(strncmp(fact, got, strlen(got)), 0, "%s of %s is not PyTorch's: %s",
                     m.params[i].name, name, got);
    }
    model_values_free(values);
    model_free(&m);
}

Test(models, initial_values_are_those_of_pytorch_to_the_bit, .timeout = 30) {
    check_initial_values("lenet", 0, "tests/golden/lenet.txt");
    check_initial_values("convnet", 1, "tests/golden/convnet.txt");
}

Test(models, mlp_takes_widths_up_to_1e8_parameters, .timeout = 30) {
    struct model m;
    char text[2048];
    struct model_options options = {.dropout = -1, .hidden_count = 3, .hidden = {7, 5, 3}};
    MUST(model_open(&m, "mlp", &options));
    describe(&m, text);
    cr_assert_str_eq(
        text,
        "fc1.weight(7,784) fc1.bias(7) fc2.weight(5,7) fc2.bias(5) fc3.weight(3,5) fc3.bias(3) "
        "fc4.weight(10,3) fc4.bias(10)");
    cr_assert(m.hidden_count == 3 && m.hidden[2] == 3);
    model_free(&m);

    options.hidden_count = 16;
    for (int i = 0; i < 16; i++)
        options.hidden[i] = i + 1;
    MUST(model_open(&m, "mlp", &options));
    cr_assert_eq(m.param_count, 34);
    cr_assert_str_eq(m.params[33].name, "fc17.bias");
    model_free(&m);

    options.hidden_count = 1; /* 795 h + 10 parameters */
    options.hidden[0] = 1350618;
    MUST(model_open(&m, "mlp", &options));
    cr_assert_eq(model_count(&m), 1073741320);
    model_free(&m);
    options.hidden[0] = 1350619;
    expect(model_open(&m, "mlp", &options), ERR_USAGE,
           "1073742115 parameters: give widths that make at most 1073741824");
    options.hidden[0] = 0;
    expect(model_open(&m, "mlp", &options), ERR_USAGE, "--mlp-hidden: 0: ");
    options.hidden_count = 17;
    expect(model_open(&m, "mlp", &options), ERR_USAGE, "17 widths: give 1 to 16");
    cr_assert_null(m.params);
}

Test(models, an_unknown_name_lists_the_known, .timeout = 30) {
    struct model m;
    struct model_options options = {.dropout = -1};
    expect(model_open(&m, "alexnet", &options), ERR_USAGE,
           "'alexnet': expected lenet, convnet, mlp, resnet18, simple, complex, wide or branches");
    expect(model_open(&m, "", &options), ERR_USAGE, "lenet");
    expect(model_open(&m, "gpt2", &options), ERR_USAGE, "did you mean gpt2-small, for duet estim");
    model_free(&m);
    model_free(NULL);
}

/* ---- forward ---- */

/* The output of 5 samples in 2 segments; in training dropout takes part. */
static void run_forward(const char *name, double dropout, int training, float out[50],
                        float rates[2]) {
    static float pixels[5 * 784];
    struct device *device;
    struct device_config config = {.memory_bytes = 32 << 20, .check_operands = 1, .timeout_s = 20};
    struct replica_config want = {.max_samples = 8};
    struct segments segments = {2, 5, {{0, 3}, {1, 2}}};
    struct step_block step = {.seed = 1, .weight = 1};
    struct model_options options = {.dropout = dropout};
    struct model m;
    struct replica r;
    struct rng rng;
    duet_var *output;
    float **values;
    rng_seed(&rng, 9);
    rng_uniform(&rng, pixels, 5 * 784, 0, 1);
    MUST(device_open(&device, &config));
    MUST(model_open(&m, name, &options));
    MUST(model_values_init(&m, 5, &values));
    MUST(replica_init(&r, device, &m, &want, values));
    MUST(replica_write_step(&r, &step));
    MUST(replica_load(&r, &(struct batch){.segments = segments, .pixels = pixels}));
    MUST(replica_forward(&r, &segments, training, &output));
    cr_assert(output->value.rank == 2 && output->value.dims[0] == 5 && output->value.dims[1] == 10);
    cr_assert_eq(output->value.layout, LAYOUT_PLAIN);
    /* only dropout reads the step block in forward; the first of ConvNet's has 12 x 12 planes */
    for (int i = 0, planes = 1; rates && i < r.tape->node_count; i++) {
        const struct op_args *args = &r.tape->nodes[i].args;
        if (!args->step) continue;
        cr_assert_eq(args->in[0].rank, planes ? 4 : 2);
        *rates++ = args->p.dropout.p, planes = 0;
    }
    MUST(copy_to_host(device_compute(device), out, output->value.data, 50 * sizeof *out));
    MUST(stream_sync(device_compute(device)));
    replica_free(&r);
    model_values_free(values);
    model_free(&m);
    device_close(device);
}

Test(models, convnet_drops_in_training_alone_and_as_told, .timeout = 60) {
    float eval[50], train[50], none[50], half[50], all[50], rates[2];
    run_forward("convnet", -1, 0, eval, NULL);
    run_forward("convnet", -1, 1, train, rates);
    cr_assert(rates[0] == 0.10f && rates[1] == 0.25f);
    run_forward("convnet", 0, 1, none, NULL);
    run_forward("convnet", 0.5, 1, half, rates);
    cr_assert(rates[0] == 0.5f && rates[1] == 0.5f);
    run_forward("convnet", 1, 1, all, NULL);
    cr_assert_arr_eq(eval, none, sizeof eval);
    cr_assert_arr_neq(eval, train, sizeof eval);
    cr_assert_arr_neq(half, train, sizeof eval);
    for (int k = 10; k < 50; k++)
        cr_assert(all[k] == all[k % 10], "dropout 1 leaves only the last bias");
}

/* ---- checkpoints ---- */

static void temp_file(char path[64]) {
    snprintf(path, 64, "%s/values_%d.safetensors", BUILD_DIR, (int)getpid());
}

/* A file as DP or DDP of PyTorch saves it, with "module." before each name, and one with a
 * transposed weight. */
Test(models, a_checkpoint_may_have_prefixes_but_no_other_shape, .timeout = 30) {
    struct model_options options = {.dropout = -1, .hidden_count = 1, .hidden = {4}};
    struct model m;
    float **values, **back = NULL;
    char path[64];
    temp_file(path);
    MUST(model_open(&m, "mlp", &options));
    MUST(model_values_init(&m, 8, &values));
    for (int transposed = 0; transposed < 2; transposed++) {
        struct safetensors_item items[] = {
            {.name = "module.fc1.weight", .dims = 2, .shape = {4, 784}, .data = values[0]},
            {.name = "module.fc1.bias", .dims = 1, .shape = {4}, .data = values[1]},
            {.name = "module.fc2.weight", .dims = 2, .shape = {10, 4}, .data = values[2]},
            {.name = "module.fc2.bias", .dims = 1, .shape = {10}, .data = values[3]}};
        if (transposed) {
            items[2].shape[0] = 4;
            items[2].shape[1] = 10;
        }
        struct atomic_file file = {0};
        MUST(atomic_open(&file, path));
        MUST(safetensors_write(&file, items, 4, NULL, 0));
        MUST(atomic_commit(&file));
        atomic_abandon(&file);
        if (transposed) {
            expect(values_load(&m, path, &back, NULL), ERR_FAILED, "fc2.weight");
            cr_assert_null(back);
        } else {
            MUST(values_load(&m, path, &back, NULL));
            cr_assert_arr_eq(values[0], back[0], model_count(&m) * sizeof(float));
            model_values_free(back);
            back = NULL;
        }
    }
    unlink(path);
    model_values_free(values);
    model_free(&m);
}
