/* The batch normalisation ops: against PyTorch's numbers, against each other (the moments of
 * parts, merged, are the moments of the whole); and the fast moments where digits might cancel.
 * (The fast path against the reference: test_kernels.c.) */
#include "tests/core/device/kernels_common.h"
#include "tests/golden/golden.h"

/* Sums in double, results rounded to float; the golden numbers are float64. The largest are
 * about 10. */
static const double GOLDEN_TOLERANCE = 2e-6;
/* Two orders of a sum of some thousand doubles. */
static const double SUM_TOLERANCE = 1e-12;

enum { N = 5, C = 3, H = 4, W = 2, COUNT = N * C * H * W };

static void run(enum op op, struct op_args args) {
    host_reference_kernels[op](&args);
}

static void fill(struct tensor *t, int a, float scale, float shift) {
    for (size_t i = 0; i < tensor_count(t); i++)
        tensor_f32(t)[i] = scale * golden_value((int)i, a) + shift;
}

static void expect_golden(const struct tensor *got, size_t count, const char *name) {
    golden_near("tests/golden/batch_norm.txt", name, tensor_f32(got), count, GOLDEN_TOLERANCE);
}

/* A layer as make_batch_norm.py has it. */
struct layer {
    struct heap heap;
    struct tensor x, y, dy, dx, w, b, dw, db, moments, factors, sums, back, running, batches;
    struct norm_args norm;
};

static void layer_init(struct layer *l, double momentum) {
    *l = (struct layer){.norm = {1e-5, momentum}};
    struct heap *h = &l->heap;
    l->x = heap_tensor(h, DTYPE_F32, 4, N, C, H, W), l->y = tensor_like(h, &l->x);
    l->dy = tensor_like(h, &l->x), l->dx = tensor_like(h, &l->x);
    l->w = heap_tensor(h, DTYPE_F32, 1, C, 1, 1, 1), l->b = tensor_like(h, &l->w);
    l->dw = tensor_like(h, &l->w), l->db = tensor_like(h, &l->w);
    l->moments = heap_tensor(h, DTYPE_F64, 2, 3, C, 1, 1);
    l->sums = heap_tensor(h, DTYPE_F64, 2, 2, C, 1, 1);
    l->factors = heap_tensor(h, DTYPE_F32, 2, 2, C, 1, 1);
    l->back = heap_tensor(h, DTYPE_F32, 2, 4, C, 1, 1);
    l->running = heap_tensor(h, DTYPE_F32, 2, 2, C, 1, 1);
    l->batches = heap_tensor(h, DTYPE_I64, 1, 1, 1, 1, 1);
    memcpy(l->w.data, (float[]){.5f, -1.25f, 2}, sizeof(float) * C);
    memcpy(l->b.data, (float[]){.25f, 0, -3}, sizeof(float) * C);
    memcpy(l->running.data, (float[]){0, 0, 0, 1, 1, 1}, sizeof(float) * 2 * C);
    *(int64_t *)l->batches.data = 0;
}

static void normalise(struct layer *l) {
    run(OP_BATCH_NORM_FACTORS,
        (struct op_args){.in = {l->moments, l->w, l->b}, .out = {l->factors}, .p.norm = l->norm});
    run(OP_BATCH_NORM_FORWARD, (struct op_args){.in = {l->x, l->factors}, .out = {l->y}});
}

static void train(struct layer *l) {
    run(OP_BATCH_NORM_MOMENTS, (struct op_args){.in = {l->x}, .out = {l->moments}});
    normalise(l);
    run(OP_BATCH_NORM_TRACK,
        (struct op_args){.in = {l->moments}, .out = {l->running, l->batches}, .p.norm = l->norm});
}

static void eval(struct layer *l) {
    run(OP_BATCH_NORM_OF_RUNNING, (struct op_args){.in = {l->running}, .out = {l->moments}});
    normalise(l);
}

