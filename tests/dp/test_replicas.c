/* duet_data_parallel: the first replica's buffers, the gradient of the input, and gradients added
 * up over several backwards. With CUDA_EMULATION the tests also run on GPUs. */
#include <math.h>

#include "tests/duet/shared.h"

enum { W, B, FC, BIAS, PARAMS, C = 5, CLASSES = 3, MOST = 10, DEVICES = 3, LARGEST = 16 };
enum { MEAN, VAR, BATCHES, BUFFERS };
static const struct duet_buffer buffers[BUFFERS] = {
    {"bn.running_mean", DUET_F32, 1, {C}, 0},
    {"bn.running_var", DUET_F32, 1, {C}, 1},
    {"bn.num_batches_tracked", DUET_I64, 0, {0}, 0}};

struct world {
    duet_device *devices[DEVICES];
    duet_params *params, *alone; /* equal, both on device 0 */
    duet_tape *tape;             /* of `alone` */
    duet_data_parallel *dp;
    float x[MOST * C];
};

static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    x = duet_batch_norm(t, x, W, B, MEAN, 1e-5, 0.25, 0);
    return duet_linear(t, duet_relu(t, x), FC, BIAS);
}

static duet_params *make_params(duet_device *device) {
    static const float w[C] = {1, 2, .5f, 1, 1}, b[C] = {0, .25f, 0, -1, .5f}, bias[CLASSES];
    float fc[CLASSES * C];
    duet_params *params;
    for (int i = 0; i < CLASSES * C; i++)
        fc[i] = cosf((float)i);
    const struct duet_param all[PARAMS] = {{"bn.weight", 1, {C}, w},
                                           {"bn.bias", 1, {C}, b},
                                           {"fc.weight", 2, {CLASSES, C}, fc},
                                           {"fc.bias", 1, {CLASSES}, bias}};
    MUST(duet_params_create(&params, device, all, PARAMS));
    MUST(duet_params_register_buffers(params, buffers, BUFFERS));
    return params;
}

static void open_world(struct world *w, const char *kind, int input_grad) {
    const struct duet_data_parallel_options options = {.input_grad = input_grad};
    memset(w, 0, sizeof *w);
    for (int i = 0; i < MOST * C; i++)
        w->x[i] = sinf((float)(i * i)) + (float)(i / C) / 8; /* chunks differ in their mean */
    MUST(duet_devices_open(w->devices, DEVICES, kind, api_memory(kind)));
    w->params = make_params(w->devices[0]);
    w->alone = make_params(w->devices[0]);
    MUST(duet_tape_create(&w->tape, w->devices[0]));
    MUST(
        duet_data_parallel_create(&w->dp, w->devices, DEVICES, w->params, forward, NULL, &options));
}

static void close_world(struct world *w) {
    duet_data_parallel_free(w->dp);
    duet_tape_free(w->tape);
    duet_params_free(w->params);
    duet_params_free(w->alone);
    duet_devices_close(w->devices, DEVICES);
}

/* The gradient of the output that every backward starts from: different for each sample. */
static duet_tensor *start(struct world *w, int first, int n) {
    duet_tensor *grad;
    float dy[MOST * CLASSES];
    for (int i = 0; i < n * CLASSES; i++)
        dy[i] = cosf((float)(first * CLASSES + i));
    MUST(duet_tensor_create(&grad, w->devices[0], DUET_F32, 2, (int[]){n, CLASSES}, dy));
    return grad;
}

static duet_tensor *rows(struct world *w, int first, int n) {
    duet_tensor *x;
    MUST(duet_tensor_create(&x, w->devices[0], DUET_F32, 2, (int[]){n, C}, w->x + first * C));
    return x;
}

static void read_and_free(duet_tensor *tensor, float *host) {
    MUST(duet_tensor_read(tensor, host));
    duet_tensor_free(tensor);
}

/* Forward and, in training, backward of the first n samples. y, dx may be NULL. */
static void step(struct world *w, int n, enum duet_pass pass, float *y, float *dx) {
    duet_tensor *x = rows(w, 0, n), *dy = start(w, 0, n), *out;
    MUST(duet_data_parallel_forward(w->dp, &x, 1, &out, 1, pass));
    if (pass == DUET_TRAIN) MUST(duet_data_parallel_backward(w->dp, &dy, 1));
    if (y) MUST(duet_tensor_read(out, y));
    duet_tensor_free(out);
    if (dx) {
        MUST(duet_data_parallel_input_grad(w->dp, 0, &out));
        cr_assert_eq(duet_tensor_device(out), w->devices[0]);
        cr_assert(duet_tensor_rank(out) == 2 && duet_tensor_dim(out, 0) == n);
        read_and_free(out, dx);
    }
    duet_tensor_free(x);
    duet_tensor_free(dy);
}

