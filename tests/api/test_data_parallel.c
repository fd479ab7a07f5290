/* duet_data_parallel: outputs, gradients and losses are those of the same chunks on one device,
 * whatever the number of devices, with uneven and empty chunks; failures in replicas; misuse. */
#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tests/api/shared.h"

/* One pass over all samples adds their gradients in another order. They are below 1, and were seen
 * to differ by 9e-8. */
static const double ORDER = 1e-6;

enum { W1, B1, W2, B2, UNUSED, PARAMS };
enum { K = 6, HIDDEN = 70, CLASSES = 3, LARGEST = HIDDEN * K, DEVICES = 5, SAMPLES = 40 };
static const struct duet_param shapes[PARAMS] = {{"fc1.weight", 2, {HIDDEN, K}, NULL},
                                                 {"fc1.bias", 1, {HIDDEN}, NULL},
                                                 {"fc2.weight", 2, {CLASSES, HIDDEN}, NULL},
                                                 {"fc2.bias", 1, {CLASSES}, NULL},
                                                 {"unused", 1, {4}, NULL}};

/* What forward is told: on which number of samples to go wrong, and how. */
struct wrong {
    int samples;
    enum { NOT_AT_ALL, BAD_LAYER, OTHER_SHAPE, NOTHING } how;
    enum duet_reduction reduction;
    int warnings;
};

static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
    const struct wrong *wrong = context;
    duet_tensor *value;
    int samples = duet_var_value(&value, t, x) ? 0 : duet_tensor_dim(value, 0);
    float seen[SAMPLES * K];
    /* A device other than the first looks at its rows while the first has run nothing yet: on late
     * devices they are there only if its stream waits for the scatter. */
    if (value && !strstr(duet_device_name(duet_tensor_device(value)), "(0)"))
        duet_tensor_read(value, seen);
    duet_tensor_free(value);
    int here = samples == wrong->samples ? (int)wrong->how : NOT_AT_ALL;
    duet_var *h = duet_relu(t, duet_linear(t, x, W1, here == BAD_LAYER ? PARAMS : B1));
    return here == NOTHING ? NULL : here == OTHER_SHAPE ? h : duet_linear(t, h, W2, B2);
}

static duet_var *loss_of(duet_tape *t, duet_var *y, const duet_tensor *labels, void *context) {
    return duet_cross_entropy(t, y, labels, ((struct wrong *)context)->reduction, 0);
}

static void count_warning(const char *text, void *context) {
    cr_assert_not_null(strstr(text, "Was asked to gather along dimension 0"), "%s", text);
    ((struct wrong *)context)->warnings++;
}

struct world {
    int n;
    duet_device *devices[DEVICES];
    duet_params *params, *alone; /* equal values, both on device 0 */
    duet_tape *tape, *loss_tape; /* on device 0 and on the output device */
    duet_data_parallel *dp;
    struct wrong wrong;
    float x[SAMPLES * K];
    int32_t labels[SAMPLES];
};

static void open_devices(struct world *w, const char *kind, int n) {
    static float values[PARAMS][LARGEST];
    struct duet_param params[PARAMS];
    duet_rng *rng;
    memset(w, 0, sizeof *w);
    w->n = n;
    MUST(duet_rng_create(&rng, 7));
    memcpy(params, shapes, sizeof shapes);
    for (int i = 0; i < PARAMS; i++) {
        duet_rng_normal(rng, values[i], LARGEST, 0, 0.4);
        params[i].values = values[i];
    }
    duet_rng_normal(rng, w->x, SAMPLES * K, 0, 1);
    duet_rng_free(rng);
    for (int i = 0; i < SAMPLES; i++)
        w->labels[i] = i * 5 % CLASSES;
    MUST(duet_devices_open(w->devices, n, kind, api_memory(kind)));
    MUST(duet_params_create(&w->params, w->devices[0], params, PARAMS));
    MUST(duet_params_create(&w->alone, w->devices[0], params, PARAMS));
    MUST(duet_tape_create(&w->tape, w->devices[0]));
}

static void open_world(struct world *w, const char *kind, int n, int output_device) {
    struct duet_data_parallel_options options = {
        .output_device = output_device, .loss = loss_of, .warn = count_warning};
    open_devices(w, kind, n);
    MUST(duet_tape_create(&w->loss_tape, w->devices[output_device]));
    MUST(duet_data_parallel_create(&w->dp, w->devices, n, w->params, forward, &w->wrong, &options));
    cr_assert_eq(duet_data_parallel_replicas(w->dp), n);
}

