/* The fast matmul, linear layers on plain rows and norms of rows against the reference, over shapes
 * that fit no tile: equal bits on every instruction set. The references of sums, of the order of
 * dimensions and of an embedding's gradient against loops that are written in another way. */
#include "tests/nn/layer.h"

static void check_matmul(const int s[4], int turned) { /* matrices, rows, columns, depth */
    struct heap heap = {0};
    struct matmul_case c = matmul_case(&heap, s, turned);
    struct op_args a = c.args;
    struct tensor first = {.data = NULL};
    for (int i = 0; i < ISAS; i++) {
        char line[80];
        host_kernel *kernel = kernel_of(OP_MATMUL, all_isas[i]);
        if (!kernel) continue;
        snprintf(line, sizeof line, "matmul %d x %d x %d x %d, turned %d, %s", s[0], s[1], s[2],
                 s[3], turned, all_isas[i]);
        a.out[0] = tensor_like(&heap, &c.want);
        kernel(&a);
        expect_near(line, &a.out[0], &c.want, &c.size, rounding((size_t)s[3]));
        if (!first.data) first = a.out[0];
        cr_assert(same_bits(&a.out[0], &first), "%s: other bits", line);
    }
    heap_free(&heap);
}

Test(math_algebra, matmul, .timeout = 60) {
    static const int shapes[][4] = {{1, 1, 1, 1},   {3, 2, 5, 7},     {2, 13, 33, 15},
                                    {0, 3, 4, 5},   {1, 25, 31, 257}, {2, 12, 32, 16},
                                    {1, 1, 70, 300}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int turned = 0; turned < 3; turned++)
            check_matmul(shapes[i], turned);
}

/* A matrix has the same bits among any others. */
Test(math_algebra, a_product_does_not_depend_on_its_company, .timeout = 30) {
    for (int i = 0; i < ISAS; i++) {
        struct heap heap = {0};
        host_kernel *kernel = kernel_of(OP_MATMUL, all_isas[i]);
        struct op_args all = {.in = {tensor_random(&heap, 1, 3, 5, 7, 19, 1),
                                     tensor_random(&heap, 2, 3, 5, 19, 11, 1)},
                              .out = {tensor_new(&heap, DTYPE_F32, 3, 5, 7, 11, 1)}};
        if (!kernel) continue;
        kernel(&all);
        for (int n = 0; n < 5; n++) {
            struct op_args one = all;
            one.out[0] = tensor_new(&heap, DTYPE_F32, 3, 1, 7, 11, 1);
            one.in[0].dims[0] = one.in[1].dims[0] = 1;
            one.in[0].data = tensor_f32(&all.in[0]) + (ptrdiff_t)n * 7 * 19;
            one.in[1].data = tensor_f32(&all.in[1]) + (ptrdiff_t)n * 19 * 11;
            kernel(&one);
            cr_assert_arr_eq(one.out[0].data, tensor_f32(&all.out[0]) + (ptrdiff_t)n * 7 * 11,
                             7 * 11 * sizeof(float));
        }
        heap_free(&heap);
    }
}

Test(math_algebra, sum_and_spread, .timeout = 30) {
    static const int shapes[][3] = {{1, 1, 1}, {3, 40, 1}, {2, 5, 70}, {1, 9, 64}, {0, 2, 3}};
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        const int *s = shapes[i / 2];
        struct heap heap = {0};
        int divide = i % 2 ? s[1] : 1;
        struct tensor x = tensor_random(&heap, 1, 3, s[0], s[1], s[2], 1),
                      y = tensor_new(&heap, DTYPE_F32, 2, s[0], s[2], 1, 1),
                      dx = tensor_like(&heap, &x);
        struct op_args sum = {.in = {x}, .out = {y}, .p.sum.divide = divide},
                       spread = {.in = {y}, .out = {dx}, .p.sum.divide = divide};
        host_reference_kernels[OP_SUM](&sum);
        for (int e = 0; e < s[0] * s[2]; e++) {
            double want = 0;
            for (int l = 0; l < s[1]; l++)
                want += (double)tensor_f32(&x)[(e / s[2] * s[1] + l) * s[2] + e % s[2]];
            cr_assert_eq(tensor_f32(&y)[e], (float)(want / divide), "sum %d of shape %zu", e,
                         i / 2);
        }
        host_reference_kernels[OP_SPREAD](&spread);
        for (int e = 0; e < s[0] * s[1] * s[2]; e++)
            cr_assert_eq(tensor_f32(&dx)[e],
                         tensor_f32(&y)[e / (s[1] * s[2]) * s[2] + e % s[2]] / (float)divide);
        heap_free(&heap);
    }
}

