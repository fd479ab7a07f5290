/* The losses: cross entropy and nll_loss with class weights, ignored labels and smoothing have
 * PyTorch's means and gradients, for rows and for samples with several positions, on every kind of
 * device. Every loss and reduction is also compared with central differences. */
#include <math.h>

#include "tests/duet/shared.h"
#include "tests/golden/golden.h"

enum { MOST = 64 };
#define FILE_OF_FACTS "tests/golden/losses.txt"

/* The divisor and each row's weight are rounded to float, a gradient once more. */
static const double ROUNDING = 0x1p-22;
/* Both sides compute a loss in double from the same float scores, by another order of sums. */
static const double DOUBLE_ORDER = 1e-13;

struct loss_case {
    const char *name, *scores, *labels;
    int nll, weighted, ignores, ignore_index;
    double smoothing;
};

#define CASES_OF(kind, nll, smoothing)                                               \
    {kind "_weights", "scores", "inside", nll, 1, 0, 0, smoothing},                  \
        {kind "_ignored", "scores", "outside", nll, 0, 1, -100, smoothing},          \
        {kind "_ignored_class", "scores", "inside", nll, 0, 1, 2, smoothing},        \
        {kind "_both", "scores", "outside", nll, 1, 1, -100, smoothing},             \
        {kind "_ignored_of_weights", "scores", "inside", nll, 1, 1, 4, smoothing}, { \
        kind "_all_ignored", "scores", "none", nll, 1, 1, 2, smoothing               \
    }
static const struct loss_case cases[] = {CASES_OF("cross_entropy", 0, 0),
                                         CASES_OF("smoothed", 0, 0.3),
                                         CASES_OF("nll", 1, 0),
                                         {"rows_0", "rows_scores", "rows", 0, 0, 0, 0, 0},
                                         {"rows_1", "rows_scores", "rows", 0, 0, 0, 0, 0.1},
                                         {"rows_2", "rows_scores", "rows", 0, 0, 0, 0, 0.5},
                                         {"rows_3", "rows_scores", "rows", 0, 0, 0, 0, 1}};

/* Row r, class c as scores of (samples, classes, positions) and the other way round. */
static void permute(const float *from, float *to, int rows, int classes, int positions, int back) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < classes; c++) {
            int row = r * classes + c,
                other = (r / positions * classes + c) * positions + r % positions;
            to[back ? row : other] = from[back ? other : row];
        }
}

static duet_var *loss_of(duet_tape *t, duet_var *x, const duet_tensor *labels,
                         const duet_tensor *weight, const struct loss_case *c) {
    const struct duet_loss_options options = {.weight = c->weighted ? weight : NULL,
                                              .ignores = c->ignores,
                                              .ignore_index = c->ignore_index,
                                              .label_smoothing = c->smoothing};
    return c->nll ? duet_nll_loss(t, x, labels, DUET_MEAN, &options)
                  : duet_cross_entropy(t, x, labels, DUET_MEAN, &options);
}