/* The same for a chunk on device 0. */
static void step_alone(struct world *w, int first, int n, enum duet_pass pass, float *y,
                       float *dx) {
    duet_tensor *x = rows(w, first, n), *dy = start(w, first, n), *out;
    MUST(duet_tape_begin(w->tape, w->alone, n, pass));
    duet_var *leaf = duet_leaf(w->tape, x), *scores = forward(w->tape, leaf, NULL);
    if (pass == DUET_TRAIN) {
        MUST(duet_backward(w->tape, scores, dy));
        MUST(duet_var_grad(&out, w->tape, leaf));
        read_and_free(out, dx);
    }
    MUST(duet_var_value(&out, w->tape, scores));
    read_and_free(out, y);
    duet_tensor_free(x);
    duet_tensor_free(dy);
}

static void expect_same_buffers(struct world *w) {
    for (int i = 0; i < BUFFERS; i++) {
        char got[C * sizeof(float)], want[C * sizeof(float)];
        size_t bytes = i == BATCHES ? sizeof(int64_t) : sizeof got;
        MUST(duet_tensor_read(duet_params_buffer(w->params, i), got));
        MUST(duet_tensor_read(duet_params_buffer(w->alone, i), want));
        cr_assert_eq(memcmp(got, want, bytes), 0, "buffer %d", i);
    }
}

/* Chunks of 10 over 3 are 4, 4, 2, and of 4 they are 2, 2. */
Test(api_replicas, each_normalises_its_chunk_and_the_first_ones_statistics_stay, .timeout = 60) {
    static const int sizes[] = {10, 4, 10};
    for (int kind = 0; kind < API_KINDS; kind++) {
        struct world w;
        float y[MOST * CLASSES], dx[MOST * C], want_y[MOST * CLASSES], want_dx[MOST * C];
        open_world(&w, api_kinds[kind], 1);
        for (int s = 0; s < 3; s++) {
            int n = sizes[s], chunk = (n + DEVICES - 1) / DEVICES;
            step(&w, n, DUET_TRAIN, y, dx);
            /* from the last chunk to the first; the others' statistics are put back */
            float kept[2][C];
            int64_t batches;
            for (int i = 0; i < 2; i++)
                MUST(duet_tensor_read(duet_params_buffer(w.alone, i), kept[i]));
            MUST(duet_tensor_read(duet_params_buffer(w.alone, BATCHES), &batches));
            for (int first = (n - 1) / chunk * chunk; first >= 0; first -= chunk) {
                int here = n - first < chunk ? n - first : chunk;
                for (int i = 0; i < 2; i++)
                    MUST(duet_tensor_write(duet_params_buffer(w.alone, i), kept[i]));
                MUST(duet_tensor_write(duet_params_buffer(w.alone, BATCHES), &batches));
                step_alone(&w, first, here, DUET_TRAIN, want_y + first * CLASSES,
                           want_dx + first * C);
            }
            cr_assert_eq(memcmp(y, want_y, (size_t)(n * CLASSES) * sizeof *y), 0, "outputs");
            cr_assert_eq(memcmp(dx, want_dx, (size_t)(n * C) * sizeof *dx), 0, "dx");
            expect_same_buffers(&w);
            step(&w, n, DUET_EVALUATE, y, NULL); /* all replicas have the statistics of the first */
            step_alone(&w, 0, n, DUET_EVALUATE, want_y, NULL);
            cr_assert_eq(memcmp(y, want_y, (size_t)(n * CLASSES) * sizeof *y), 0, "evaluation");
            expect_same_buffers(&w);
        }
        close_world(&w);
    }
}

static void read_grads(struct world *w, float grads[PARAMS][LARGEST]) {
    for (int i = 0; i < PARAMS; i++)
        MUST(duet_tensor_read(duet_params_grad(w->params, i), grads[i]));
}

/* A training step whose passes the caller's tape counts. */
static void step_on_tape(struct world *w, int n) {
    duet_tensor *x = rows(w, 0, n), *dy = start(w, 0, n);
    MUST(duet_tape_begin(w->tape, w->params, n, DUET_TRAIN));
    MUST(duet_backward(w->tape, duet_data_parallel_call(w->tape, w->dp, x), dy));
    duet_tensor_free(x);
    duet_tensor_free(dy);
}