Test(math_algebra, embedding_backward, .timeout = 30) {
    enum { COUNT = 50, ROWS = 6, WIDTH = 5 };
    struct heap heap = {0};
    struct tensor dy = tensor_random(&heap, 1, 2, COUNT, WIDTH, 1, 1),
                  index = tensor_new(&heap, DTYPE_I32, 1, COUNT, 1, 1, 1),
                  dw = tensor_new(&heap, DTYPE_F32, 2, ROWS, WIDTH, 1, 1);
    for (int i = 0; i < COUNT; i++) /* row 4 gets nothing; -1, 6 and 7 are no rows */
        ((int32_t *)index.data)[i] = (i * 7 % 9 == 4 ? 5 : i * 7 % 9) - 1;
    host_reference_kernels[OP_EMBEDDING_BACKWARD](
        &(struct op_args){.in = {dy, index}, .out = {dw}});
    for (int e = 0; e < ROWS * WIDTH; e++) {
        float want = 0;
        for (int i = 0; i < COUNT; i++)
            if (((int32_t *)index.data)[i] == e / WIDTH)
                want += tensor_f32(&dy)[i * WIDTH + e % WIDTH];
        cr_assert_eq(tensor_f32(&dw)[e], want, "element %d", e);
    }
    heap_free(&heap);
}

/* Every element of y is found again where the order of dimensions says. */
Test(math_algebra, permute, .timeout = 30) {
    static const int orders[][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 1, 3, 2}, {3, 1, 0, 2}};
    static const int s[4] = {3, 4, 5, 6};
    for (int i = 0; i < 4; i++) {
        const int *o = orders[i];
        struct heap heap = {0};
        struct op_args a = {.in = {tensor_random(&heap, 1, 4, s[0], s[1], s[2], s[3])}};
        a.out[0] = tensor_new(&heap, DTYPE_F32, 4, s[o[0]], s[o[1]], s[o[2]], s[o[3]]);
        memcpy(a.p.permute.order, o, sizeof a.p.permute.order);
        host_reference_kernels[OP_PERMUTE](&a);
        for (int e = 0; e < s[0] * s[1] * s[2] * s[3]; e++) {
            int at[4] = {e / (s[1] * s[2] * s[3]), e / (s[2] * s[3]) % s[1], e / s[3] % s[2],
                         e % s[3]};
            int to = ((at[o[0]] * s[o[1]] + at[o[1]]) * s[o[2]] + at[o[2]]) * s[o[3]] + at[o[3]];
            cr_assert_eq(tensor_f32(&a.out[0])[to], tensor_f32(&a.in[0])[e]);
        }
        heap_free(&heap);
    }
}

/* Runs `op` on every instruction set with outputs of its own: near `want`, and with equal bits. */
static void expect_near_on_all(enum op op, struct op_args a, const struct op_args *want,
                               const struct op_args *sizes, double bound) {
    struct heap heap = {0};
    struct tensor first[2] = {{.data = NULL}};
    for (int i = 0; i < ISAS; i++) {
        host_kernel *kernel = kernel_of(op, all_isas[i]);
        if (!kernel) continue;
        for (int k = 0; k < 2; k++)
            if (want->out[k].data) a.out[k] = tensor_like(&heap, &want->out[k]);
        kernel(&a);
        for (int k = 0; k < 2 && want->out[k].data; k++) {
            if (a.out[k].dtype == DTYPE_F32)
                expect_near(op_name(op), &a.out[k], &want->out[k], &sizes->out[k], bound);
            if (!first[k].data) first[k] = a.out[k];
            cr_assert(same_bits(&a.out[k], &first[k]), "%s: other bits", op_name(op));
        }
    }
    cr_assert(first[0].data, "%s has no fast kernel", op_name(op));
    heap_free(&heap);
}

