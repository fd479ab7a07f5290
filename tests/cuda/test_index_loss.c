/* The CUDA kernels of softmax and the losses, run on the host: 32 lanes to a row, compared with the
 * reference, which goes through a row in order. They differ only in the order of sums of
 * doubles. */
#include "tests/cuda/index.h"

/* A sum of at most 1000 doubles in another order is off by at most 1000 * 2^-53 of itself, and a
 * log or a product after it adds a few times 2^-53: this is far above both. */
static const double DOUBLE_ORDER = 1e-12;
/* The same difference may turn a rounding to float: one unit in the last place. */
static const double FLOAT_ROUNDING = 0x1p-23;

static int near(double got, double want, double bound) {
    return got == want || (isnan(got) && isnan(want)) ||
           fabs(got - want) <= bound * (1 + fabs(want));
}

static void expect_near(const char *what, const struct tensor *got, const struct tensor *want) {
    for (size_t i = 0; i < tensor_count(want); i++) {
        int wide = want->dtype == DTYPE_F64;
        double g = wide ? ((double *)got->data)[i] : (double)tensor_f32(got)[i];
        double w = wide ? ((double *)want->data)[i] : (double)tensor_f32(want)[i];
        cr_assert(near(g, w, wide ? DOUBLE_ORDER : FLOAT_ROUNDING),
                  "%s: element %zu is %.17g, not %.17g", what, i, g, w);
    }
}

/* Scores with ties, infinities and NaN in every place that matters to "the first of the
 * largest". */
static struct tensor scores_of(struct heap *heap, int rows, int classes) {
    struct tensor x = tensor_random(heap, 11, 2, rows, classes, 1, 1);
    for (int i = 0; i < rows; i++) {
        float *row = tensor_f32(&x) + (size_t)i * (size_t)classes;
        for (int j = 0; j < classes; j++)
            row[j] = roundf(row[j] * 8) / (i % 2 ? 2 : .02f);
        if (i % 11 == 3) row[0] = NAN;
        if (i % 11 == 5) row[classes - 1] = NAN;
        if (i % 11 == 7) row[i % classes] = INFINITY;
        if (i % 11 == 9) row[i % classes] = -INFINITY;
    }
    return x;
}

static struct tensor labels_of(struct heap *heap, int rows, int classes) {
    struct tensor labels = tensor_new(heap, DTYPE_I32, 1, rows, 1, 1, 1);
    for (int i = 0; i < rows; i++) {
        int label = i * 7 % classes;
        ((int32_t *)labels.data)[i] = i % 13 == 12 ? -1 : i % 13 == 6 ? classes : label;
    }
    return labels;
}

static const int shapes[][2] = {{0, 3},  {1, 1},  {30, 2},  {41, 10},
                                {5, 31}, {7, 32}, {29, 33}, {3, 1000}};
enum { SHAPES = 8 };

static void check(enum op op, const struct op_args *a, const char *what) {
    for (uint32_t blocks = 1; blocks < 40; blocks = blocks * 3 + 1) {
        struct heap heap = {0};
        struct op_args got = *a, want = *a;
        for (int i = 0; i < 2; i++)
            if (a->out[i].data)
                got.out[i] = tensor_like(&heap, &a->out[i]),
                want.out[i] = tensor_like(&heap, &a->out[i]);
        run_rows(op, &got, blocks);
        host_reference_kernels[op](&want);
        expect_near(what, &got.out[0], &want.out[0]);
        if (a->out[1].data) cr_assert(same_bits(&got.out[1], &want.out[1]), "%s: hits", what);
        if (op == OP_NLL_FORWARD || op == OP_NLL_BACKWARD) /* these have no sum and no exp */
            for (size_t i = 0; i < tensor_count(&want.out[0]); i++) {
                double g = op == OP_NLL_FORWARD ? ((double *)got.out[0].data)[i]
                                                : tensor_f32(&got.out[0])[i];
                double w = op == OP_NLL_FORWARD ? ((double *)want.out[0].data)[i]
                                                : tensor_f32(&want.out[0])[i];
                cr_assert(g == w || (isnan(g) && isnan(w)), "%s: element %zu", what, i);
            }
        heap_free(&heap);
    }
}

