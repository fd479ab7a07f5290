/* Compares PyTorch's float64 losses and gradients on real Fashion-MNIST, from the initial weights
 * and from trained ones, with one replica: with either math, and with its batch whole or split into
 * virtual devices. tests/golden/README.md says how the facts were made. */
#include "tests/golden/golden.h"
#include "tests/models/values.h"

#include "base/error.h"
#include "data/dataset.h"
#include "base/files/safetensors.h"
#include "models/replica.h"

#define MUST(call) cr_assert_eq(call, OK, "%s", error_message())
#define LENET "tests/golden/lenet.txt"
#define CONVNET "tests/golden/convnet.txt"

/* The required bounds are 2e-6 (loss), 3e-4 (gradients) and 1e-5 (five steps): what float kernels
 * of any make keep. Duet's sum the loss in double and keep the sum of each product short, and come
 * a hundred times nearer: 1.4e-8, 1.3e-6 and 1e-9 were measured. The bounds leave a factor of about
 * eight. */
static const double LOSS_TOLERANCE = 1e-7, GRADIENT_TOLERANCE = 1e-5;

enum { BATCH = 256, CONVNET_BATCH = 64, STEPS = 5, PIXELS = 784 };

struct trial {
    struct device *device;
    struct model model;
    struct replica replica;
    struct dataset set;
    float *pixels;
    int32_t labels[BATCH];
};

/* Returns 0 if the images are not installed. */
static int find_pictures(struct dataset *set) {
    return dataset_open(set, "fashion-mnist", NULL, 1) == OK;
}

static void open_trial(struct trial *t, const char *model, int math, float **values) {
    struct device_config config = {
        .memory_bytes = 256 << 20, .check_operands = 1, .timeout_s = 60, .reference_math = math};
    struct replica_config want = {
        .max_samples = BATCH, .log_rows = 1, .log_segments = 4, .optimizer = 1};
    struct model_options options = {.dropout = 0};
    MUST(device_open(&t->device, &config));
    MUST(model_open(&t->model, model, &options));
    MUST(replica_init(&t->replica, t->device, &t->model, &want, values));
    t->pixels = malloc(BATCH * PIXELS * sizeof *t->pixels);
    cr_assert_not_null(t->pixels);
}

static void close_trial(struct trial *t) {
    replica_free(&t->replica);
    model_free(&t->model);
    device_close(t->device);
    free(t->pixels);
}

/* Forward, loss and backward of n samples in `parts` segments; virtual device v takes the
 * samples v, v + parts, ... as training does. Returns the mean loss. */
static double run_batch(struct trial *t, int first, int n, int parts) {
    struct segments segments = {parts, n, {{0}}};
    struct step_block step = {
        .weight = 1.0f / (float)n, .learning_rate = 0.2f, .first_update = first == 0};
    const struct model *m = &t->model;
    duet_var *output, *loss;
    double sums[4], sum = 0;
    int to = 0;
    for (int v = 0; v < parts; v++)
        for (int i = v; i < n; i += parts, to++) {
            for (int k = 0; k < PIXELS; k++)
                t->pixels[to * PIXELS + k] =
                    ((float)t->set.images[(size_t)(first + i) * PIXELS + k] / 255 - m->mean) /
                    m->std;
            t->labels[to] = t->set.labels[first + i];
            segments.seg[v].v = v;
            segments.seg[v].n++;
        }
    MUST(replica_write_step(&t->replica, &step));
    struct batch batch = {.segments = segments, .pixels = t->pixels, .labels = t->labels};
    MUST(replica_load(&t->replica, &batch));
    MUST(replica_forward(&t->replica, &segments, 1, &output));
    MUST(replica_loss(&t->replica, output, 1, &loss));
    MUST(replica_backward(&t->replica, loss));
    MUST(replica_read_logs(&t->replica, 1, sums, NULL, NULL));
    for (int v = 0; v < parts; v++)
        sum += sums[v];
    return sum / n;
}

/* Relative L2 distance of the gradient of parameter i from PyTorch's at that point. */
static double gradient_distance(struct trial *t, int i, int point) {
    size_t count = t->replica.params->set.param[i].count;
    float *got = malloc(count * sizeof *got);
    double *x = malloc(count * sizeof *x), square;
    char key[64];
    MUST(param_read_grad(&t->replica.params->set, i, got));
    for (size_t k = 0; k < count; k++)
        x[k] = got[k];
    snprintf(key, sizeof key, "grad %d %s", point, t->model.params[i].name);
    double apart = golden_distance(LENET, key, x, count, &square);
    free(got), free(x);
    return sqrt(apart / square);
}

