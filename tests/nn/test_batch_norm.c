/* BatchNorm and SyncBatchNorm on the tape: gradients against central differences of a formula in
 * double, running statistics, eval, PyTorch's error, and equal bits however many devices share the
 * virtual devices. */
#include "tests/harness/harness.h"

#include "base/error.h"
#include "base/fold.h"
#include "base/random.h"
#include "nn/tape/tape.h"

#define MUST(call) cr_assert_eq(call, OK, "%s", error_message())

/* Sums in double, one rounding to float and a product or two. A wrong term gives 1e-2. */
static const double TOLERANCE = 2e-6;
static const double STEP = 1e-5, EPSILON = 1e-5;

enum { CHANNELS = 3, MOST_SAMPLES = 40, MOST_PIXELS = 12, MOST_DEVICES = 4 };

/* A batch of several virtual devices, one after another, and one layer. */
struct job {
    int devices, n[MOST_DEVICES], first[MOST_DEVICES], count;
    int height, width; /* 0: (N, C) */
    int synchronised;
    double momentum;
    float x[MOST_SAMPLES * CHANNELS * MOST_PIXELS], root[MOST_SAMPLES * CHANNELS * MOST_PIXELS];
    float w[CHANNELS], b[CHANNELS];
};

static int pixels(const struct job *j) {
    return j->height ? j->height * j->width : 1;
}

static int sample_size(const struct job *j) {
    return CHANNELS * pixels(j);
}

static void make_job(struct job *j, int devices, const int *n, int height, int width) {
    struct rng rng;
    rng_seed(&rng, 5);
    *j = (struct job){.devices = devices, .height = height, .width = width, .momentum = 0.1};
    for (int v = 0; v < devices; v++) {
        j->n[v] = n[v], j->first[v] = j->count;
        j->count += n[v];
    }
    cr_assert_leq(j->count, (int)MOST_SAMPLES);
    rng_uniform(&rng, j->x, (size_t)(j->count * sample_size(j)), -1, 3);
    rng_uniform(&rng, j->root, (size_t)(j->count * sample_size(j)), -1, 1);
    rng_uniform(&rng, j->w, CHANNELS, -2, 2);
    rng_uniform(&rng, j->b, CHANNELS, -1, 1);
}

/* ---- the formula in double ---- */

struct statistics {
    double mean, unbiased, invstd;
};

/* Of channel c over the samples of virtual device v; synchronised: over all. */
static struct statistics statistics_of(const struct job *j, const double *x, int v, int c) {
    int from = j->synchronised ? 0 : j->first[v], n = j->synchronised ? j->count : j->n[v];
    double sum = 0, squares = 0, count = (double)n * pixels(j);
    for (int i = from; i < from + n; i++)
        for (int p = 0; p < pixels(j); p++)
            sum += x[i * sample_size(j) + c * pixels(j) + p];
    for (int i = from; i < from + n; i++)
        for (int p = 0; p < pixels(j); p++)
            squares += pow(x[i * sample_size(j) + c * pixels(j) + p] - sum / count, 2);
    return (struct statistics){sum / count, squares / (count - 1),
                               1 / sqrt(squares / count + EPSILON)};
}

/* The sum of y * root over the batch. */
static double formula(const struct job *j, const double *x, const double *w, const double *b) {
    double sum = 0;
    for (int v = 0; v < j->devices; v++)
        for (int c = 0; c < CHANNELS; c++) {
            struct statistics s = statistics_of(j, x, v, c);
            for (int i = j->first[v]; i < j->first[v] + j->n[v]; i++)
                for (int p = 0; p < pixels(j); p++) {
                    int at = i * sample_size(j) + c * pixels(j) + p;
                    sum += ((x[at] - s.mean) * s.invstd * w[c] + b[c]) * j->root[at];
                }
        }
    return sum;
}

/* ---- the layer on a device ---- */

struct outcome {
    float y[MOST_SAMPLES * CHANNELS * MOST_PIXELS], dx[MOST_SAMPLES * CHANNELS * MOST_PIXELS];
    float dw[CHANNELS], db[CHANNELS];
    float running[2 * CHANNELS];
    int64_t batches;
};

