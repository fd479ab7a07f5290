/* Tests the sorting of equal numbers and of NaN. */
#include "tests/core/device/kernels_common.h"

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