/* DUET_SHOW_DEVIATION in the environment prints what was measured, for the record. */
static void show(const char *what, int point, int math, int parts, double value) {
    if (getenv("DUET_SHOW_DEVIATION"))
        fprintf(stderr, "%-24s from step %3d, %s, %d segments: %.2g\n", what, point,
                math ? "plain" : "n16", parts, value);
}

static void lenet_from(struct trial *t, int point, int math, int parts, int steps) {
    char key[32];
    float **values;
    struct model_options options = {.dropout = -1};
    struct model m;
    MUST(model_open(&m, "lenet", &options));
    if (point)
        MUST(values_load(&m, "tests/golden/lenet_300.safetensors", &values, NULL));
    else
        MUST(model_values_init(&m, 0, &values));
    open_trial(t, "lenet", math, values);
    for (int s = 0; s < steps; s++) {
        snprintf(key, sizeof key, "loss %d %d", point, s);
        double got = run_batch(t, s * BATCH, BATCH, parts), want = golden_number(LENET, key),
               far = fabs(got - want);
        show(key, point, math, parts, far);
        cr_assert(far < LOSS_TOLERANCE, "%s: %.9g, not %.9g", key, got, want);
        for (int i = 0; s == 0 && i < m.param_count; i++) {
            far = gradient_distance(t, i, point);
            show(m.params[i].name, point, math, parts, far);
            cr_assert(far < GRADIENT_TOLERANCE, "from step %d: the gradient of %s is off by %g",
                      point, m.params[i].name, far);
        }
        MUST(replica_update(&t->replica));
    }
    close_trial(t);
    model_values_free(values);
    model_free(&m);
}

Test(golden, lenet_as_pytorch, .timeout = 300) {
    struct trial t;
    if (!find_pictures(&t.set)) cr_skip_test("%s", error_message());
    for (int point = 0; point <= 300; point += 300) {
        lenet_from(&t, point, 0, 1, STEPS);
        lenet_from(&t, point, 0, 4, STEPS);
        /* reference kernels take seconds per step, so only from the later point */
        if (point && !test_short()) lenet_from(&t, point, 1, 1, 1);
    }
    dataset_free(&t.set);
}

static void convnet_as_pytorch(struct trial *t, int math) {
    char key[64], line[512], name[32];
    float **values;
    int index, facts = 0;
    double want;
    struct model_options options = {.dropout = 0};
    struct model m;
    MUST(model_open(&m, "convnet", &options));
    MUST(model_values_init(&m, 1, &values));
    open_trial(t, "convnet", math, values);
    double got = run_batch(t, 0, CONVNET_BATCH, 1),
           far = fabs(got - golden_number(CONVNET, "loss"));
    show("convnet loss", 0, math, 1, far);
    cr_assert(far < LOSS_TOLERANCE, "convnet: loss %.9g", got);
    for (int i = 0; i < m.param_count; i++) {
        size_t count = t->replica.params->set.param[i].count;
        float *grad = malloc(count * sizeof *grad);
        double norm = 0;
        MUST(param_read_grad(&t->replica.params->set, i, grad));
        for (size_t k = 0; k < count; k++)
            norm += (double)grad[k] * grad[k];
        norm = sqrt(norm);
        snprintf(key, sizeof key, "grad %s", m.params[i].name);
        want = golden_number(CONVNET, key);
        show(key, 0, math, 1, fabs(norm / want - 1));
        cr_assert(fabs(norm - want) < GRADIENT_TOLERANCE * want, "%s: norm %.9g, not %.9g", key,
                  norm, want);
        FILE *f = fopen(CONVNET, "r");
        while (fgets(line, sizeof line, f)) {
            if (sscanf(line, "at %31s %d %lf", name, &index, &want) != 3 ||
                strcmp(name, m.params[i].name))
                continue;
            cr_assert(fabs(grad[index] - want) < GRADIENT_TOLERANCE * norm / sqrt((double)count) +
                                                     GRADIENT_TOLERANCE * fabs(want),
                      "%s[%d]: %.9g, not %.9g", name, index, grad[index], want);
            facts++;
        }
        fclose(f);
        free(grad);
    }
    cr_assert_gt(facts, 40);
    close_trial(t);
    model_values_free(values);
    model_free(&m);
}

Test(golden, convnet_as_pytorch, .timeout = 300) {
    struct trial t;
    if (!find_pictures(&t.set)) cr_skip_test("%s", error_message());
    for (int math = 0; math < (test_short() ? 1 : 2); math++)
        convnet_as_pytorch(&t, math);
    dataset_free(&t.set);
}
