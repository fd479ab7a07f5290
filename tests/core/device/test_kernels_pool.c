/* The results of pools, checked on the references. (test_kernels.c compares all other kernels with
 * the references.) */
#include "tests/core/device/kernels_common.h"

/* A pool that does the work of the relu before it has the bits of the two ops, of their gradients
 * too, with zeros of both signs, equal values and NaN. */
Test(math_pools, a_relu_in_a_pool_has_the_bits_of_both, .timeout = 60) {
    for (int shape = 0; shape < 24; shape++) {
        struct heap heap = {0};
        int max = shape / 12, size = shape % 4 + 1, stride = shape / 4 % 3 + 1, wide = 5 - size,
            across = 4 - stride, h = 6 + shape % 2, w = 9 - shape % 3, p = (h - size) / stride + 1,
            q = (w - wide) / across + 1;
        struct tensor x = tensor_random(&heap, 1, 4, 5, 3, h, w),
                      dy = tensor_random(&heap, 2, 4, 5, 3, p, q);
        for (size_t j = 0; j < tensor_count(&x); j++)
            tensor_f32(&x)[j] = roundf(3 * tensor_f32(&x)[j]) / 2; /* -0 too */
        for (size_t j = 0; j < tensor_count(&dy); j += 7)
            tensor_f32(&dy)[j] = -0.0f;
        tensor_f32(&x)[1] = tensor_f32(&x)[w] = NAN;
        struct tensor r = tensor_like(&heap, &x), dr = tensor_like(&heap, &x),
                      dx = tensor_like(&heap, &x), both_dx = tensor_like(&heap, &x),
                      y = tensor_like(&heap, &dy), both_y = tensor_like(&heap, &dy);
        enum op forward = max ? OP_MAX_POOL_FORWARD : OP_AVG_POOL_FORWARD,
                back = max ? OP_MAX_POOL_BACKWARD : OP_AVG_POOL_BACKWARD;
        struct op_args pool = {.in = {r},
                               .out = {y},
                               .p.pool = {{size, wide}, {stride, across}, 0, {0, 0}}},
                       both = {.in = {x},
                               .out = {both_y},
                               .p.pool = {{size, wide}, {stride, across}, 1, {0, 0}}};
        host_reference_kernels[OP_ACTIVATION_FORWARD](&(struct op_args){.in = {x}, .out = {r}});
        host_reference_kernels[forward](&pool);
        host_reference_kernels[forward](&both);
        cr_assert(same_bits(&y, &both_y), "shape %d", shape);
        pool.in[max] = dy, pool.out[0] = dr;
        both.in[max] = dy, both.in[!max] = x, both.out[0] = both_dx;
        host_reference_kernels[back](&pool);
        host_reference_kernels[OP_ACTIVATION_BACKWARD](
            &(struct op_args){.in = {r, dr}, .out = {dx}});
        host_reference_kernels[back](&both);
        cr_assert(same_bits(&dx, &both_dx), "gradient, shape %d", shape);
        heap_free(&heap);
    }
}

/* The result for a window of four pixels, and the pixel that gets the gradient. */
Test(math_pools, max_pool_takes_the_first_of_equals_and_nan_above_all, .timeout = 60) {
    static const struct {
        float x[4], most;
        int tap;
    } cases[] = {
        {{1, 2, 3, 4}, 4, 3},
        {{4, 4, 4, 4}, 4, 0},
        {{1, 5, 5, 2}, 5, 1},
        {{-3, -2, -2, -4}, -2, 1},
        {{0, -0.0f, 0, 0}, 0, 0},
        {{1, NAN, 9, 2}, NAN, 1},
        {{NAN, 9, 9, 9}, NAN, 0},
        {{NAN, 1, NAN, 2}, NAN, 2},
        {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}, -INFINITY, 0},
        {{1, INFINITY, NAN, INFINITY}, NAN, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct heap heap = {0};
        struct tensor x = tensor_random(&heap, 1, 4, 1, 1, 2, 2),
                      y = heap_tensor(&heap, DTYPE_F32, 4, 1, 1, 1, 1);
        struct tensor dy = tensor_random(&heap, 2, 4, 1, 1, 1, 1), dx = tensor_like(&heap, &x);
        memcpy(x.data, cases[i].x, sizeof cases[i].x);
        struct op_args a = {.in = {x, dy}, .out = {y}, .p.pool = {{2, 2}, {2, 2}, 0, {0, 0}}};
        host_reference_kernels[OP_MAX_POOL_FORWARD](&a);
        float most = tensor_f32(&y)[0];
        cr_assert(most == cases[i].most || (isnan(most) && isnan(cases[i].most)), "window %zu: %g",
                  i, (double)most);
        a.out[0] = dx;
        host_reference_kernels[OP_MAX_POOL_BACKWARD](&a);
        for (int tap = 0; tap < 4; tap++)
            cr_assert_eq(tensor_f32(&dx)[tap], tap == cases[i].tap ? tensor_f32(&dy)[0] : 0,
                         "window %zu, tap %d", i, tap);
        heap_free(&heap);
    }
}