Test(api_replicas, gradients_are_added_up, .timeout = 60) {
    enum { PASSES = 3 };
    static const int sizes[PASSES] = {10, 4, 8}; /* 3, 2 and 3 replicas */
    for (int kind = 0; kind < API_KINDS; kind++) {
        struct world w;
        static float each[PASSES][PARAMS][LARGEST], got[PARAMS][LARGEST], sum[PARAMS][LARGEST];
        open_world(&w, api_kinds[kind], 0);
        for (int p = 0; p < PASSES; p++) {
            step(&w, sizes[p], DUET_TRAIN, NULL, NULL);
            read_grads(&w, each[p]);
        }
        for (int update = 0; update < 3; update++) {
            if (update == 1) MUST(duet_tape_accumulate(w.tape, PASSES));
            for (int p = 0; p < (update ? PASSES : 1); p++) {
                step_on_tape(&w, sizes[p]);
                step(&w, 3, DUET_EVALUATE, NULL, NULL); /* has no part in it */
                read_grads(&w, got);
                for (int i = 0; i < PARAMS; i++)
                    for (int k = 0; k < LARGEST; k++)
                        sum[i][k] = p ? sum[i][k] + each[p][i][k] : each[p][i][k];
                cr_assert_eq(memcmp(got, sum, sizeof got), 0, "update %d, pass %d", update, p);
            }
        }
        step(&w, sizes[0], DUET_TRAIN, NULL, NULL);
        read_grads(&w, got);
        cr_assert_eq(memcmp(got, each[0], sizeof got), 0, "overwritten");
        close_world(&w);
    }
}

/* ---- passes of one update that do not all use the model ---- */

enum { A, OTHER, TWO, SQUARE = 2, SAMPLES = 4 };

struct mixed {
    duet_device *devices[DEVICES];
    duet_params *params[2]; /* [0] of the model, [1] equal and used directly */
    duet_tape *tape;
    duet_data_parallel *dp;
};

static duet_var *apply_a(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    return duet_linear(t, x, A, DUET_NO_BIAS);
}

/* Small integers, so that all sums are exact. */
static void open_mixed(struct mixed *w, const char *kind) {
    static const float a[] = {1, 2, 3, 4}, b[] = {-1, 0, 2, 1};
    const struct duet_param all[TWO] = {{"a", 2, {SQUARE, SQUARE}, a},
                                        {"b", 2, {SQUARE, SQUARE}, b}};
    MUST(duet_devices_open(w->devices, DEVICES, kind, api_memory(kind)));
    for (int i = 0; i < 2; i++)
        MUST(duet_params_create(&w->params[i], w->devices[0], all, TWO));
    MUST(duet_tape_create(&w->tape, w->devices[0]));
    MUST(duet_data_parallel_create(&w->dp, w->devices, DEVICES, w->params[0], apply_a, NULL, NULL));
}

static void close_mixed(struct mixed *w) {
    duet_data_parallel_free(w->dp);
    duet_tape_free(w->tape);
    for (int i = 0; i < 2; i++)
        duet_params_free(w->params[i]);
    duet_devices_close(w->devices, DEVICES);
}

/* One pass: 'm' the model, which uses a; 'a', 'b' that parameter itself; '-' none of them. */
static void mixed_pass(struct mixed *w, duet_params *owner, int number, char how, int direct) {
    float x[SAMPLES * SQUARE], zeros[SAMPLES * SQUARE] = {0};
    const int dims[] = {SAMPLES, SQUARE};
    duet_tensor *in, *goal;
    for (int i = 0; i < SAMPLES * SQUARE; i++)
        x[i] = (float)((i + 1) * (number + 1));
    MUST(duet_tensor_create(&in, w->devices[0], DUET_F32, 2, dims, x));
    MUST(duet_tensor_create(&goal, w->devices[0], DUET_F32, 2, dims, zeros));
    MUST(duet_tape_begin(w->tape, owner, SAMPLES, DUET_TRAIN));
    duet_var *y = duet_leaf(w->tape, in);
    if (how == 'm' && !direct)
        y = duet_data_parallel_call(w->tape, w->dp, in);
    else if (how != '-')
        y = duet_linear(w->tape, y, how == 'b' ? OTHER : A, DUET_NO_BIAS);
    MUST(duet_backward(w->tape, duet_mse_loss(w->tape, y, goal, DUET_SUM), NULL));
    duet_tensor_free(in), duet_tensor_free(goal);
}

static void mixed_update(struct mixed *w, duet_params *owner, const char *passes, int direct) {
    MUST(duet_tape_accumulate(w->tape, (int)strlen(passes)));
    for (int p = 0; passes[p]; p++)
        mixed_pass(w, owner, p, passes[p], direct);
}

/* The next tape may have this one's address. */
static void leave_an_update(struct mixed *w, duet_params *owner) {
    MUST(duet_tape_accumulate(w->tape, 2));
    mixed_pass(w, owner, 0, 'm', 0);
    duet_tape_free(w->tape);
    MUST(duet_tape_create(&w->tape, w->devices[0]));
}

