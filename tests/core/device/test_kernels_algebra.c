/* The references of sums and of sorting against loops that are written in another way; and that a
 * matrix, and a row that is normalised, have the same bits among any others. (Fast kernels against
 * the references: test_kernels.c.) */
#include "tests/core/device/kernels_common.h"

/* A matrix has the same bits among any others. */
Test(math_algebra, a_product_does_not_depend_on_its_company, .timeout = 30) {
    for (int i = 0; i < ISAS; i++) {
        host_kernel *kernel = kernel_of(OP_MATMUL, all_isas[i]);
        if (!kernel) continue; /* this processor lacks the set */
        struct heap heap = {0};
        struct op_args all = {.in = {tensor_random(&heap, 1, 3, 5, 7, 19, 1),
                                     tensor_random(&heap, 2, 3, 5, 19, 11, 1)},
                              .out = {heap_tensor(&heap, DTYPE_F32, 3, 5, 7, 11, 1)}};
        kernel(&all);
        for (int n = 0; n < 5; n++) {
            struct op_args one = all;
            one.out[0] = heap_tensor(&heap, DTYPE_F32, 3, 1, 7, 11, 1);
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
                      y = heap_tensor(&heap, DTYPE_F32, 2, s[0], s[2], 1, 1),
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

/* Ascending: -2, -1, -0, 0, 3, 3, infinity, NaN; what is equal, and NaN, stays in its order. */
Test(math_algebra, argsort, .timeout = 30) {
    enum { COUNT = 9 };
    const float x[COUNT] = {3, NAN, -0.f, INFINITY, 0, -2, 3, NAN, -1};
    const float want[2][COUNT] = {{5, 8, 2, 4, 0, 6, 3, 1, 7}, {1, 7, 3, 0, 6, 2, 4, 8, 5}};
    struct heap heap = {0};
    struct op_args a = {.in = {heap_tensor(&heap, DTYPE_F32, 3, 1, COUNT, 2, 1)},
                        .out = {heap_tensor(&heap, DTYPE_F32, 3, 1, COUNT, 2, 1)}};
    for (int i = 0; i < COUNT; i++) /* two columns, of which one has the opposite sign */
        tensor_f32(&a.in[0])[2 * i] = x[i], tensor_f32(&a.in[0])[2 * i + 1] = -x[i];
    for (a.p.sort.descending = 0; a.p.sort.descending < 2; a.p.sort.descending++) {
        host_reference_kernels[OP_ARGSORT](&a);
        for (int i = 0; i < COUNT; i++)
            cr_assert_eq(tensor_f32(&a.out[0])[2 * i], want[a.p.sort.descending][i], "%d", i);
    }
    cr_assert_eq(tensor_f32(&a.out[0])[1], 1); /* descending, too: NaN */
    cr_assert_eq(tensor_f32(&a.out[0])[5], 5); /* 2, the largest of -x that is a number */
    heap_free(&heap);
}

Test(math_algebra, a_row_is_normalised_alike_in_any_company, .timeout = 30) {
    enum { ROWS = 7, LENGTH = 33 };
    struct heap heap = {0};
    struct op_args all = {.in = {tensor_random(&heap, 1, 2, ROWS, LENGTH, 1, 1)},
                          .out = {heap_tensor(&heap, DTYPE_F32, 2, ROWS, LENGTH, 1, 1),
                                  heap_tensor(&heap, DTYPE_F64, 2, ROWS, 2, 1, 1)},
                          .p.layer_norm = {1e-5, 1, 1}},
                   one = all;
    one.out[0] = tensor_like(&heap, &all.out[0]), one.out[1] = tensor_like(&heap, &all.out[1]);
    one.in[0].dims[0] = one.out[0].dims[0] = one.out[1].dims[0] = 1;
    kernel_of(OP_LAYER_NORM_FORWARD, NULL)(&all);
    for (int r = 0; r < ROWS; r++) {
        one.in[0].data = tensor_f32(&all.in[0]) + (ptrdiff_t)r * LENGTH;
        kernel_of(OP_LAYER_NORM_FORWARD, NULL)(&one);
        cr_assert_arr_eq(one.out[0].data, tensor_f32(&all.out[0]) + (ptrdiff_t)r * LENGTH,
                         LENGTH * sizeof(float), "row %d", r);
    }
    heap_free(&heap);
}
