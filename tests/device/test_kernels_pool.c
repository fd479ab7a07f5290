/* Pools: fast kernels and references do the same operations, so their values must be equal, not
 * close; those of all instruction sets must have the same bits. */
#include "tests/device/kernels_equal.h"

Test(math_pools, pools_equal_the_reference, .timeout = 60) {
    for (int i = 0; i < SAMPLE_COUNTS; i++)
        for (int shape = 0; shape < 12; shape++) {
            struct heap heap = {0};
            int size = shape % 4 + 1, stride = shape / 4 + 1, h = 6 + shape % 2, w = 9 - shape % 3,
                n = sample_counts[i];
            int p = (h - size) / stride + 1, q = (w - size) / stride + 1;
            struct tensor x = tensor_random(&heap, 1, 4, n, 3, h, w),
                          dy = tensor_random(&heap, 2, 4, n, 3, p, q);
            for (size_t j = 0; j < tensor_count(&x); j++)
                tensor_f32(&x)[j] = roundf(3 * tensor_f32(&x)[j]) / 2; /* many equal */
            if (n) tensor_f32(&x)[1] = tensor_f32(&x)[w] = NAN;
            struct tensor y = tensor_like(&heap, &dy), dx = tensor_like(&heap, &x);
            struct tensor xl = n16_of(&heap, &x, 5), yl = n16_new(&heap, &dy),
                          dyl = n16_of(&heap, &dy, 0), dxl = n16_new(&heap, &x);
            struct op_args want = {.in = {x}, .out = {y}, .p.pool = {size, stride, 0}},
                           fast = {.in = {xl}, .out = {yl}, .p.pool = {size, stride, 0}};
            host_reference_kernels[OP_AVG_POOL_FORWARD](&want);
            expect_all(OP_AVG_POOL_FORWARD, &fast, -1, &y, "avg pool");
            host_reference_kernels[OP_MAX_POOL_FORWARD](&want);
            expect_all(OP_MAX_POOL_FORWARD, &fast, -1, &y, "max pool");
            want.in[1] = dy, want.out[0] = dx, fast.in[1] = dyl, fast.out[0] = dxl;
            host_reference_kernels[OP_MAX_POOL_BACKWARD](&want);
            expect_all(OP_MAX_POOL_BACKWARD, &fast, -1, &dx, "max pool backward");
            host_fast_kernel(OP_MAX_POOL_BACKWARD, NULL)(&fast);
            cr_assert(pads_are_zero(&dxl), "max pool backward: pads");
            want.in[0] = dy, fast.in[0] = dyl;
            host_reference_kernels[OP_AVG_POOL_BACKWARD](&want);
            expect_all(OP_AVG_POOL_BACKWARD, &fast, -1, &dx, "avg pool backward");
            host_fast_kernel(OP_AVG_POOL_BACKWARD, NULL)(&fast);
            cr_assert(pads_are_zero(&dxl), "avg pool backward: pads");
            heap_free(&heap);
        }
}

/* The fast kernel of `op` on every instruction set gives what the reference gave, and zeros in the
 * lanes past the last sample where it makes a gradient. */
static void expect_fast(enum op op, const struct op_args *fast, const struct tensor *want) {
    expect_all(op, fast, -1, want, op_name(op));
    if (op != OP_AVG_POOL_BACKWARD && op != OP_MAX_POOL_BACKWARD) return;
    host_fast_kernel(op, NULL)(fast);
    cr_assert(pads_are_zero(&fast->out[0]), "%s: pads", op_name(op));
}

/* A pool that does the work of the relu before it has the bits of the two ops, of their gradients
 * too, with zeros of both signs, equal values and NaN. */
Test(math_pools, a_relu_in_a_pool_has_the_bits_of_both, .timeout = 60) {
    for (int shape = 0; shape < 24; shape++) {
        struct heap heap = {0};
        int max = shape / 12, size = shape % 4 + 1, stride = shape / 4 % 3 + 1, h = 6 + shape % 2,
            w = 9 - shape % 3, p = (h - size) / stride + 1, q = (w - size) / stride + 1;
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
        struct op_args pool = {.in = {r}, .out = {y}, .p.pool = {size, stride, 0}},
                       both = {.in = {x}, .out = {both_y}, .p.pool = {size, stride, 1}};
        host_reference_kernels[OP_RELU_FORWARD](&(struct op_args){.in = {x}, .out = {r}});
        host_reference_kernels[forward](&pool);
        host_reference_kernels[forward](&both);
        cr_assert(same_bits(&y, &both_y), "shape %d", shape);
        pool.in[max] = dy, pool.out[0] = dr;
        both.in[max] = dy, both.in[!max] = x, both.out[0] = both_dx;
        host_reference_kernels[back](&pool);
        host_reference_kernels[OP_RELU_BACKWARD](&(struct op_args){.in = {r, dr}, .out = {dx}});
        host_reference_kernels[back](&both);
        cr_assert(same_bits(&dx, &both_dx), "gradient, shape %d", shape);

        struct tensor xl = n16_of(&heap, &x, NAN), dyl = n16_of(&heap, &dy, 0);
        both.in[0] = xl, both.in[1].data = NULL, both.out[0] = n16_new(&heap, &y);
        expect_fast(forward, &both, &both_y);
        both.in[max] = dyl, both.in[!max] = xl, both.out[0] = n16_new(&heap, &dx);
        expect_fast(back, &both, &both_dx);
        heap_free(&heap);
    }
}

