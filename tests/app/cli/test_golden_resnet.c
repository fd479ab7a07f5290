/* Compares the command's ResNet-18 with PyTorch's float64: initial weights; loss, gradients and
 * running statistics of one step; the losses of two steps in single. app/cli/test_batch_norm.c
 * compares DDP with DP. tests/golden/make_resnet18.py made the facts; gradients are a few sums. */
#include "base/error.h"
#include "models/model.h"
#include "tests/app/cli/data.h"
#include "tests/app/cli/nets.h"
#include "tests/app/cli/run.h"
#include "tests/golden/golden.h"
#include "tests/models/values.h"

#define FACTS "golden/resnet18.txt"

/* Bounds for a loss; for all gradients together and for each tensor, where PyTorch's own float32 is
 * 2.5e-3 and 8e-3 away from its float64, since some ReLUs flip; for running statistics. */
static const double LOSS_TOLERANCE = 2e-6, GRADIENTS_TOLERANCE = 1e-2, GRADIENT_TOLERANCE = 3e-2,
                    STATISTICS_TOLERANCE = 1e-5, LATER_LOSS_TOLERANCE = 1e-5;

/* A step of length L turns weights F into F - L g, so (F - G) / L is the gradient, to a
 * rounding. */
static const float STEP_LENGTH = 1024;

enum { STEPS = 2, PICTURES = 32 };

/* The squared distance of x, which is (from - to) / length, from the tensor of that fact; *square
 * becomes the squared norm of the fact's tensor. */
static double distance(const char *kind, int shards, const char *name, const float *from,
                       const float *to, double length, size_t count, double *square) {
    char key[128];
    double *x = malloc(count * sizeof *x + 1), apart;
    cr_assert_not_null(x);
    for (size_t i = 0; i < count; i++)
        x[i] = (from[i] - (to ? (double)to[i] : 0)) / length;
    snprintf(key, sizeof key, "%s %d %s", kind, shards, name);
    apart = golden_distance(FACTS, key, x, count, square);
    free(x);
    return apart;
}

/* The bias of a convolution before a norm, which the norm cancels. */
static int is_zero_by_construction(const char *name) {
    return (strstr(name, "conv") || !strncmp(name, "0.", 2)) && strstr(name, ".bias");
}

static void open_resnet(struct model *m) {
    struct model_options options = {.dropout = -1};
    cr_assert_eq(model_open(m, "resnet18", &options), OK, "%s", error_message());
}

static float **load(const char *path, const struct model *m) {
    float **values;
    cr_assert_eq(values_load(m, path, &values, NULL), OK, "%s", error_message());
    return values;
}

static void check_gradients(const struct model *m, int shards, const char *what) {
    float **f = load("F", m), **g = load("G", m);
    double apart = 0, whole = 0;
    for (int i = 0; i < m->param_count; i++) {
        const char *name = m->params[i].name;
        double square, d;
        if (is_zero_by_construction(name)) continue;
        d = distance("grad", shards, name, f[i], g[i], STEP_LENGTH, param_spec_count(&m->params[i]),
                     &square);
        cr_expect(sqrt(d / square) < GRADIENT_TOLERANCE, "%s: %s: gradient off by %g", what, name,
                  sqrt(d / square));
        apart += d, whole += square;
    }
    cr_expect(sqrt(apart / whole) < GRADIENTS_TOLERANCE, "%s: gradients off by %g", what,
              sqrt(apart / whole));
    model_values_free(f), model_values_free(g);
}