static void check(duet_device *device, const struct loss_case *c, int positions) {
    struct golden_tensor scores = golden_tensor(FILE_OF_FACTS, c->scores),
                         labels = golden_tensor(FILE_OF_FACTS, c->labels),
                         weights = golden_tensor(FILE_OF_FACTS, "classes"), want;
    const int rows = scores.dims[0], classes = scores.dims[1], n = rows / positions,
              rank = positions > 1 ? 3 : 2;
    float x[MOST], laid[MOST], w[MOST];
    int32_t label[MOST];
    char key[64];
    duet_tensor *at_x, *at_labels, *at_weights, *grad;
    duet_tape *t;
    double mean, again;
    for (size_t i = 0; i < scores.count; i++)
        x[i] = (float)scores.x[i];
    for (size_t i = 0; i < labels.count; i++)
        label[i] = (int32_t)labels.x[i];
    for (size_t i = 0; i < weights.count; i++)
        w[i] = (float)weights.x[i];
    permute(x, laid, rows, classes, positions, 0);
    MUST(duet_tensor_create(&at_x, device, DUET_F32, rank, (int[]){n, classes, positions}, laid));
    MUST(duet_tensor_create(&at_labels, device, DUET_I32, rank - 1, (int[]){n, positions}, label));
    MUST(duet_tensor_create(&at_weights, device, DUET_F32, 1, weights.dims, w));
    MUST(duet_tape_create(&t, device));
    MUST(duet_tape_begin(t, NULL, n, DUET_EVALUATE));
    MUST(duet_loss_read(t, loss_of(t, duet_input(t, at_x), at_labels, at_weights, c), &mean, NULL));
    MUST(duet_tape_begin(t, NULL, n, DUET_TRAIN));
    duet_var *leaf = duet_leaf(t, at_x), *loss = loss_of(t, leaf, at_labels, at_weights, c);
    MUST(duet_backward(t, loss, NULL));
    MUST(duet_loss_read(t, loss, &again, NULL));
    cr_expect(again == mean || isnan(mean), "%s: %.17g trained, %.17g evaluated", c->name, again,
              mean);
    MUST(duet_var_grad(&grad, t, leaf));
    MUST(duet_tensor_read(grad, laid));
    permute(laid, x, rows, classes, positions, 1);
    snprintf(key, sizeof key, "%s_mean", c->name);
    want = golden_tensor(FILE_OF_FACTS, key);
    mean /= n;
    double bound = c->weighted || c->ignores ? ROUNDING : DOUBLE_ORDER;
    cr_expect(isnan(want.x[0]) ? isnan(mean) : fabs(mean - want.x[0]) <= bound * fabs(want.x[0]),
              "%s: %.17g, not %.17g", key, mean, want.x[0]);
    snprintf(key, sizeof key, "%s_dx", c->name);
    want = golden_tensor(FILE_OF_FACTS, key);
    for (size_t i = 0; i < want.count; i++)
        cr_expect(fabs((double)x[i] - want.x[i]) <= ROUNDING * (fabs(want.x[i]) + 1e-3),
                  "%s, score %zu: %.9g, not %.17g", key, i, (double)x[i], want.x[i]);
    duet_tensor_free(grad), duet_tensor_free(at_x), duet_tensor_free(at_labels);
    duet_tensor_free(at_weights);
    duet_tape_free(t);
}

/* If a sample has several labels, one for each word of a sentence, each row is a share. */
Test(losses, means_and_gradients_are_those_of_pytorch, .timeout = 60) {
    for (int kind = 0; kind < (int)API_KINDS; kind++) {
        duet_device *device;
        MUST(duet_devices_open(&device, 1, api_kinds[kind], api_memory(api_kinds[kind])));
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            int rows = golden_tensor(FILE_OF_FACTS, cases[i].labels).dims[0];
            check(device, &cases[i], 1);
            check(device, &cases[i], rows == 12 ? 3 : 2);
            check(device, &cases[i], rows);
        }
        duet_devices_close(&device, 1);
    }
}

/* PyTorch's default: labels of -100 have no loss and no gradient, and a mean is over the others:
 * log 3 of equal scores of three classes. */
Test(losses, minus_100_is_ignored, .timeout = 30) {
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
        int64_t right;
        float dx[9], part = sum ? 1 : 0.5f;
        MUST(duet_tape_begin(t, NULL, 3, DUET_TRAIN));
        duet_var *leaf = duet_leaf(t, x),
                 *y = duet_cross_entropy(t, leaf, labels, sum ? DUET_SUM : DUET_MEAN, NULL);
        MUST(duet_backward(t, y, NULL));
        MUST(duet_loss_read(t, y, &loss, &right)); /* a mean is read as a sum over the samples */
        cr_expect_eq(right, 1, "of equal scores the first counts");
        cr_expect_float_eq(loss, (sum ? 2 : 3) * log(3), 1e-6, "%g", loss);
        MUST(duet_var_grad(&grad, t, leaf));
        MUST(duet_tensor_read(grad, dx));
        for (int i = 0; i < 9; i++) {
            double want = i / 3 == 1 ? 0 : (1.0 / 3 - (i == 0 || i == 8)) * part;
            cr_expect_float_eq(dx[i], want, 1e-6, "%d: %g", i, (double)dx[i]);
        }
        duet_tensor_free(grad);
    }
    duet_tensor_free(x), duet_tensor_free(labels);
    duet_tape_free(t);
    duet_devices_close(&device, 1);
}

/* ---- central differences ---- */

enum { N = 6, WIDTH = 9, NUMBERS = N * WIDTH, LOSSES = 7 };
/* nll is given a log_softmax that was rounded to float, by 2^-23, over STEP; a wrong term is
 * 1e-2. */
static const float STEP = 1.0f / 1024;
static const double OF_DIFFERENCE = 5e-4;

