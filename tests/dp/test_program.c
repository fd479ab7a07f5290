/* duet_data_parallel: outputs and gradients equal those of the same chunks on one device, for any
 * number of devices, with uneven and empty chunks. The file also tests failures in replicas. */
#include <math.h>

#include "tests/dp/program_world.h"

/* One pass over all samples adds their gradients in another order. They are below 1, and differed
 * by up to 9e-8. */
static const double ORDER = 1e-6;

/* Where chunk r of n of torch.chunk begins. */
static int begins(int r, int samples, int n) {
    int most = (samples + n - 1) / n, at = r * most;
    return at < samples ? at : samples;
}

/* One chunk on device 0, with the losses of its samples, each weighed by `weight`. */
static void pass_alone(struct world *w, int from, int count, float weight, float *output,
                       float grads[PARAMS][LARGEST]) {
    duet_tensor *x = samples(w, from, count), *y = labels(w, 0, from, count), *value, *each;
    float weights[SAMPLES];
    MUST(duet_tape_begin(w->tape, w->alone, count, DUET_TRAIN));
    duet_var *scores = forward(w->tape, duet_input(w->tape, x), &w->wrong);
    duet_var *losses = duet_cross_entropy(w->tape, scores, y, DUET_NONE, NULL);
    for (int i = 0; i < count; i++)
        weights[i] = weight;
    MUST(duet_tensor_create(&each, w->devices[0], DUET_F32, 1, &count, weights));
    MUST(duet_backward(w->tape, losses, each));
    MUST(duet_var_value(&value, w->tape, scores));
    if (output) MUST(duet_tensor_read(value, output));
    read_grads(w->alone, grads);
    duet_tensor_free(x);
    duet_tensor_free(y);
    duet_tensor_free(value);
    duet_tensor_free(each);
}

/* The gradients of all chunks, a device without samples having zeros, added in fold order. */
static float chunk_grads[DEVICES][PARAMS][LARGEST];
static void fold_chunks(struct world *w, int n_samples, float weight) {
    memset(chunk_grads, 0, sizeof chunk_grads);
    for (int r = 0; r < w->n; r++) {
        int from = begins(r, n_samples, w->n), count = begins(r + 1, n_samples, w->n) - from;
        if (count) pass_alone(w, from, count, weight, NULL, chunk_grads[r]);
    }
    for (int left = w->n; left > 1; left = (left + 1) / 2)
        for (int to = 0, half = (left + 1) / 2; to + half < left; to++)
            for (int i = 0; i < PARAMS; i++)
                for (int k = 0; k < LARGEST; k++)
                    chunk_grads[to][i][k] += chunk_grads[to + half][i][k];
}

/* ---- the output outside, the loss of the program ---- */

static float got[PARAMS][LARGEST], whole[PARAMS][LARGEST];

/* The whole step on the caller's tape, as a program writes it. */
static void tape_step(struct world *w, int output_device, int n_samples, float *out) {
    duet_tensor *x = samples(w, 0, n_samples), *y = labels(w, output_device, 0, n_samples), *output;
    MUST(duet_tape_begin(w->loss_tape, output_device ? NULL : w->params, n_samples, DUET_TRAIN));
    duet_var *scores = duet_data_parallel_call(w->loss_tape, w->dp, x);
    MUST(duet_backward(w->loss_tape, duet_cross_entropy(w->loss_tape, scores, y, DUET_MEAN, NULL),
                       NULL));
    MUST(duet_var_value(&output, w->loss_tape, scores));
    MUST(duet_tensor_read(output, out));
    read_grads(w->params, got);
    duet_tensor_free(x);
    duet_tensor_free(y);
    duet_tensor_free(output);
}

static void dp_step(struct world *w, int output_device, int n_samples, float *out) {
    duet_tensor *x = samples(w, 0, n_samples), *y = labels(w, output_device, 0, n_samples), *output,
                *grad;
    MUST(duet_data_parallel_forward(w->dp, &x, 1, &output, 1, DUET_TRAIN));
    cr_assert_eq(duet_tensor_device(output), w->devices[output_device]);
    cr_assert_eq(duet_tensor_dim(output, 0), n_samples);
    MUST(duet_tape_begin(w->loss_tape, NULL, n_samples, DUET_TRAIN));
    duet_var *leaf = duet_leaf(w->loss_tape, output);
    duet_var *loss = duet_cross_entropy(w->loss_tape, leaf, y, DUET_MEAN, NULL);
    MUST(duet_backward(w->loss_tape, loss, NULL));
    MUST(duet_var_grad(&grad, w->loss_tape, leaf));
    MUST(duet_data_parallel_backward(w->dp, &grad, 1));
    MUST(duet_tensor_read(output, out));
    read_grads(w->params, got);
    duet_tensor_free(x);
    duet_tensor_free(y);
    duet_tensor_free(output);
    duet_tensor_free(grad);
}

