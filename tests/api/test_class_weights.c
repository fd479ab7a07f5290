/* Cross entropy and nll_loss with weights of the classes and ignored labels: PyTorch's means and
 * gradients, for rows and for samples of several places. With CUDA_EMULATION on GPUs too. */
#include <math.h>

#include "tests/api/shared.h"
#include "tests/golden/class_weights.h"

enum {
    ROWS = WEIGHTED_ROWS,
    CLASSES = WEIGHTED_CLASSES,
    SCORES = ROWS * CLASSES,
    CASES = sizeof golden_weighted / sizeof *golden_weighted
};

/* The divisor and each row's weight are rounded to float, a gradient once more. */
static const double ROUNDING = 0x1p-22;

/* Row r, class c as scores of (samples, classes, places) and the other way round. */
static void turn(const float *from, float *to, int places, int back) {
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < CLASSES; c++) {
            int row = r * CLASSES + c, turned = (r / places * CLASSES + c) * places + r % places;
            to[back ? row : turned] = from[back ? turned : row];
        }
}

static duet_var *loss_of(duet_tape *t, duet_var *x, const duet_tensor *labels,
                         const duet_tensor *weight, int i) {
    const struct duet_loss_options options = {.weight = golden_weighted[i].weighted ? weight : NULL,
                                              .ignores = golden_weighted[i].ignores,
                                              .ignore_index = golden_weighted[i].ignore_index,
                                              .label_smoothing = golden_weighted[i].smoothing};
    return golden_weighted[i].nll ? duet_nll_loss(t, x, labels, DUET_MEAN, &options)
                                  : duet_cross_entropy(t, x, labels, DUET_MEAN, &options);
}

/* A pass of a program, of `places` rows a sample. */
static void run(duet_device *device, int i, int places, double *mean, float *gradient) {
    const int n = ROWS / places, rank = places > 1 ? 3 : 2;
    float turned[SCORES];
    duet_tensor *scores, *labels, *weight, *grad;
    duet_tape *t;
    turn(weighted_scores, turned, places, 0);
    MUST(duet_tensor_create(&scores, device, DUET_F32, rank, (int[]){n, CLASSES, places}, turned));
    MUST(duet_tensor_create(&labels, device, DUET_I32, rank - 1, (int[]){n, places},
                            golden_weighted[i].labels));
    MUST(duet_tensor_create(&weight, device, DUET_F32, 1, (int[]){CLASSES}, weighted_classes));
    MUST(duet_tape_create(&t, device));
    MUST(duet_tape_begin(t, NULL, n, DUET_EVALUATE));
    MUST(duet_loss_read(t, loss_of(t, duet_input(t, scores), labels, weight, i), mean, NULL));
    MUST(duet_tape_begin(t, NULL, n, DUET_TRAIN));
    duet_var *leaf = duet_leaf(t, scores), *loss = loss_of(t, leaf, labels, weight, i);
    MUST(duet_backward(t, loss, NULL));
    double sum;
    MUST(duet_loss_read(t, loss, &sum, NULL));
    cr_expect(sum == *mean || isnan(sum), "case %d: %.17g evaluated, %.17g trained", i, *mean, sum);
    *mean /= n;
    MUST(duet_var_grad(&grad, t, leaf));
    MUST(duet_tensor_read(grad, turned));
    turn(turned, gradient, places, 1);
    duet_tensor_free(grad), duet_tensor_free(scores), duet_tensor_free(labels);
    duet_tensor_free(weight);
    duet_tape_free(t);
}

static void expect(const char *kind, int places) {
    duet_device *device;
    MUST(duet_devices_open(&device, 1, kind, api_memory(kind)));
    for (int i = 0; i < CASES; i++) {
        const double want = golden_weighted[i].mean, *d = golden_weighted[i].gradient;
        float gradient[SCORES];
        double mean;
        run(device, i, places, &mean, gradient);
        cr_expect(isnan(want) ? isnan(mean) : fabs(mean - want) <= ROUNDING * fabs(want),
                  "%s, case %d: %.17g, not %.17g", kind, i, mean, want);
        for (int j = 0; j < SCORES; j++)
            cr_expect(fabs((double)gradient[j] - d[j]) <= ROUNDING * (fabs(d[j]) + 1e-3),
                      "%s, case %d, score %d: %.9g, not %.17g", kind, i, j, (double)gradient[j],
                      d[j]);
    }
    duet_devices_close(&device, 1);
}