Test(math_algebra, linear_layers_on_plain_rows, .timeout = 60) {
    static const int shapes[][3] = {{1, 1, 1}, {37, 19, 33}, {5, 300, 7}, {0, 4, 3}};
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++)
        for (enum pass pass = FORWARD; pass < PASSES; pass++) {
            const int *s = shapes[i / 2];
            struct heap heap = {0};
            struct layer l = linear_layer(&heap, s[0], s[1], s[2], i % 2),
                         size = absolute_layer(&heap, &l);
            struct op_args want = launch_of(&heap, &l, pass), sizes = launch_of(&heap, &size, pass);
            host_reference_kernels[op_of(&l, pass)](&want);
            host_reference_kernels[op_of(&l, pass)](&sizes);
            size_t terms = (size_t)(pass == FORWARD         ? s[1] + 1
                                    : pass == BACKWARD_DATA ? s[2]
                                                            : s[0]);
            expect_near_on_all(op_of(&l, pass), want, &want, &sizes, rounding(terms));
            heap_free(&heap);
        }
}

/* Sums of doubles in another order: after the rounding to float one unit in the last place. A row
 * has the same bits among any others. */
Test(math_algebra, layer_norm, .timeout = 60) {
    static const int shapes[][5] = {/* rows, length, groups, neighbours, are there weights? */
                                    {1, 1, 1, 1, 3},   {7, 33, 1, 1, 3},  {9, 64, 1, 1, 0},
                                    {5, 300, 1, 1, 1}, {12, 30, 3, 5, 3}, {6, 96, 2, 96, 1},
                                    {0, 9, 1, 1, 3}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int *s = shapes[i];
        int weights = s[2] * (s[1] / s[3]);
        struct heap heap = {0};
        struct tensor none = {.data = NULL}, x = tensor_random(&heap, 1, 2, s[0], s[1], 1, 1),
                      dy = tensor_random(&heap, 2, 2, s[0], s[1], 1, 1),
                      w = s[4] & 1 ? tensor_random(&heap, 3, 1, weights, 1, 1, 1) : none,
                      b = s[4] & 2 ? tensor_random(&heap, 4, 1, weights, 1, 1, 1) : none;
        struct op_args a = {.in = {x, w, b},
                            .out = {tensor_like(&heap, &x),
                                    tensor_new(&heap, DTYPE_F64, 2, s[0], 2, 1, 1)},
                            .p.layer_norm = {1e-5, s[2], s[3]}},
                       sizes = a;
        sizes.out[0] = tensor_like(&heap, &x);
        for (size_t e = 0; e < tensor_count(&x); e++)
            tensor_f32(&sizes.out[0])[e] = 20; /* more than a number that is normalised here */
        cr_assert_eq(op_check(OP_LAYER_NORM_FORWARD, &a), 0);
        host_reference_kernels[OP_LAYER_NORM_FORWARD](&a);
        expect_near_on_all(OP_LAYER_NORM_FORWARD, a, &a, &sizes, 0x1p-24);
        if (s[0] > 1 && s[2] == 1) { /* the last row alone */
            struct op_args one = a;
            host_kernel *kernel = kernel_of(OP_LAYER_NORM_FORWARD, NULL);
            struct tensor all = a.out[0];
            size_t last = (size_t)(s[0] - 1) * (size_t)s[1];
            kernel(&a);
            one.in[0].dims[0] = one.out[0].dims[0] = one.out[1].dims[0] = 1;
            one.in[0].data = tensor_f32(&x) + last;
            one.out[0].data = heap_take(&heap, (size_t)s[1] * sizeof(float));
            one.out[1].data = heap_take(&heap, 2 * sizeof(double));
            kernel(&one);
            cr_assert_arr_eq(one.out[0].data, tensor_f32(&all) + last,
                             (size_t)s[1] * sizeof(float));
        }
        a.in[1] = dy, a.in[2] = w, a.out[1].data = NULL;
        host_reference_kernels[OP_LAYER_NORM_BACKWARD_DATA](&a);
        for (size_t e = 0; e < tensor_count(&x); e++)
            tensor_f32(&sizes.out[0])[e] = 400; /* 1 / sqrt(epsilon) is 316 */
        expect_near_on_all(OP_LAYER_NORM_BACKWARD_DATA, a, &a, &sizes, 0x1p-24);
        heap_free(&heap);
    }
}