typedef void step_function(struct world *w, int output_device, int n_samples, float *out);

static void compare_step(struct world *w, step_function *step, int output_device, int n_samples) {
    float out[SAMPLES * CLASSES], want[SAMPLES * CLASSES], weight = 1.0f / (float)n_samples;
    double size = 0;
    step(w, output_device, n_samples, out);
    pass_alone(w, 0, n_samples, weight, want, whole);
    fold_chunks(w, n_samples, weight);
    cr_assert_eq(memcmp(out, want, (size_t)(n_samples * CLASSES) * sizeof *out), 0, "outputs");
    for (int i = 0; i < PARAMS; i++) {
        size_t count = duet_tensor_count(duet_params_grad(w->params, i));
        cr_assert_eq(memcmp(got[i], chunk_grads[0][i], count * sizeof(float)), 0,
                     "%s: %d samples on %d devices", shapes[i].name, n_samples, w->n);
        for (size_t k = 0; k < count; k++) {
            size += fabs((double)got[i][k]);
            cr_assert_leq(fabs((double)got[i][k] - (double)whole[i][k]), ORDER);
        }
        /* `alone` takes the same step, to the bit */
        MUST(duet_tensor_write(duet_params_grad(w->alone, i), got[i]));
    }
    cr_assert_gt(size, 0.01);
    MUST(duet_sgd(w->params, 0.5, 1));
    MUST(duet_sgd(w->alone, 0.5, 1));
}

/* With CUDA_EMULATION on GPUs too. */
Test(api_data_parallel, steps_are_those_of_one_device, .timeout = 60) {
    static const int sizes[] = {10, 10, 9, SAMPLES, 3, 1, 1, 9};
    for (int kind = 0; kind < API_KINDS; kind++)
        for (int n = 1; n <= DEVICES; n++) {
            struct world w;
            open_world(&w, api_kinds[kind], n, n > 2 ? n - 2 : 0);
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                int most = (sizes[i] + n - 1) / n;
                compare_step(&w, i % 2 ? dp_step : tape_step, n > 2 ? n - 2 : 0, sizes[i]);
                cr_assert_eq(w.dp->used, (sizes[i] + most - 1) / most);
            }
            close_world(&w);
        }
}

/* ---- failures and misuse ---- */

Test(api_data_parallel, a_failure_names_its_replica, .timeout = 60) {
    struct world w;
    duet_tensor *out = NULL;
    open_world(&w, "cpu", 4, 0);
    duet_tensor *x = samples(&w, 0, 10);
    w.wrong = (struct wrong){.samples = 1, .how = BAD_LAYER};
    cr_assert_neq(duet_data_parallel_forward(w.dp, &x, 1, &out, 1, DUET_TRAIN), DUET_OK);
    MUST_SAY("Caught RuntimeError in replica 3 on device 3. ");
    cr_assert_null(out);
    w.wrong.samples = 3; /* replicas 0, 1 and 2 */
    cr_assert_neq(duet_data_parallel_forward(w.dp, &x, 1, &out, 1, DUET_TRAIN), DUET_OK);
    MUST_SAY("Caught RuntimeError in replica 0 on device 0. ");
    w.wrong.how = NOTHING;
    cr_assert(duet_data_parallel_forward(w.dp, &x, 1, &out, 1, DUET_TRAIN));
    MUST_SAY("has returned NULL");
    w.wrong = (struct wrong){.samples = 1, .how = OTHER_SHAPE};
    cr_assert_neq(duet_data_parallel_forward(w.dp, &x, 1, &out, 1, DUET_TRAIN), DUET_OK);
    MUST_SAY("Gather got an input of invalid size: got [1, 70], but expected [1, 3]");
    MUST_FAIL(duet_data_parallel_backward(w.dp, NULL, 0), DUET_USAGE, "no forward in DUET_TRAIN");
    w.wrong = (struct wrong){0};
    compare_step(&w, tape_step, 0, 10); /* nothing was damaged */
    duet_tensor_free(x);
    close_world(&w);
}