static const struct param_spec specs[2] = {{"1.weight", 1, {CHANNELS}, 0},
                                           {"1.bias", 1, {CHANNELS}, 0}};

static void *take(struct device *device, size_t bytes) {
    void *memory;
    MUST(device_alloc(device, &memory, bytes, MEM_WORKSPACE));
    return memory;
}

/* Device r of `world` trains virtual devices r, r + world, ...; rows of y and dx go where the
 * samples stand in the job. training 0: one pass in eval. */
static void run_device(const struct job *j, enum device_kind kind, int reference_math, int r,
                       int world, int training, struct outcome *o) {
    struct device_config config = {.kind = kind,
                                   .index = r,
                                   .memory_bytes = 8 << 20,
                                   .check_operands = 1,
                                   .reference_math = reference_math};
    struct device *device;
    duet_tape *tape;
    struct param_set params;
    struct segments segments = {0};
    MUST(device_open(&device, &config));
    MUST(tape_init(&tape, device));
    MUST(param_set_init(&params, device, specs, 2));
    MUST(param_write_value(&params, 0, j->w));
    MUST(param_write_value(&params, 1, j->b));
    struct stream *stream = device_compute(device);
    size_t sample = (size_t)sample_size(j) * sizeof(float);
    char *x = take(device, MOST_SAMPLES * sample), *root = take(device, MOST_SAMPLES * sample);
    for (int v = r; v < j->devices; v += world) {
        size_t from = (size_t)(j->first[v] * sample_size(j)), bytes = (size_t)j->n[v] * sample;
        segments.seg[segments.count++] = (struct segment){.v = v, .n = j->n[v]};
        if (!bytes) continue;
        MUST(copy_to_device(stream, x + (size_t)segments.n * sample, j->x + from, bytes));
        MUST(copy_to_device(stream, root + (size_t)segments.n * sample, j->root + from, bytes));
        segments.n += j->n[v];
    }
    struct norm_config norm = {
        .epsilon = EPSILON,
        .momentum = j->momentum,
        .synchronised = j->synchronised,
        .running = tensor_plain(take(device, 2 * CHANNELS * 4), DTYPE_F32, 2, (int[]){2, CHANNELS}),
        .batches = tensor_plain(take(device, 8), DTYPE_I64, 1, (int[]){1})};
    MUST(copy_to_device(stream, norm.running.data, o->running, sizeof o->running));
    MUST(copy_to_device(stream, norm.batches.data, &o->batches, sizeof o->batches));
    int dims[4] = {segments.n, CHANNELS, j->height, j->width}, rank = j->height ? 4 : 2;
    struct tensor input = tensor_plain(x, DTYPE_F32, rank, dims), gradient = input;
    gradient.data = root;
    struct tape_step step = {.segments = &segments, .params = &params, .training = training};
    MUST(tape_begin(tape, &step));
    duet_var *leaf = tape_leaf(tape, &input, 1);
    duet_var *y = to_plain(tape, batch_norm(tape, leaf, &params.param[0], &params.param[1], &norm));
    MUST(tape_error(tape));
    if (training) MUST(tape_backward(tape, y, &gradient));
    int row = 0;
    for (int s = 0; s < segments.count; row += segments.seg[s++].n) {
        int v = segments.seg[s].v;
        size_t bytes = (size_t)j->n[v] * sample;
        if (!bytes) continue;
        MUST(copy_to_host(stream, o->y + j->first[v] * sample_size(j),
                          tensor_f32(&y->value) + row * sample_size(j), bytes));
        if (training)
            MUST(copy_to_host(stream, o->dx + j->first[v] * sample_size(j),
                              tensor_f32(&leaf->grad) + row * sample_size(j), bytes));
    }
    MUST(copy_to_host(stream, o->dw, params.param[0].grad.data, sizeof o->dw));
    MUST(copy_to_host(stream, o->db, params.param[1].grad.data, sizeof o->db));
    if (r == 0) {
        MUST(copy_to_host(stream, o->running, norm.running.data, sizeof o->running));
        MUST(copy_to_host(stream, &o->batches, norm.batches.data, sizeof o->batches));
    }
    MUST(stream_sync(stream));
    device_free(device, x);
    device_free(device, root);
    device_free(device, norm.running.data);
    device_free(device, norm.batches.data);
    param_set_free(&params);
    duet_tape_free(tape);
    device_close(device);
}