/* Windows that divide a side, that overlap, and that are more than the pixels. */
Test(math_pools, adaptive_pools_equal_the_reference, .timeout = 60) {
    static const int shapes[][4] = {{7, 7, 1, 1}, {28, 12, 1, 1}, {6, 9, 3, 3}, {7, 5, 3, 4},
                                    {2, 3, 5, 3}, {13, 17, 5, 7}, {1, 1, 2, 2}};
    for (int i = 0; i < SAMPLE_COUNTS; i++)
        for (size_t j = 0; j < sizeof shapes / sizeof *shapes; j++) {
            struct heap heap = {0};
            const int *s = shapes[j], n = sample_counts[i];
            struct tensor x = tensor_random(&heap, 1, 4, n, 3, s[0], s[1]),
                          dy = tensor_random(&heap, 2, 4, n, 3, s[2], s[3]),
                          y = tensor_like(&heap, &dy), dx = tensor_like(&heap, &x);
            struct tensor xl = n16_of(&heap, &x, 5), yl = n16_new(&heap, &dy),
                          dyl = n16_of(&heap, &dy, 0), dxl = n16_new(&heap, &x);
            struct op_args fast = {.in = {xl}, .out = {yl}};
            host_reference_kernels[OP_ADAPTIVE_AVG_POOL_FORWARD](
                &(struct op_args){.in = {x}, .out = {y}});
            expect_all(OP_ADAPTIVE_AVG_POOL_FORWARD, &fast, -1, &y, "adaptive pool");
            fast = (struct op_args){.in = {dyl}, .out = {dxl}};
            host_reference_kernels[OP_ADAPTIVE_AVG_POOL_BACKWARD](
                &(struct op_args){.in = {dy}, .out = {dx}});
            expect_all(OP_ADAPTIVE_AVG_POOL_BACKWARD, &fast, -1, &dx, "adaptive pool backward");
            host_fast_kernel(OP_ADAPTIVE_AVG_POOL_BACKWARD, NULL)(&fast);
            cr_assert(pads_are_zero(&dxl), "adaptive pool backward: pads");
            heap_free(&heap);
        }
}

static void expect_equal(const struct tensor *is, const struct tensor *should, int n) {
    cr_assert(!memcmp(is->data, should->data, tensor_bytes(should)), "pad of %d samples", n);
}

/* What lies where after a pad, and after a cut: 3 x 2 pixels in 6 x 4 with a margin of its own on
 * each side. In N16 each pixel is a vector. */
Test(math_pools, pad_moves_pixels_and_the_opposite_pad_moves_them_back, .timeout = 60) {
    for (int n = 0; n <= 17; n++) {
        struct heap heap = {0};
        struct tensor x = tensor_random(&heap, 1, 4, n, 2, 3, 2),
                      y = tensor_new(&heap, DTYPE_F32, 4, n, 2, 6, 4),
                      back = tensor_like(&heap, &x);
        struct op_args there = {.in = {x}, .out = {y}, .p.pad = {1, 2, 7}};
        host_reference_kernels[OP_PAD](&there);
        for (int i = 0; i < 2 * n; i++)
            for (int h = 0; h < 6; h++)
                for (int w = 0; w < 4; w++) {
                    int inside = h >= 1 && h < 4 && w >= 2;
                    float is = tensor_f32(&y)[(i * 6 + h) * 4 + w],
                          should = inside ? tensor_f32(&x)[(i * 3 + h - 1) * 2 + w - 2] : 7;
                    cr_assert_eq(is, should, "plane %d, row %d, column %d: %g", i, h, w,
                                 (double)is);
                }
        host_reference_kernels[OP_PAD](
            &(struct op_args){.in = {y}, .out = {back}, .p.pad = {-1, -2, 0}});
        expect_equal(&back, &x, n);
        struct tensor xl = n16_of(&heap, &x, 0), yl = n16_new(&heap, &y);
        struct op_args fast = {.in = {xl}, .out = {yl}, .p.pad = {1, 2, 7}};
        host_reference_kernels[OP_PAD](&fast);
        struct tensor plain = tensor_like(&heap, &y);
        host_reference_kernels[OP_TO_PLAIN](&(struct op_args){.in = {yl}, .out = {plain}});
        expect_equal(&plain, &y, n);
        heap_free(&heap);
    }
}

/* What a window of four pixels gives, and which pixel gets the gradient. */
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
                      y = tensor_new(&heap, DTYPE_F32, 4, 1, 1, 1, 1);
        struct tensor dy = tensor_random(&heap, 2, 4, 1, 1, 1, 1), dx = tensor_like(&heap, &x);
        memcpy(x.data, cases[i].x, sizeof cases[i].x);
        struct op_args a = {.in = {x, dy}, .out = {y}, .p.pool = {2, 2, 0}};
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
