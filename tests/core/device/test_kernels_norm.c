/* The batch normalisation ops: the formula of running statistics, merging the moments of parts, and
 * the fast moments where digits might cancel. (tests/syncbn/test_syncbn.c has PyTorch's numbers;
 * test_kernels.c compares the fast path with the reference.) */
#include "tests/core/device/kernels_common.h"

/* Two orders of a sum of some thousand doubles. */
static const double SUM_TOLERANCE = 1e-12;

static void run(enum op op, struct op_args args) {
    host_reference_kernels[op](&args);
}

/* Momentum weighs the newest, with the variance of a sample; below 0 it is the mean of all. */
Test(kernels_norm, running_statistics, .timeout = 60) {
    double moments[3] = {0, 0, 5}; /* mean, sum of squares around it, count */
    for (int cumulative = 0; cumulative < 2; cumulative++) {
        float running[2] = {0, 1};
        double want[2] = {0, 1};
        int64_t batches = 0;
        struct op_args a = {.in = {tensor_plain(moments, DTYPE_F64, 2, (int[]){3, 1})},
                            .out = {tensor_plain(running, DTYPE_F32, 2, (int[]){2, 1}),
                                    tensor_plain(&batches, DTYPE_I64, 1, (int[]){1})},
                            .p.norm = {1e-5, cumulative ? -1 : 0.1}};
        for (int batch = 1; batch <= 3; batch++) {
            double factor = cumulative ? 1.0 / batch : 0.1;
            moments[0] = batch * 3, moments[1] = 8 * batch;
            want[0] += factor * (batch * 3 - want[0]), want[1] += factor * (2 * batch - want[1]);
            run(OP_BATCH_NORM_TRACK, a);
            for (int i = 0; i < 2; i++)
                cr_assert_float_eq(running[i], want[i], 1e-6, "batch %d: %g", batch, running[i]);
            cr_assert_eq(batches, batch);
        }
    }
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