static void close_world(struct world *w) {
    duet_data_parallel_free(w->dp);
    duet_tape_free(w->tape);
    duet_tape_free(w->loss_tape);
    duet_params_free(w->params);
    duet_params_free(w->alone);
    duet_devices_close(w->devices, w->n);
}

static duet_tensor *samples(struct world *w, int from, int count) {
    duet_tensor *x;
    MUST(duet_tensor_create(&x, w->devices[0], DUET_F32, 2, (int[]){count, K}, w->x + from * K));
    return x;
}

static duet_tensor *labels(struct world *w, int device, int from, int count) {
    duet_tensor *y;
    MUST(duet_tensor_create(&y, w->devices[device], DUET_I32, 1, &count, w->labels + from));
    return y;
}

/* torch.chunk, written the other way round: where chunk r of n begins. */
static int begins(int r, int samples, int n) {
    int most = (samples + n - 1) / n, at = r * most;
    return at < samples ? at : samples;
}

static void read_grads(duet_params *params, float grads[PARAMS][LARGEST]) {
    for (int i = 0; i < PARAMS; i++)
        MUST(duet_tensor_read(duet_params_grad(params, i), grads[i]));
}

/* One chunk on device 0, with the sum of the losses of its samples, each weighed by `weight`, or
 * with the reduction of the world where weight is 0. */
static double pass_alone(struct world *w, int from, int count, float weight, float *output,
                         float grads[PARAMS][LARGEST]) {
    duet_tensor *x = samples(w, from, count), *y = labels(w, 0, from, count), *value, *each = NULL;
    float weights[SAMPLES];
    double sum;
    MUST(duet_tape_begin(w->tape, w->alone, count, DUET_TRAIN));
    duet_var *scores = forward(w->tape, duet_input(w->tape, x), &w->wrong);
    enum duet_reduction r = weight > 0 ? DUET_NONE : w->wrong.reduction;
    duet_var *loss = duet_cross_entropy(w->tape, scores, y, r, 0);
    for (int i = 0; i < count; i++)
        weights[i] = weight;
    MUST(duet_tensor_create(&each, w->devices[0], DUET_F32, 1, &count, weights));
    MUST(duet_backward(w->tape, loss, weight > 0 ? each : NULL));
    MUST(duet_loss_read(w->tape, loss, &sum, NULL));
    MUST(duet_var_value(&value, w->tape, scores));
    if (output) MUST(duet_tensor_read(value, output));
    read_grads(w->alone, grads);
    duet_tensor_free(x);
    duet_tensor_free(y);
    duet_tensor_free(value);
    duet_tensor_free(each);
    return sum;
}

