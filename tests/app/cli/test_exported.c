/* Tests the command with PyTorch models that duet.export has written: loss and gradients of a step
 * are PyTorch's, and single, DP and DDP have equal bits. tests/golden/make_exported.py made the
 * models and the facts; tests/python/export.py does the same for more models if PyTorch is
 * installed. */
#include "base/error.h"
#include "tests/app/cli/nets.h"
#include "tests/harness/gpus.h"
#include "tests/models/values.h"

#define FOLDER "golden/exported/"
#define FACTS FOLDER "facts.txt"

/* Errors against PyTorch's float64: of a loss; of a gradient, TIMES that of PyTorch's own float32,
 * which is a matter of luck, and PART of the gradient's size. A gradient that consists of roundings
 * alone is less than NO_GRADIENT. */
static const double LOSS_TOLERANCE = 2e-6, TIMES = 2, PART = 1e-6, NO_GRADIENT = 5e-7;

/* A step of length L turns weights F into F - L g, so (F - G) / L is the gradient, to a
 * rounding. */
static const double STEP_LENGTH = 65536;

#define RUN "--dataset random --samples 8 --batch-size 8"

static const char *const names[] = {"resnet50",       "mobilenet_v2",   "vit_b_16",
                                    "densenet121",    "convnext_tiny",  "efficientnet_b0",
                                    "vgg16_bn",       "shufflenet_v2",  "transformer",
                                    "gpt2",           "bert",           "lstm",
                                    "frames",         "space_and_time", "points",
                                    "masked_patches", "weight_norms"};
enum { NETS = sizeof names / sizeof *names };

/* In short tests: most checks, but not the values of parameters. */
static int left_out(int i) {
    return test_short() && i % 4 && i < NETS - 1;
}

/* The model of NAME.duet, with its text and its weights in this folder. */
static struct graph *put_model(const char *name, struct model *m) {
    char from[64], to[64];
    snprintf(from, sizeof from, FOLDER "%s.duet", name);
    snprintf(to, sizeof to, "%s.duet", name);
    char *text = cli_read(from, NULL);
    struct graph *g = net_put(to, text, m);
    free(text);
    return g;
}

static void check_loss(const char *name) {
    char *text = cli_read("loss.csv", NULL), key[64];
    double loss = -1;
    cr_assert_eq(sscanf(text, "%*[^\n] %*d,%*d,%lf", &loss), 1, "%s", text);
    snprintf(key, sizeof key, "loss %s", name);
    double want = golden_number(FACTS, key);
    cr_expect(fabs(loss - want) <= LOSS_TOLERANCE, "%s: loss %.9g, not %.9g", name, loss, want);
    free(text);
}

static void check_gradients(const char *name, const struct model *m) {
    char path[64], key[128];
    float **before, **after;
    snprintf(path, sizeof path, "%s.safetensors", name);
    cr_assert_eq(values_load(m, path, &before, NULL), OK, "%s", error_message());
    cr_assert_eq(values_load(m, "after", &after, NULL), OK, "%s", error_message());
    for (int i = 0; i < m->param_count; i++) {
        size_t count = param_spec_count(&m->params[i]);
        double *x = malloc(count * sizeof *x), square;
        for (size_t k = 0; k < count; k++)
            x[k] = ((double)before[i][k] - after[i][k]) / STEP_LENGTH;
        snprintf(key, sizeof key, "grad %s.%s", name, m->params[i].name);
        double off = sqrt(golden_distance(FACTS, key, x, count, &square));
        snprintf(key, sizeof key, "float32 %s.%s", name, m->params[i].name);
        double bound = TIMES * golden_number(FACTS, key) + PART * sqrt(square) + NO_GRADIENT;
        cr_expect(off <= bound, "%s: gradient of %s: off by %g, more than %g", name,
                  m->params[i].name, off, bound);
        free(x);
    }
    model_values_free(before), model_values_free(after);
}

static void check_step(const char *name, const char *device) {
    struct model m;
    struct graph *g = put_model(name, &m);
    cli_well("train --device %s --model %s.duet " RUN " --mode single --steps 1 --no-shuffle "
             "--lr %g --log-loss loss.csv --save after --quiet",
             device, name, STEP_LENGTH);
    check_loss(name);
    check_gradients(name, &m);
    model_free(&m);
    graph_free(g);
}

/* A run of compare on so many devices: single, DP and DDP. */
static void check_bits(const char *name, const char *device, int devices, int steps,
                       const char *more) {
    cli_says(0, "\nDP = single: identical to the bit|\nDDP = single: identical to the bit",
             "compare --device %s --model %s.duet " RUN " --lr 0.05 --devices %d --steps %d %s",
             device, name, devices, steps, more);
}

CliTest(cli_exported, steps_are_pytorchs, 120) {
    for (int i = 0; i < NETS; i++)
        check_step(names[i], "cpu");
}

CliTest(cli_exported, bits_are_equal, 300) {
    for (int i = 0; i < NETS; i++) {
        struct model m;
        if (left_out(i)) continue;
        struct graph *g = put_model(names[i], &m);
        if (!test_short()) check_bits(names[i], "cpu", 2, 5, "");
        check_bits(names[i], "cpu", 4, test_short() ? 2 : 5, "--report page.html");
        free(cli_read("page.html", NULL));
        cli_well("estimate --model %s.duet --devices 4 --json estimate.json", names[i]);
        model_free(&m);
        graph_free(g);
    }
}

/* DEVICE_CUDA: other kernels, judged alike. */
CliTest(cli_exported, gpus_compute_the_same, 300) {
    need_gpus(2);
    for (int i = 0; i < NETS; i++) {
        check_step(names[i], "cuda");
        if (!left_out(i)) check_bits(names[i], "cuda", 2, 2, "");
    }
}