static void expect_equal_grads(struct mixed *w, const char *passes) {
    for (int i = 0; i < TWO; i++) {
        float got[SQUARE * SQUARE], want[SQUARE * SQUARE];
        MUST(duet_tensor_read(duet_params_grad(w->params[0], i), got));
        MUST(duet_tensor_read(duet_params_grad(w->params[1], i), want));
        for (int k = 0; k < SQUARE * SQUARE; k++)
            cr_expect_eq(got[k], want[k], "%s: parameter %d: %g for %g", passes, i, got[k],
                         want[k]);
        cr_expect_eq(duet_params_has_grad(w->params[0], i), duet_params_has_grad(w->params[1], i),
                     "%s: parameter %d", passes, i);
    }
}

Test(api_replicas, passes_need_not_all_use_the_model, .timeout = 60) {
    static const char *const updates[] = {"m",  "-m", "mm", "-m", "m-",  "m-m", "-m-",
                                          "am", "ma", "bm", "mb", "mam", "bmb", "--"};
    for (int kind = 0; kind < API_KINDS; kind++) {
        struct mixed w;
        open_mixed(&w, api_kinds[kind]);
        for (int own = 1; own >= 0; own--)
            for (size_t u = 0; u < sizeof updates / sizeof *updates; u++) {
                if (!own && strpbrk(updates[u], "ab")) continue; /* the tape cannot find them */
                if (!own && !strchr(updates[u], 'm')) continue;  /* nobody changes them */
                leave_an_update(&w, own ? w.params[0] : NULL);
                mixed_update(&w, own ? w.params[0] : NULL, updates[u], 0);
                mixed_update(&w, w.params[1], updates[u], 1);
                expect_equal_grads(&w, updates[u]);
            }
        close_mixed(&w);
    }
}

/* Each would change the pass that forward runs in, or those after it. */
static duet_var *meddles(duet_tape *t, duet_var *x, void *context) {
    switch (*(const int *)context) {
    case 0: duet_tape_begin(t, NULL, 2, DUET_TRAIN); break;
    case 1: duet_tape_accumulate(t, 3); break;
    case 2: duet_backward(t, duet_mean(t, x, NULL, 0, 0), NULL); break;
    default: break;
    }
    return x;
}

Test(api_replicas, forward_must_not_meddle_with_its_tape, .timeout = 30) {
    static const char *const calls[] = {"duet_tape_begin", "duet_tape_accumulate", "duet_backward"};
    struct world w;
    duet_data_parallel *dp;
    duet_tensor *output, *x;
    int what;
    open_world(&w, "cpu", 0);
    x = rows(&w, 0, 1);
    MUST(duet_data_parallel_create(&dp, w.devices, 1, w.params, meddles, &what, NULL));
    for (what = 0; what < 3; what++)
        MUST_FAIL(duet_data_parallel_forward(dp, &x, 1, &output, 1, DUET_TRAIN), DUET_USAGE,
                  calls[what]);
    MUST(duet_data_parallel_forward(dp, &x, 1, &output, 1, DUET_TRAIN)); /* nothing was damaged */
    duet_tensor_free(output), duet_tensor_free(x);
    duet_data_parallel_free(dp);
    close_world(&w);
}

Test(api_replicas, misuse_is_one_line, .timeout = 30) {
    struct world w;
    duet_tensor *grad, *x;
    duet_params *late;
    duet_data_parallel *dp;
    const struct duet_param one = {"w", 2, {2, C}, NULL};
    open_world(&w, "cpu", 0);
    step(&w, 4, DUET_TRAIN, NULL, NULL);
    MUST_FAIL(duet_data_parallel_input_grad(w.dp, 0, &grad), DUET_USAGE, "set input_grad");
    close_world(&w);
    open_world(&w, "cpu", 1);
    MUST_FAIL(duet_data_parallel_input_grad(w.dp, 0, &grad), DUET_USAGE, "without a backward");
    step(&w, 4, DUET_TRAIN, NULL, NULL);
    step(&w, 4, DUET_EVALUATE, NULL, NULL);
    MUST_FAIL(duet_data_parallel_input_grad(w.dp, 0, &grad), DUET_USAGE, "without a backward");
    MUST(duet_params_create(&late, w.devices[0], &one, 1));
    MUST(duet_data_parallel_create(&dp, w.devices, DEVICES, late, forward, NULL, NULL));
    MUST(duet_params_register_buffers(late, buffers, BUFFERS));
    x = rows(&w, 0, 4);
    MUST_FAIL(duet_data_parallel_forward(dp, &x, 1, &grad, 1, DUET_TRAIN), DUET_USAGE, "register");
    duet_tensor_free(x);
    duet_data_parallel_free(dp);
    duet_params_free(late);
    close_world(&w);
}