/* The gradients of all chunks, a device without samples having zeros, added in fold order. */
static float chunk_grads[DEVICES][PARAMS][LARGEST];
static void fold_chunks(struct world *w, int n_samples, float weight, double *losses) {
    memset(chunk_grads, 0, sizeof chunk_grads);
    for (int r = 0; r < w->n; r++) {
        int from = begins(r, n_samples, w->n), count = begins(r + 1, n_samples, w->n) - from;
        if (!count) continue;
        double sum = pass_alone(w, from, count, weight, NULL, chunk_grads[r]);
        if (losses) losses[r] = w->wrong.reduction == DUET_MEAN ? sum / count : sum;
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
    MUST(duet_backward(w->loss_tape, duet_cross_entropy(w->loss_tape, scores, y, DUET_MEAN, 0),
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
    MUST(duet_data_parallel_forward(w->dp, x, &output, DUET_TRAIN));
    cr_assert_eq(duet_tensor_device(output), w->devices[output_device]);
    cr_assert_eq(duet_tensor_dim(output, 0), n_samples);
    MUST(duet_tape_begin(w->loss_tape, NULL, n_samples, DUET_TRAIN));
    duet_var *leaf = duet_leaf(w->loss_tape, output);
    duet_var *loss = duet_cross_entropy(w->loss_tape, leaf, y, DUET_MEAN, 0);
    MUST(duet_backward(w->loss_tape, loss, NULL));
    MUST(duet_var_grad(&grad, w->loss_tape, leaf));
    MUST(duet_data_parallel_backward(w->dp, grad));
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
    fold_chunks(w, n_samples, weight, NULL);
    cr_assert_eq(memcmp(out, want, (size_t)(n_samples * CLASSES) * sizeof *out), 0, "outputs");
    for (int i = 0; i < PARAMS; i++) {
        size_t count = duet_tensor_count(duet_params_grad(w->params, i));
        cr_assert_eq(memcmp(got[i], chunk_grads[0][i], count * sizeof(float)), 0,
                     "%s: %d samples on %d devices", shapes[i].name, n_samples, w->n);
        for (size_t k = 0; k < count; k++) {
            size += fabs((double)got[i][k]);
            cr_assert_leq(fabs((double)got[i][k] - (double)whole[i][k]), ORDER);
        }
        /* `alone` goes the same way, to the bit */
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
                cr_assert_eq(duet_data_parallel_replicas(w.dp), (sizes[i] + most - 1) / most);
            }
            close_world(&w);
        }
}

/* ---- the loss in forward ---- */

static void compare_losses(struct world *w, int output_device, int n_samples) {
    duet_tensor *x = samples(w, 0, n_samples), *y = labels(w, 0, 0, n_samples), *losses;
    double want[DEVICES], vector[DEVICES];
    MUST(duet_data_parallel_loss(w->dp, x, y, &losses, DUET_TRAIN));
    MUST(duet_data_parallel_backward(w->dp, NULL));
    int used = duet_data_parallel_replicas(w->dp);
    cr_assert_eq(duet_tensor_rank(losses), 1);
    cr_assert_eq(duet_tensor_dim(losses, 0), used);
    cr_assert_eq(duet_tensor_device(losses), w->devices[output_device]);
    MUST(duet_tensor_read(losses, vector));
    read_grads(w->params, got);
    fold_chunks(w, n_samples, 0, want);
    for (int r = 0; r < used; r++)
        cr_assert(vector[r] == want[r] && want[r] > 0, "%g is not %g", vector[r], want[r]);
    for (int i = 0; i < PARAMS; i++)
        for (size_t k = 0; k < duet_tensor_count(duet_params_grad(w->params, i)); k++)
            cr_assert(got[i][k] == chunk_grads[0][i][k] * (1.0f / (float)used));
    duet_tensor_free(x);
    duet_tensor_free(y);
    duet_tensor_free(losses);
}

Test(api_data_parallel, losses_are_a_vector_and_weigh_alike, .timeout = 60) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        struct world w;
        open_world(&w, api_kinds[kind], 4, 3);
        compare_losses(&w, 3, 8);
        compare_losses(&w, 3, 10); /* 3 3 3 1 */
        compare_losses(&w, 3, 9);  /* 3 3 3 0 */
        w.wrong.reduction = DUET_SUM;
        compare_losses(&w, 3, 9);
        cr_assert_eq(w.wrong.warnings, 1, "%d warnings", w.wrong.warnings);
        close_world(&w);
    }
}

/* ---- failures and misuse ---- */

Test(api_data_parallel, a_failure_names_its_replica, .timeout = 60) {
    struct world w;
    duet_tensor *out = NULL;
    open_world(&w, "cpu", 4, 0);
    duet_tensor *x = samples(&w, 0, 10), *y = labels(&w, 0, 0, 10);
    w.wrong = (struct wrong){.samples = 1, .how = BAD_LAYER};
    cr_assert_neq(duet_data_parallel_forward(w.dp, x, &out, DUET_TRAIN), DUET_OK);
    MUST_SAY("Caught RuntimeError in replica 3 on device 3. ");
    cr_assert_null(out);
    w.wrong.samples = 3; /* replicas 0, 1 and 2 */
    cr_assert_neq(duet_data_parallel_loss(w.dp, x, y, &out, DUET_TRAIN), DUET_OK);
    MUST_SAY("Caught RuntimeError in replica 0 on device 0. ");
    w.wrong.how = NOTHING;
    cr_assert(duet_data_parallel_forward(w.dp, x, &out, DUET_TRAIN));
    MUST_SAY("has returned NULL");
    w.wrong = (struct wrong){.samples = 1, .how = OTHER_SHAPE};
    cr_assert_neq(duet_data_parallel_forward(w.dp, x, &out, DUET_TRAIN), DUET_OK);
    MUST_SAY("Gather got an input of invalid size: got [1, 70], but expected [1, 3]");
    w.wrong = (struct wrong){.reduction = DUET_NONE};
    MUST_FAIL(duet_data_parallel_loss(w.dp, x, y, &out, DUET_TRAIN), DUET_USAGE, "DUET_NONE");
    MUST_FAIL(duet_data_parallel_backward(w.dp, NULL), DUET_USAGE, "without a forward");
    w.wrong = (struct wrong){0};
    compare_step(&w, tape_step, 0, 10); /* none of this has done harm */
    duet_tensor_free(x), duet_tensor_free(y);
    close_world(&w);
}