static void backward(struct layer *l) {
    run(OP_BATCH_NORM_SUMS, (struct op_args){.in = {l->x, l->dy, l->moments}, .out = {l->sums}});
    run(OP_BATCH_NORM_BACKWARD_WEIGHT,
        (struct op_args){.in = {l->sums, l->moments}, .out = {l->dw, l->db}, .p.norm = l->norm});
    run(OP_BATCH_NORM_BACKWARD_FACTORS,
        (struct op_args){.in = {l->sums, l->moments, l->w}, .out = {l->back}, .p.norm = l->norm});
    run(OP_BATCH_NORM_BACKWARD_DATA,
        (struct op_args){.in = {l->x, l->dy, l->back}, .out = {l->dx}});
}

Test(kernels_norm, pytorchs_numbers, .timeout = 60) {
    struct layer l;
    layer_init(&l, 0.1);
    fill(&l.x, 7919, 1, 0);
    train(&l);
    expect_golden(&l.y, COUNT, "momentum_01_first_y");
    fill(&l.x, 104729, 3, .5f);
    fill(&l.dy, 3571, 1, 0);
    train(&l);
    backward(&l);
    expect_golden(&l.dx, COUNT, "momentum_01_dx");
    expect_golden(&l.dw, C, "momentum_01_dw");
    expect_golden(&l.db, C, "momentum_01_db");
    expect_golden(&l.running, C, "momentum_01_running_mean");
    struct tensor variance = l.running;
    variance.data = tensor_f32(&l.running) + C;
    expect_golden(&variance, C, "momentum_01_running_var");
    cr_assert_eq(*(int64_t *)l.batches.data, 2);
    fill(&l.x, 7919, 1, 0);
    eval(&l);
    expect_golden(&l.y, COUNT, "momentum_01_eval_y");
    heap_free(&l.heap);
}

Test(kernels_norm, pytorchs_cumulative_mean, .timeout = 60) {
    struct layer l;
    layer_init(&l, -1);
    fill(&l.x, 7919, 1, 0);
    train(&l);
    fill(&l.x, 104729, 3, .5f);
    train(&l);
    expect_golden(&l.running, C, "cumulative_running_mean");
    struct tensor variance = l.running;
    variance.data = tensor_f32(&l.running) + C;
    expect_golden(&variance, C, "cumulative_running_var");
    fill(&l.x, 7919, 1, 0);
    eval(&l);
    expect_golden(&l.y, COUNT, "cumulative_eval_y");
    heap_free(&l.heap);
}

static void expect_moments(const struct tensor *got, const struct tensor *want, const char *what) {
    for (size_t i = 0; i < tensor_count(want); i++) {
        double g = ((double *)got->data)[i], w = ((double *)want->data)[i];
        cr_assert(fabs(g - w) <= SUM_TOLERANCE * (1 + fabs(w)),
                  "%s: number %zu is %.17g, not %.17g", what, i, g, w);
    }
}

/* The shards that SyncBatchNorm is tried with elsewhere: even, uneven, and one that is empty. The
 * data has a large mean, where sums of squares would lose the variance. */
Test(kernels_norm, merged_moments_of_parts_are_those_of_the_whole, .timeout = 60) {
    static const int splits[][4] = {{4, 4}, {5, 3}, {5, 2, 1}, {8, 0}, {0, 0, 8}, {1, 1, 1, 5}};
    static const int shards[] = {2, 2, 3, 2, 3, 4};
    for (int k = 0; k < 6; k++) {
        struct heap heap = {0};
        struct tensor x = tensor_random(&heap, 3, 4, 8, 6, 5, 4);
        for (size_t i = 0; i < tensor_count(&x); i++)
            tensor_f32(&x)[i] += 300;
        struct tensor whole = heap_tensor(&heap, DTYPE_F64, 2, 3, 6, 1, 1),
                      merged = tensor_like(&heap, &whole),
                      parts = heap_tensor(&heap, DTYPE_F64, 3, shards[k], 3, 6, 1);
        run(OP_BATCH_NORM_MOMENTS, (struct op_args){.in = {x}, .out = {whole}});
        int from = 0;
        for (int s = 0; s < shards[k]; from += splits[k][s], s++) {
            struct tensor part = x, moments = whole;
            part.dims[0] = splits[k][s];
            part.data = tensor_f32(&x) + (size_t)from * tensor_sample_count(&x);
            moments.data = (double *)parts.data + (size_t)s * 3 * 6;
            run(OP_BATCH_NORM_MOMENTS, (struct op_args){.in = {part}, .out = {moments}});
        }
        run(OP_BATCH_NORM_MERGE, (struct op_args){.in = {parts}, .out = {merged}});
        expect_moments(&merged, &whole, "merged");
        heap_free(&heap);
    }
}