Test(cuda_index_loss, log_softmax_equals_the_reference, .timeout = 60) {
    for (int i = 0; i < SHAPES; i++) {
        struct heap heap = {0};
        struct tensor x = scores_of(&heap, shapes[i][0], shapes[i][1]), y = tensor_like(&heap, &x);
        struct tensor dy = tensor_random(&heap, 2, 2, shapes[i][0], shapes[i][1], 1, 1);
        check(OP_SOFTMAX_FORWARD, &(struct op_args){.in = {x}, .out = {y}}, "softmax");
        host_reference_kernels[OP_SOFTMAX_FORWARD](&(struct op_args){.in = {x}, .out = {y}});
        check(OP_SOFTMAX_BACKWARD, &(struct op_args){.in = {y, dy}, .out = {x}},
              "softmax backward");
        check(OP_LOG_SOFTMAX_FORWARD, &(struct op_args){.in = {x}, .out = {y}}, "log_softmax");
        host_reference_kernels[OP_LOG_SOFTMAX_FORWARD](&(struct op_args){.in = {x}, .out = {y}});
        check(OP_LOG_SOFTMAX_BACKWARD, &(struct op_args){.in = {y, dy}, .out = {x}},
              "log_softmax backward");
        heap_free(&heap);
    }
}

Test(cuda_index_loss, losses_equal_the_reference, .timeout = 60) {
    struct step_block step = {.weight = 1.0f / 96};
    for (int i = 0; i < SHAPES; i++)
        for (int reduction = REDUCE_MEAN; reduction <= REDUCE_NONE; reduction++) {
            struct heap heap = {0};
            int rows = shapes[i][0], classes = shapes[i][1];
            struct tensor x = scores_of(&heap, rows, classes),
                          labels = labels_of(&heap, rows, classes);
            struct tensor dloss = tensor_random(&heap, 4, 1, rows, 1, 1, 1);
            struct tensor loss = tensor_new(&heap, DTYPE_F64, 1, rows, 1, 1, 1),
                          hits = tensor_new(&heap, DTYPE_I32, 1, rows, 1, 1, 1);
            struct op_args a = {.in = {x, labels},
                                .out = {loss, hits},
                                .step = &step,
                                .p.loss = {.reduction = reduction}};
            check(OP_NLL_FORWARD, &a, "nll");
            check(OP_CROSS_ENTROPY_FORWARD, &a, "cross entropy");
            a.p.loss.smoothing = .2;
            check(OP_CROSS_ENTROPY_FORWARD, &a, "smoothed cross entropy");
            a.p.loss.smoothing = 0;
            a.out[0] = x, a.out[1] = (struct tensor){.data = NULL};
            if (reduction == REDUCE_NONE) a.in[2] = dloss;
            check(OP_NLL_BACKWARD, &a, "nll backward");
            check(OP_CROSS_ENTROPY_BACKWARD, &a, "cross entropy backward");
            a.p.loss.smoothing = .2;
            check(OP_CROSS_ENTROPY_BACKWARD, &a, "smoothed cross entropy backward");
            a.p.loss.smoothing = 0;
            a.in[1] = tensor_random(&heap, 6, 2, rows, classes, 1, 1);
            check(OP_MSE_BACKWARD, &a, "mse backward");
            a.in[2] = (struct tensor){.data = NULL}, a.out[0] = loss, a.out[1] = hits;
            check(OP_MSE_FORWARD, &a, "mse");
            heap_free(&heap);
        }
}

/* Row r among 41 rows and alone: the same bits. */
Test(cuda_index_loss, a_row_has_the_same_bits_in_any_company, .timeout = 60) {
    enum { ROWS = 41, CLASSES = 37 };
    static const enum op ops[] = {OP_LOG_SOFTMAX_FORWARD, OP_LOG_SOFTMAX_BACKWARD,
                                  OP_CROSS_ENTROPY_BACKWARD};
    struct step_block step = {.weight = 1.0f / 96};
    for (int o = 0; o < 3; o++) {
        struct heap heap = {0};
        struct tensor x = tensor_random(&heap, 1, 2, ROWS, CLASSES, 1, 1),
                      dx = tensor_like(&heap, &x),
                      other = tensor_random(&heap, 2, 2, ROWS, CLASSES, 1, 1);
        struct tensor labels = labels_of(&heap, ROWS, CLASSES);
        struct op_args a = {.in = {x, o == 2 ? labels : other}, .out = {dx}, .step = &step}, one;
        if (ops[o] == OP_LOG_SOFTMAX_FORWARD) a.in[1] = (struct tensor){.data = NULL};
        run_rows(ops[o], &a, 3);
        for (int row = 0; row < ROWS; row++) {
            one = a;
            one.out[0] = tensor_new(&heap, DTYPE_F32, 2, 1, CLASSES, 1, 1);
            one.in[0].data = tensor_f32(&x) + row * CLASSES, one.in[0].dims[0] = 1;
            if (a.in[1].data) one.in[1].data = (float *)a.in[1].data + row * (o == 2 ? 1 : CLASSES);
            one.in[1].dims[0] = 1;
            run_rows(ops[o], &one, 1);
            cr_assert_arr_eq(one.out[0].data, tensor_f32(&dx) + row * CLASSES,
                             CLASSES * sizeof(float), "%s: row %d", op_name(ops[o]), row);
        }
        heap_free(&heap);
    }
}