/* Replica 1 is late, and looks at its samples when everybody has given it up. */
struct late {
    atomic_int done;
    float seen[2 * K];
};

static duet_var *late_forward(duet_tape *t, duet_var *x, void *context) {
    struct late *late = context;
    duet_tensor *value;
    if (duet_var_value(&value, t, x)) return NULL;
    int is_late = strstr(duet_device_name(duet_tensor_device(value)), "(1)") != NULL;
    duet_tensor_free(value);
    if (!is_late) return duet_linear(t, x, W1, B1);
    usleep(400000);
    if (duet_var_value(&value, t, x)) return NULL;
    duet_tensor_read(value, late->seen);
    duet_tensor_free(value);
    atomic_store(&late->done, 1);
    return duet_linear(t, x, W1, B1);
}

Test(api_data_parallel, what_a_lost_thread_uses_is_left_alone, .timeout = 60) {
    const struct duet_data_parallel_options soon = {.timeout_s = 0.1};
    struct world w;
    struct late late = {0};
    duet_tensor *out;
    open_devices(&w, "cpu", 2);
    MUST(duet_data_parallel_create(&w.dp, w.devices, 2, w.params, late_forward, &late, &soon));
    duet_tensor *x = samples(&w, 0, 4), *other = samples(&w, 8, 4), *more = samples(&w, 0, SAMPLES);
    MUST_FAIL(duet_data_parallel_forward(w.dp, x, &out, DUET_TRAIN), DUET_TIMEOUT,
              "Caught TimeoutError in replica 1 on device 1. ");
    MUST_FAIL(duet_data_parallel_forward(w.dp, other, &out, DUET_TRAIN), DUET_TIMEOUT, "replica 1");
    MUST_FAIL(duet_data_parallel_forward(w.dp, more, &out, DUET_TRAIN), DUET_TIMEOUT, "replica 1");
    double end = duet_time() + 30;
    while (!atomic_load(&late.done) && duet_time() < end)
        usleep(1000);
    cr_assert(atomic_load(&late.done));
    cr_assert_arr_eq(late.seen, w.x + 2 * K, sizeof late.seen); /* rows 2 and 3 of x */
    duet_tensor_free(x), duet_tensor_free(other), duet_tensor_free(more);
    close_world(&w); /* the thread has ended, so everything can be freed */
}

static duet_var *begun(struct world *w, duet_device *device, duet_tape **tape, duet_tensor *x) {
    MUST(duet_tape_create(tape, device));
    MUST(duet_tape_begin(*tape, device == w->devices[0] ? w->params : NULL, 4, DUET_TRAIN));
    return duet_data_parallel_call(*tape, w->dp, x);
}

/* What a call on a tape must not be used for. */
Test(api_data_parallel, misuse_on_a_tape_is_refused, .timeout = 60) {
    struct world w;
    duet_tape *near, *far;
    open_world(&w, "cpu", 2, 0);
    duet_tensor *x = samples(&w, 0, 4);
    cr_assert_null(duet_data_parallel_call(NULL, w.dp, x));
    cr_assert_null(begun(&w, w.devices[1], &far, x));
    MUST_FAIL(duet_tape_error(far), DUET_USAGE, "make a tape on the output device");
    duet_var *y = begun(&w, w.devices[0], &near, x);
    duet_var *other = duet_data_parallel_call(near, w.dp, x);
    MUST_FAIL(duet_backward(near, duet_sum(near, duet_add(near, y, other), NULL, 0, 0), NULL),
              DUET_USAGE, "another forward has come between");
    MUST(duet_tape_begin(near, w.params, 4, DUET_TRAIN));
    y = duet_data_parallel_call(near, w.dp, x);
    other = duet_linear(near, duet_input(near, x), W1, B1);
    other = duet_add(near, duet_sum(near, y, NULL, 0, 0), duet_sum(near, other, NULL, 0, 0));
    MUST_FAIL(duet_backward(near, other, NULL), DUET_USAGE, "uses parameter 0 (fc1.weight)");
    MUST(duet_tape_begin(near, w.params, 4, DUET_EVALUATE));
    cr_assert_not_null(duet_data_parallel_call(near, w.dp, x));
    duet_tensor_free(x);
    duet_tape_free(near);
    duet_tape_free(far);
    close_world(&w);
}

