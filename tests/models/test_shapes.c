/* Tests how models adapt to the data: the shapes of their parameters for samples of any shape and
 * any number of classes, and PyTorch's initial values for simple and complex. */
#include "base/error.h"
#include "models/model.h"
#include "tests/golden/golden.h"
#include "tests/models/described.h"

#define MUST(call) cr_assert_eq(call, OK, "%s", error_message())

/* simple and complex, by the hashes of random.txt. */
static void check_hashes(const char *name, struct sample_shape sample, int classes, uint64_t seed,
                         const char *fact) {
    struct model_options options = {.dropout = -1, .sample = sample, .classes = classes};
    struct model m;
    float **values;
    MUST(model_open(&m, name, &options));
    MUST(model_values_init(&m, seed, &values));
    for (int i = 0; i < m.param_count; i++) {
        char key[64], line[512], got[32];
        snprintf(key, sizeof key, "init %s %s", fact, m.params[i].name);
        snprintf(got, sizeof got, "%016llx",
                 (unsigned long long)fnv1a64(values[i], param_spec_count(&m.params[i])));
        cr_assert_eq(strncmp(golden_fact("tests/golden/random.txt", key, line), got, 16), 0,
                     "%s is not PyTorch's", key);
    }
    model_values_free(values);
    model_free(&m);
}

Test(shapes, initial_values_are_those_of_pytorch_to_the_bit, .timeout = 30) {
    check_hashes("simple", (struct sample_shape){0}, 0, 0, "simple");
    check_hashes("complex", (struct sample_shape){0}, 0, 3, "complex");
    check_hashes("simple", (struct sample_shape){3, 1, 1}, 2, 7, "narrow");
}

/* Every layer that depends on the samples or the classes follows them. */
Test(shapes, follow_the_data, .timeout = 30) {
    static const struct {
        const char *name;
        struct sample_shape sample;
        int classes;
        const char *params; /* NULL: refused, with these words */
        const char *says;
    } cases[] = {
        {"lenet",
         {3, 32, 17},
         100,
         "W1(20,3,3,3) b1(20) W2(50,20,5,5) b2(50) W3(250,128) b3(128) W4(128,100) b4(100)",
         ""},
        {"lenet",
         {1, 14, 14},
         2,
         "W1(20,1,3,3) b1(20) W2(50,20,5,5) b2(50) W3(50,128) b3(128) W4(128,2) b4(2)",
         ""},
        {"convnet",
         {2, 6, 9},
         3,
         "cn1.weight(16,2,3,3) cn1.bias(16) cn2.weight(32,16,3,3) cn2.bias(32) fc1.weight(64,64) "
         "fc1.bias(64) fc2.weight(3,64) fc2.bias(3)",
         ""},
        {"mlp", {7, 1, 1}, 5, "fc1.weight(256,7) fc1.bias(256) fc2.weight(5,256) fc2.bias(5)", ""},
        {"simple", {2, 3, 4}, 20000, "fc.weight(20000,24) fc.bias(20000)", ""},
        {"complex",
         {1, 5, 3},
         4,
         "conv1.weight(64,1,3,3) conv1.bias(64) fc.weight(4,960) fc.bias(4)",
         ""},
        {"lenet", {3, 13, 32}, 10, NULL, "samples of 3x13x32: it takes images of at least 14 x 14"},
        {"lenet", {10, 1, 1}, 10, NULL, "samples of 10: it takes images of at least 14 x 14"},
        {"convnet", {1, 28, 5}, 10, NULL, "at least 6 x 6"},
        {"complex",
         {3, 32, 32},
         20000,
         NULL,
         "1310741792 parameters: a model has at most 1073741824"},
        {"mlp", {1, 28, 28}, (1 << 24) + 1, NULL, "16777217 classes: give 1 to 16777216"},
        {"mlp", {1 << 24, 2, 1}, 10, NULL, "give them 1 to 16777216 numbers"},
        {"simple", {3, 0, 3}, 10, NULL, "give them 1 to 16777216 numbers"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_options options = {
            .dropout = -1, .sample = cases[i].sample, .classes = cases[i].classes};
        struct model m;
        char text[1024];
        int code = model_open(&m, cases[i].name, &options);
        if (!cases[i].params) {
            cr_assert_eq(code, ERR_USAGE, "%s was not refused", cases[i].says);
            cr_assert(strstr(error_message(), cases[i].says), "%s", error_message());
            continue;
        }
        cr_assert_eq(code, OK, "%s", error_message());
        describe(&m, text);
        cr_assert_str_eq(text, cases[i].params);
        model_free(&m);
    }
}