static struct outcome fresh(void) {
    return (struct outcome){.running = {0, 0, 0, 1, 1, 1}};
}

static void to_double(double *to, const float *from, int count) {
    for (int i = 0; i < count; i++)
        to[i] = from[i];
}

/* Relative L2 of got against the central differences of the formula in each of x[0 .. count). */
static void expect_gradient(const struct job *j, const float *got, double *of, int count, double *x,
                            double *w, double *b, const char *what) {
    double apart = 0, size = 0;
    for (int i = 0; i < count; i++) {
        double keep = of[i], want;
        of[i] = keep + STEP;
        want = formula(j, x, w, b);
        of[i] = keep - STEP;
        want = (want - formula(j, x, w, b)) / (2 * STEP);
        of[i] = keep;
        apart += pow(got[i] - want, 2), size += want * want;
    }
    cr_assert(sqrt(apart / size) < TOLERANCE, "%s is off by %g", what, sqrt(apart / size));
}

static void check_job(const struct job *j, int reference_math) {
    static double x[MOST_SAMPLES * CHANNELS * MOST_PIXELS];
    double w[CHANNELS], b[CHANNELS];
    struct outcome o = fresh();
    run_device(j, DEVICE_HOST, reference_math, 0, 1, 1, &o);
    to_double(x, j->x, j->count * sample_size(j));
    to_double(w, j->w, CHANNELS);
    to_double(b, j->b, CHANNELS);
    expect_gradient(j, o.dx, x, j->count * sample_size(j), x, w, b, "dx");
    expect_gradient(j, o.dw, w, CHANNELS, x, w, b, "dw");
    expect_gradient(j, o.db, b, CHANNELS, x, w, b, "db");
    cr_assert_eq(o.batches, 1);
    double f = j->momentum < 0 ? 1 : j->momentum;
    for (int c = 0; c < CHANNELS; c++) { /* virtual device 0's, or everybody's */
        struct statistics s = statistics_of(j, x, 0, c);
        cr_assert_float_eq(o.running[c], f * s.mean, TOLERANCE * (1 + fabs(s.mean)));
        cr_assert_float_eq(o.running[CHANNELS + c], f * s.unbiased + 1 - f,
                           TOLERANCE * (1 + s.unbiased));
    }
}

Test(batch_norm, gradients_and_running_statistics, .timeout = 120) {
    static const int sizes[][4] = {{9, 5, 17}, {16, 2, 0}, {8, 0, 0}};
    static struct job j;
    for (int i = 0; i < 3; i++)
        for (int kind = 0; kind < 8; kind++) { /* (N,C,H,W) or (N,C), plain or N16, own or shared */
            make_job(&j, 3, sizes[i], kind & 1 ? 0 : 3, 4);
            j.synchronised = kind & 2;
            j.momentum = i == 1 ? -1 : 0.1;
            check_job(&j, kind & 4);
        }
}

/* Eval takes the running statistics, whatever the batch, and leaves them alone. */
Test(batch_norm, eval, .timeout = 60) {
    static struct job j;
    make_job(&j, 2, (int[]){3, 1}, 2, 2);
    struct outcome o = {.running = {.5f, -.25f, 0, 2, .5f, 4}, .batches = 7}, before = o;
    run_device(&j, DEVICE_HOST, 0, 0, 1, 0, &o);
    cr_assert_arr_eq(o.running, before.running, sizeof o.running);
    cr_assert_eq(o.batches, 7);
    for (int i = 0; i < j.count * sample_size(&j); i++) {
        int c = i / pixels(&j) % CHANNELS;
        double want =
            (j.x[i] - before.running[c]) / sqrt(before.running[CHANNELS + c] + EPSILON) * j.w[c] +
            j.b[c];
        cr_assert_float_eq(o.y[i], want, TOLERANCE * (1 + fabs(want)));
    }
}

