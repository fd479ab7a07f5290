/* Cross entropy with label smoothing, on the tape, has PyTorch's losses and gradients. */
#include <math.h>

#include "nn/params.h"
#include "tests/device/shared.h"
#include "tests/golden/optimizers.h"

/* Both sides compute a loss in double from the same float scores, by another order of sums. */
static const double DOUBLE_ORDER = 1e-14;
/* A gradient is rounded to float once. */
static const double FLOAT_ROUNDING = 0x1p-24;

static int near(double got, double want, double bound) {
    return fabs(got - want) <= bound * (1 + fabs(want));
}

/* Forward and backward by the mean over the rows. */
static void run(struct device *d, double smoothing, double *losses, float *gradient) {
    const int shape[2] = {GOLDEN_ROWS, GOLDEN_CLASSES}, rows = GOLDEN_ROWS;
    struct segments one = {.count = 1, .n = GOLDEN_ROWS, .seg = {{.n = GOLDEN_ROWS}}};
    struct step_block block = {.weight = 1.0f / GOLDEN_ROWS};
    struct stream *stream = device_compute(d);
    void *scores, *labels, *step;
    duet_tape *t;
    MUST(device_alloc(d, &scores, sizeof golden_scores, MEM_INPUT));
    MUST(device_alloc(d, &labels, sizeof golden_labels, MEM_INPUT));
    MUST(device_alloc(d, &step, sizeof block, MEM_WORKSPACE));
    MUST(copy_to_device(stream, scores, golden_scores, sizeof golden_scores));
    MUST(copy_to_device(stream, labels, golden_labels, sizeof golden_labels));
    MUST(stream_write(stream, step, &block, sizeof block));
    MUST(tape_init(&t, d));
    MUST(tape_begin(t, &(struct tape_step){.segments = &one, .step = step, .training = 1}));
    struct tensor x = tensor_plain(scores, DTYPE_F32, 2, shape);
    duet_tensor y = {.device = d, .t = tensor_plain(labels, DTYPE_I32, 1, &rows)};
    duet_var *leaf = tape_leaf(t, &x, 1);
    duet_var *loss = duet_cross_entropy(t, leaf, &y, DUET_MEAN, smoothing);
    MUST(tape_backward(t, loss, NULL));
    MUST(copy_to_host(stream, losses, loss->value.data, GOLDEN_ROWS * sizeof *losses));
    MUST(copy_to_host(stream, gradient, leaf->grad.data, sizeof golden_scores));
    MUST(stream_sync(stream));
    duet_tape_free(t);
    device_free(d, scores), device_free(d, labels), device_free(d, step);
}

Test(smoothing, has_the_numbers_of_pytorch, .timeout = 60) {
    for (int k = 0; k < ALL_KINDS; k++)
        for (size_t i = 0; i < sizeof golden_smoothing / sizeof *golden_smoothing; i++) {
            double losses[GOLDEN_ROWS], e = golden_smoothing[i].smoothing;
            float gradient[GOLDEN_ROWS * GOLDEN_CLASSES];
            struct device *d = test_open(all_kinds[k], 0);
            run(d, e, losses, gradient);
            device_close(d);
            for (int n = 0; n < GOLDEN_ROWS; n++)
                cr_expect(near(losses[n], golden_smoothing[i].losses[n], DOUBLE_ORDER),
                          "smoothing %g, row %d: %.17g", e, n, losses[n]);
            for (int n = 0; n < GOLDEN_ROWS * GOLDEN_CLASSES; n++)
                cr_expect(near(gradient[n], golden_smoothing[i].gradient[n], FLOAT_ROUNDING),
                          "smoothing %g, score %d: %.9g", e, n, (double)gradient[n]);
        }
}
