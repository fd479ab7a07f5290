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

/* Row r, class c as scores of (samples, classes, places) and the other way round. */
static void turn(const float *from, float *to, int places, int back) {
    for (int r = 0; r < GOLDEN_ROWS; r++)
        for (int c = 0; c < GOLDEN_CLASSES; c++) {
            int row = r * GOLDEN_CLASSES + c,
                turned = (r / places * GOLDEN_CLASSES + c) * places + r % places;
            to[back ? row : turned] = from[back ? turned : row];
        }
}

/* Forward and backward by the mean over the rows, of which `places` are a sample. */
static void run(struct device *d, double smoothing, int places, double *losses, float *gradient) {
    const int n = GOLDEN_ROWS / places, shape[3] = {n, GOLDEN_CLASSES, places},
              label_shape[2] = {n, places}, rank = places > 1 ? 3 : 2;
    struct segments one = {.count = 1, .n = n, .seg = {{.n = n}}};
    struct step_block block = {.weight = 1.0f / (float)n};
    float turned[GOLDEN_ROWS * GOLDEN_CLASSES];
    struct stream *stream = device_compute(d);
    void *scores, *labels, *step;
    duet_tape *t;
    MUST(device_alloc(d, &scores, sizeof golden_scores, MEM_INPUT));
    MUST(device_alloc(d, &labels, sizeof golden_labels, MEM_INPUT));
    MUST(device_alloc(d, &step, sizeof block, MEM_WORKSPACE));
    turn((const float *)(const void *)golden_scores, turned, places, 0);
    MUST(copy_to_device(stream, scores, turned, sizeof turned));
    MUST(copy_to_device(stream, labels, golden_labels, sizeof golden_labels));
    MUST(stream_write(stream, step, &block, sizeof block));
    MUST(tape_init(&t, d));
    MUST(tape_begin(t, &(struct tape_step){.segments = &one, .step = step, .training = 1}));
    struct tensor x = tensor_plain(scores, DTYPE_F32, rank, shape);
    duet_tensor y = {.device = d, .t = tensor_plain(labels, DTYPE_I32, rank - 1, label_shape)};
    duet_var *leaf = tape_leaf(t, &x, 1);
    duet_var *loss = duet_cross_entropy(t, leaf, &y, DUET_MEAN,
                                        &(struct duet_loss_options){.label_smoothing = smoothing});
    MUST(tape_backward(t, loss, NULL));
    MUST(copy_to_host(stream, losses, loss->value.data, GOLDEN_ROWS * sizeof *losses));
    MUST(copy_to_host(stream, turned, leaf->grad.data, sizeof turned));
    MUST(stream_sync(stream));
    turn(turned, gradient, places, 1);
    duet_tape_free(t);
    device_free(d, scores), device_free(d, labels), device_free(d, step);
}

static void expect(int places) {
    for (int k = 0; k < ALL_KINDS; k++)
        for (size_t i = 0; i < sizeof golden_smoothing / sizeof *golden_smoothing; i++) {
            double losses[GOLDEN_ROWS], e = golden_smoothing[i].smoothing;
            float gradient[GOLDEN_ROWS * GOLDEN_CLASSES];
            struct device *d = test_open(all_kinds[k], 0);
            run(d, e, places, losses, gradient);
            device_close(d);
            for (int n = 0; n < GOLDEN_ROWS; n++)
                cr_expect(near(losses[n], golden_smoothing[i].losses[n], DOUBLE_ORDER),
                          "smoothing %g, row %d: %.17g", e, n, losses[n]);
            for (int n = 0; n < GOLDEN_ROWS * GOLDEN_CLASSES; n++)
                cr_expect(near(gradient[n], golden_smoothing[i].gradient[n], FLOAT_ROUNDING),
                          "smoothing %g, score %d: %.9g", e, n, (double)gradient[n]);
        }
}

Test(smoothing, has_the_numbers_of_pytorch, .timeout = 60) {
    expect(1);
}

/* Of a sample with several labels, as each word of a sentence has, each row is a share. */
Test(smoothing, a_sample_may_have_several_labels, .timeout = 60) {
    cr_assert(GOLDEN_ROWS % 2 == 0);
    expect(2);
    expect(GOLDEN_ROWS);
}