/* Four virtual devices on 1, 2 and 4 devices, early and late: y, dx, the folded dw and db and the
 * running statistics have the same bits. */
Test(batch_norm, bits_do_not_depend_on_the_number_of_devices, .timeout = 60) {
    static struct job j;
    static struct outcome one, parts[MOST_DEVICES], many;
    make_job(&j, 4, (int[]){9, 17, 4, 10}, 3, 4);
    one = fresh();
    run_device(&j, DEVICE_HOST, 0, 0, 1, 1, &one);
    for (int world = 1; world <= 4; world *= 2) {
        many = fresh();
        for (int r = 0; r < world; r++) {
            run_device(&j, world > 1 ? DEVICE_HOST_LATE : DEVICE_HOST, 0, r, world, 1, &many);
            parts[r] = many;
        }
        for (struct fold f = fold_begin(world); fold_next(&f);)
            for (int c = 0; c < CHANNELS; c++) {
                parts[f.to].dw[c] += parts[f.from].dw[c];
                parts[f.to].db[c] += parts[f.from].db[c];
            }
        cr_assert_arr_eq(one.y, many.y, sizeof one.y, "y on %d devices", world);
        cr_assert_arr_eq(one.dx, many.dx, sizeof one.dx, "dx on %d devices", world);
        cr_assert_arr_eq(one.dw, parts[0].dw, sizeof one.dw, "dw on %d devices", world);
        cr_assert_arr_eq(one.db, parts[0].db, sizeof one.db, "db on %d devices", world);
        cr_assert_arr_eq(one.running, many.running, sizeof one.running, "running, %d devices",
                         world);
    }
}

/* The error that PyTorch gives, for one segment with one value; and what cannot be told. */
Test(batch_norm, what_is_refused, .timeout = 60) {
    struct device_config config = {.kind = DEVICE_HOST, .memory_bytes = 8 << 20};
    struct device *device;
    duet_tape *tape;
    struct param_set params;
    float *x;
    MUST(device_open(&device, &config));
    MUST(tape_init(&tape, device));
    MUST(param_set_init(&params, device, specs, 2));
    x = take(device, 4096);
    /* the segment with one value comes before a large one */
    struct segments segments = {
        .count = 2, .n = 101, .seg = {{.v = 0, .n = 1}, {.v = 1, .n = 100}}};
    struct norm_config norm = {.epsilon = EPSILON, .momentum = 0.1};
    struct tape_step step = {.segments = &segments, .params = &params, .training = 1};
    struct tensor two = tensor_plain(x, DTYPE_F32, 2, (int[]){101, CHANNELS}),
                  four = tensor_plain(x, DTYPE_F32, 4, (int[]){101, CHANNELS, 1, 1}),
                  other = tensor_plain(x, DTYPE_F32, 2, (int[]){101, CHANNELS + 1});
    const struct {
        const struct tensor *x;
        int training, synchronised;
        const char *says;
    } cases[] = {{&two, 1, 0, "training, got input size torch.Size([1, 3])"},
                 {&four, 1, 0, "training, got input size torch.Size([1, 3, 1, 1])"},
                 {&other, 1, 0, "3 channels do not suit an input of (101, 4)"},
                 {&two, 0, 0, "eval needs running statistics"},
                 {&two, 1, 1, NULL}};
    for (int i = 0; i < 5; i++) {
        step.training = cases[i].training, norm.synchronised = cases[i].synchronised;
        MUST(tape_begin(tape, &step));
        duet_var *leaf = tape_leaf(tape, cases[i].x, 1);
        duet_var *y = batch_norm(tape, leaf, &params.param[0], &params.param[1], &norm);
        cr_assert_eq(!y, !!cases[i].says, "case %d", i);
        if (!cases[i].says) continue;
        cr_assert_neq(tape_error(tape), OK);
        cr_assert_not_null(strstr(error_message(), cases[i].says), "%s", error_message());
    }
    duet_tape_free(tape);
    device_free(device, x);
    param_set_free(&params);
    device_close(device);
}