static void check_statistics(const struct model *m, int shards, const char *what) {
    char *buffers;
    float **values;
    cr_assert_eq(values_load(m, "G", &values, (void **)&buffers), OK, "%s", error_message());
    model_values_free(values);
    for (int i = 0; i < m->buffer_count; i++) {
        const struct buffer_spec *spec = &m->buffers[i];
        char *at = buffers + buffer_offset(m->buffers, m->buffer_count, i);
        double square;
        if (spec->dtype == DTYPE_I64) {
            cr_expect_eq(*(int64_t *)at, 1, "%s: %s", what, spec->name);
            continue;
        }
        double d = distance("buffer", shards, spec->name, (float *)at, NULL, 1,
                            (size_t)spec->dims[0], &square);
        cr_expect(sqrt(d / square) < STATISTICS_TOLERANCE, "%s: %s off by %g", what, spec->name,
                  sqrt(d / square));
    }
    free(buffers);
}

static void check_losses(const char *path, int steps, int shards, double tolerance,
                         const char *what) {
    char *text = cli_read(path, NULL), *line = strchr(text, '\n');
    for (int i = 0; i < steps; i++, line = strchr(line + 1, '\n')) {
        char key[32];
        double loss = -1;
        cr_assert_eq(sscanf(line + 1, "%*d,%*d,%lf", &loss), 1, "%s", text);
        snprintf(key, sizeof key, "loss %d %d", shards, i);
        double want = golden_number(FACTS, key);
        cr_expect(fabs(loss - want) < tolerance, "%s: loss of step %d: %.9g, not %.9g", what, i,
                  loss, want);
    }
    free(text);
}

/* `mode`: mode, devices and the kind of normalisation. shards: how PyTorch cut the batch. */
static void check(const struct model *m, const char *mode, int shards, int steps) {
    char run[256];
    snprintf(run, sizeof run,
             "train --mode %s --model resnet18 --no-shuffle --batch-size %d --data-dir d --quiet",
             mode, PICTURES);
    cli_well("%s --init-from F --steps 1 --lr %g --log-loss one.csv --save G", run,
             (double)STEP_LENGTH);
    check_losses("one.csv", 1, shards, LOSS_TOLERANCE, mode);
    check_gradients(m, shards, mode);
    check_statistics(m, shards, mode);
    if (!steps) return;
    cli_well("%s --init-from F --epochs %d --lr 3e-5 --log-loss all.csv", run, steps);
    check_losses("all.csv", steps, shards, LATER_LOSS_TOLERANCE, mode);
}

/* The seed gives PyTorch's initial weights, to the bit. */
static void check_initial(const struct model *m) {
    cli_well("train --model resnet18 --data-dir d --seed 0 --steps 1 --lr 0 --quiet --batch-size 2 "
             "--save F");
    float **values = load("F", m);
    for (int i = 0; i < m->param_count; i++) {
        char key[64], line[512];
        unsigned long long want;
        snprintf(key, sizeof key, "init %s fnv1a64", m->params[i].name);
        cr_assert_eq(sscanf(golden_fact(FACTS, key, line), "%llx", &want), 1);
        cr_assert_eq(fnv1a64(values[i], param_spec_count(&m->params[i])), want,
                     "%s is not PyTorch's", m->params[i].name);
    }
    /* the step changed the running statistics, so reset them */
    void *buffers = malloc(model_buffer_bytes(m));
    buffer_initial(m->buffers, m->buffer_count, buffers);
    put_values("F", m, values, buffers);
    free(buffers);
    model_values_free(values);
}

CliTest(cli_golden_resnet, one_step_and_two, 600) {
    struct model m;
    if (!has_fashion_mnist())
        cr_skip_test("Fashion-MNIST is not installed: apt install dataset-fashion-mnist");
    open_resnet(&m);
    few_pictures(PICTURES);
    put_images("d/t10k-images-idx3-ubyte", 2051, 2, 2); /* evaluation does not matter here */
    put_labels("d/t10k-labels-idx1-ubyte", 2049, 2, 2, 0);
    check_initial(&m);
    check(&m, "ddp --devices 2 --sync-bn", 1, 0);
    if (!test_short()) {
        check(&m, "single", 1, STEPS);
        check(&m, "dp --devices 2", 2, 0);
    }
    model_free(&m);
}