static duet_var *any_loss(duet_tape *t, duet_var *x, const duet_tensor *labels,
                          const duet_tensor *targets, enum duet_reduction r, int which) {
    const struct duet_loss_options half = {.label_smoothing = 0.5}, all = {.label_smoothing = 1};
    switch (which) {
    case 0: return duet_mse_loss(t, x, targets, r);
    case 1: return duet_smooth_l1_loss(t, x, targets, r);
    case 2: return duet_binary_cross_entropy_with_logits(t, x, targets, r);
    case 3: return duet_nll_loss(t, duet_log_softmax(t, x), labels, r, NULL);
    case 4: return duet_cross_entropy(t, x, labels, r, &half);
    case 5: return duet_cross_entropy(t, x, labels, r, &all);
    default: return duet_cross_entropy(t, x, labels, r, NULL);
    }
}

/* The sum over the samples; a sample's gradient is a share of it. */
static double sum_of(duet_tape *t, const duet_tensor *x, const duet_tensor *labels,
                     const duet_tensor *targets, int which) {
    double sum;
    MUST(duet_tape_begin(t, NULL, N, DUET_EVALUATE));
    MUST(duet_loss_read(t, any_loss(t, duet_input(t, x), labels, targets, DUET_SUM, which), &sum,
                        NULL));
    return sum;
}

static void check_differences(duet_tape *t, duet_tensor *x, const duet_tensor *labels,
                              const duet_tensor *targets, const duet_tensor *dy, int which) {
    float at[NUMBERS], gradient[3][NUMBERS], shares[N];
    duet_tensor *grad;
    MUST(duet_tensor_read(x, at));
    MUST(duet_tensor_read(dy, shares));
    for (int r = 0; r < 3; r++) {
        enum duet_reduction reduction = (enum duet_reduction)r;
        MUST(duet_tape_begin(t, NULL, N, DUET_TRAIN));
        duet_var *leaf = duet_leaf(t, x);
        duet_var *loss = any_loss(t, leaf, labels, targets, reduction, which);
        MUST(duet_backward(t, loss, reduction == DUET_NONE ? dy : NULL));
        MUST(duet_var_grad(&grad, t, leaf));
        MUST(duet_tensor_read(grad, gradient[r]));
        duet_tensor_free(grad);
    }
    for (int i = 0; i < NUMBERS; i++) {
        const float was = at[i], ends[2] = {was - STEP, was + STEP};
        double sum[2];
        for (int s = 0; s < 2; s++) {
            at[i] = ends[s];
            MUST(duet_tensor_write(x, at));
            sum[s] = sum_of(t, x, labels, targets, which);
        }
        at[i] = was;
        double slope = (sum[1] - sum[0]) / ((double)ends[1] - (double)ends[0]);
        for (int r = 0; r < 3; r++) {
            double share = r == DUET_MEAN ? 1.0 / N : r == DUET_SUM ? 1 : (double)shares[i / WIDTH];
            cr_expect(fabs((double)gradient[r][i] - share * slope) <= OF_DIFFERENCE,
                      "loss %d, reduction %d, score %d: %g, differences say %g", which, r, i,
                      (double)gradient[r][i], share * slope);
        }
    }
    MUST(duet_tensor_write(x, at));
}

Test(losses, gradients_are_those_of_differences, .timeout = 60) {
    float scores[NUMBERS], targets[NUMBERS], shares[N];
    int32_t labels[N];
    duet_device *device;
    duet_tensor *x, *at_targets, *at_labels, *dy;
    duet_tape *t;
    for (int i = 0; i < NUMBERS; i++) {
        scores[i] = 1.5f * golden_value(i, 7919), targets[i] = golden_value(i, 2003) / 2 + 0.5f;
        if (i < N) labels[i] = i * 5 % WIDTH, shares[i] = golden_value(i, 3571);
    }
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    MUST(duet_tape_create(&t, device));
    MUST(duet_tensor_create(&x, device, DUET_F32, 2, (int[]){N, WIDTH}, scores));
    MUST(duet_tensor_create(&at_targets, device, DUET_F32, 2, (int[]){N, WIDTH}, targets));
    MUST(duet_tensor_create(&at_labels, device, DUET_I32, 1, (int[]){N}, labels));
    MUST(duet_tensor_create(&dy, device, DUET_F32, 1, (int[]){N}, shares));
    for (int which = 0; which < LOSSES; which++)
        check_differences(t, x, at_labels, at_targets, dy, which);
    duet_tensor_free(x), duet_tensor_free(at_targets), duet_tensor_free(at_labels);
    duet_tensor_free(dy);
    duet_tape_free(t);
    duet_devices_close(&device, 1);
}