Test(api_class_weights, means_and_gradients_are_those_of_pytorch, .timeout = 60) {
    static const int places[] = {1, 3, ROWS};
    for (int kind = 0; kind < (int)API_KINDS; kind++)
        for (int i = 0; i < 3; i++)
            expect(api_kinds[kind], places[i]);
}

static void refused(duet_tape *t, const duet_tensor *x, const duet_tensor *labels,
                    const struct duet_loss_options *options, const char *words) {
    MUST(duet_tape_begin(t, NULL, 2, DUET_TRAIN));
    cr_assert_null(duet_cross_entropy(t, duet_leaf(t, x), labels, DUET_MEAN, options));
    MUST_FAIL(duet_tape_error(t), DUET_USAGE, words);
}

/* PyTorch's default: labels of -100 have no loss and no gradient, and a mean is over the others:
 * log 3 of equal scores of three classes. */
Test(api_class_weights, minus_100_is_ignored, .timeout = 30) {
    const float numbers[9] = {0};
    const int32_t given[3] = {0, -100, 2};
    duet_device *device;
    duet_tensor *x, *labels, *grad;
    duet_tape *t;
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    MUST(duet_tape_create(&t, device));
    MUST(duet_tensor_create(&x, device, DUET_F32, 2, (int[]){3, 3}, numbers));
    MUST(duet_tensor_create(&labels, device, DUET_I32, 1, (int[]){3}, given));
    for (int sum = 0; sum < 2; sum++) {
        double loss;
        float dx[9], part = sum ? 1 : 0.5f;
        MUST(duet_tape_begin(t, NULL, 3, DUET_TRAIN));
        duet_var *leaf = duet_leaf(t, x),
                 *y = duet_cross_entropy(t, leaf, labels, sum ? DUET_SUM : DUET_MEAN, NULL);
        MUST(duet_backward(t, y, NULL));
        MUST(duet_loss_read(t, y, &loss, NULL)); /* of a mean: times the samples */
        cr_expect_float_eq(loss, (sum ? 2 : 3) * log(3), 1e-6, "%g", loss);
        MUST(duet_var_grad(&grad, t, leaf));
        MUST(duet_tensor_read(grad, dx));
        for (int i = 0; i < 9; i++) {
            double want = i / 3 == 1 ? 0 : (1.0 / 3 - (i == 0 || i == 8)) * part;
            cr_expect_float_eq(dx[i], want, 1e-6, "%d: %g", i, (double)dx[i]);
        }
    }
    duet_tensor_free(x), duet_tensor_free(labels);
    duet_tape_free(t);
    duet_devices_close(&device, 1);
}

Test(api_class_weights, what_is_refused, .timeout = 30) {
    const float numbers[6] = {0}, four[4] = {1, 1, 1, 1};
    const int32_t right[2] = {0, -1};
    duet_device *device;
    duet_tensor *x, *labels, *weight;
    duet_tape *t;
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    MUST(duet_tape_create(&t, device));
    MUST(duet_tensor_create(&x, device, DUET_F32, 2, (int[]){2, 3}, numbers));
    MUST(duet_tensor_create(&labels, device, DUET_I32, 1, (int[]){2}, right));
    MUST(duet_tensor_create(&weight, device, DUET_F32, 1, (int[]){4}, four));
    refused(t, x, labels, NULL,
            "Target -1 is out of bounds: give labels 0 to 2, or say it by ignore_index");
    refused(t, x, labels, &(struct duet_loss_options){.weight = weight},
            "weight of (4) for scores of (2, 3): give one for each of 3 classes");
    refused(t, x, labels, &(struct duet_loss_options){.weight = labels}, "weight");
    refused(t, x, labels, &(struct duet_loss_options){.ignores = 1, .ignore_index = 2},
            "Target -1 is out of bounds");
    duet_tensor_free(x), duet_tensor_free(labels), duet_tensor_free(weight);
    duet_tape_free(t);
    duet_devices_close(&device, 1);
}