/* Runs op by the fast path on every instruction set; returns the output of the first, in PLAIN. */
static struct tensor fast(struct heap *heap, enum op op, struct op_args args, int in_place) {
    struct tensor first = {.data = NULL};
    for (int i = 0; i < ISAS; i++) {
        host_kernel *kernel = host_fast_kernel(op, all_isas[i]);
        if (!kernel) continue;
        struct op_args a = args;
        a.out[0] = tensor_like(heap, &args.out[0]);
        if (in_place >= 0) a.in[in_place] = a.out[0] = tensor_copy(heap, &args.in[in_place]);
        kernel(&a);
        if (!first.data) first = a.out[0];
        cr_assert(same_bits(&first, &a.out[0]), "%s: %s differs from %s", op_name(op), all_isas[i],
                  all_isas[0]);
    }
    cr_assert_not_null(first.data, "%s has no fast kernel", op_name(op));
    return first;
}

/* Moments of 40 samples of one channel, whose values are `mean` and up to `spread` away. */
static struct tensor moments_around(struct heap *h, float mean, float spread, struct tensor *x) {
    *x = tensor_random(h, 5, 4, 40, 1, 3, 5);
    for (size_t i = 0; i < tensor_count(x); i++)
        tensor_f32(x)[i] = mean + 2 * spread * tensor_f32(x)[i];
    struct tensor xn = n16_of(h, x, 7e30f), moments = heap_tensor(h, DTYPE_F64, 2, 3, 1, 1, 1);
    return fast(h, OP_BATCH_NORM_MOMENTS, (struct op_args){.in = {xn}, .out = {moments}}, -1);
}

/* The fast moments take one pass over x; no digits of the variance may cancel where the mean is
 * large beside it, and a channel whose values are all equal has none. */
Test(kernels_norm, fast_moments_far_from_zero, .timeout = 60) {
    static const float means[] = {0, 300, -1e5f, 3e7f};
    for (int i = 0; i < 4; i++) {
        struct heap heap = {0};
        struct tensor x, want = heap_tensor(&heap, DTYPE_F64, 2, 3, 1, 1, 1),
                         got = moments_around(&heap, means[i], 8, &x);
        run(OP_BATCH_NORM_MOMENTS, (struct op_args){.in = {x}, .out = {want}});
        expect_moments(&got, &want, "far from zero");
        got = moments_around(&heap, means[i], 0, &x);
        double *m = got.data;
        cr_assert_eq(m[0], (double)means[i], "the mean of equal values is %.17g", m[0]);
        cr_assert_eq(m[1], 0, "equal values differ by %.17g", m[1]);
        heap_free(&heap);
    }
}

static double fast_mean_with(struct heap *h, size_t at, float value) {
    struct tensor x = tensor_random(h, 5, 4, 40, 1, 3, 5);
    tensor_f32(&x)[at] = value;
    struct tensor xn = n16_of(h, &x, 0), moments = heap_tensor(h, DTYPE_F64, 2, 3, 1, 1, 1);
    moments = fast(h, OP_BATCH_NORM_MOMENTS, (struct op_args){.in = {xn}, .out = {moments}}, -1);
    cr_assert(isnan(((double *)moments.data)[1]), "the variance is a number");
    return ((double *)moments.data)[0];
}

Test(kernels_norm, fast_moments_of_what_is_not_finite, .timeout = 60) {
    struct heap heap = {0};
    for (size_t at = 0; at < 600; at += 599) { /* the first value is the fast kernel's centre */
        cr_assert(isnan(fast_mean_with(&heap, at, NAN)));
        cr_assert(isinf(fast_mean_with(&heap, at, INFINITY)));
    }
    heap_free(&heap);
}