static int create(struct world *w, duet_device *const *devices, int n, duet_params *params,
                  struct duet_data_parallel_options options) {
    duet_data_parallel *dp;
    int code = duet_data_parallel_create(&dp, devices, n, params, forward, &w->wrong, &options);
    cr_assert(code ? !dp : !!dp);
    duet_data_parallel_free(dp);
    return code;
}

Test(api_data_parallel, wrong_arguments_are_refused, .timeout = 60) {
    struct world w;
    const struct duet_data_parallel_options none = {0};
    open_devices(&w, "cpu", 2);
    duet_device *turned[2] = {w.devices[1], w.devices[0]}, *twice[2] = {w.devices[0], w.devices[0]};
    MUST_FAIL(create(&w, turned, 2, w.params, none), DUET_USAGE,
              "module must have its parameters and buffers on device cpu(1) (device_ids[0]) but "
              "found one of them on device: cpu(0)");
    MUST_FAIL(create(&w, twice, 2, w.params, none), DUET_USAGE, "are one");
    MUST_FAIL(create(&w, NULL, 2, w.params, none), DUET_USAGE, "no devices");
    MUST_FAIL(create(&w, w.devices, 0, w.params, none), DUET_USAGE, "0 devices");
    MUST_FAIL(create(&w, w.devices, 2, NULL, none), DUET_USAGE, "no parameters");
    MUST_FAIL(
        create(&w, w.devices, 2, w.params, (struct duet_data_parallel_options){.output_device = 2}),
        DUET_USAGE, "output device 2");
    MUST_FAIL(
        create(&w, w.devices, 2, w.params, (struct duet_data_parallel_options){.timeout_s = -1}),
        DUET_USAGE, "timeout_s -1");
    MUST(duet_data_parallel_create(&w.dp, w.devices, 2, w.params, forward, &w.wrong, NULL));
    duet_tensor *x = samples(&w, 0, 4), *y = labels(&w, 0, 0, 3), *far, *out, *none_left;
    MUST(duet_tensor_to(&far, x, w.devices[1]));
    MUST_FAIL(duet_data_parallel_forward(NULL, x, &out, DUET_TRAIN), DUET_USAGE, "none was given");
    MUST_FAIL(duet_data_parallel_forward(w.dp, NULL, &out, DUET_TRAIN), DUET_USAGE, "no x");
    MUST_FAIL(duet_data_parallel_forward(w.dp, far, &out, DUET_TRAIN), DUET_USAGE, "cpu(1)");
    MUST_FAIL(duet_data_parallel_forward(w.dp, y, &out, DUET_TRAIN), DUET_USAGE, "must be float");
    MUST_FAIL(duet_data_parallel_loss(w.dp, x, y, &out, DUET_TRAIN), DUET_USAGE, "loss function");
    MUST(duet_data_parallel_forward(w.dp, x, &out, DUET_EVALUATE));
    MUST_FAIL(duet_data_parallel_backward(w.dp, out), DUET_USAGE, "without a forward");
    duet_tensor_free(out);
    MUST(duet_data_parallel_forward(w.dp, x, &out, DUET_TRAIN));
    MUST_FAIL(duet_data_parallel_backward(w.dp, NULL), DUET_USAGE, "no gradient");
    MUST_FAIL(duet_data_parallel_backward(w.dp, far), DUET_USAGE, "cpu(1)");
    MUST_FAIL(duet_data_parallel_backward(w.dp, x), DUET_USAGE, "must agree");
    MUST(duet_data_parallel_backward(w.dp, out));
    MUST_FAIL(duet_data_parallel_backward(w.dp, out), DUET_USAGE, "without a forward");
    duet_tensor_free(out);
    none_left = samples(&w, 0, 0); /* no samples are a batch, too */
    MUST(duet_data_parallel_forward(w.dp, none_left, &out, DUET_TRAIN));
    cr_assert_eq(duet_tensor_count(out), 0);
    MUST(duet_data_parallel_backward(w.dp, out));
    read_grads(w.params, got);
    cr_assert_eq(got[W1][0], 0.0f);
    duet_tensor_free(out);
    duet_tensor_free(none_left);
    duet_tensor_free(x);
    duet_tensor_free(y);
    duet_tensor_free(far);
    duet_data_parallel_free(NULL);
    close_world(&w);
}
