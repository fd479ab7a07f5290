/* What PyTorch's numbers (tests/core/nn/test_ops.c) do not cover: layouts, masks, hashes, numbers
 * that are not finite, and roundings. References are compared with formulas written here a second
 * time. (test_kernels.c compares all other kernels with the references.) */
#include "base/philox.h"
#include "device/host/kernels/hash_mix.h"
#include "tests/core/device/kernels_common.h"

static const int sample_counts[] = {0, 1, 15, 16, 17, 33};
enum { SAMPLE_COUNTS = 6 };

/* Of instruction set k, or, after the last of these, the reference; NULL: not on this machine. */
static host_kernel *layout_kernel(enum op op, int k) {
    return k < ISAS ? kernel_of(op, all_isas[k]) : host_reference_kernels[op];
}

Test(math_ops, layouts_there_and_back, .timeout = 60) {
    static const int counts[][3] = {{1, 1, 1}, {3, 5, 1}, {1, 4, 4}, {1, 3, 11}, {2, 8, 10}};
    for (int i = 0; i < SAMPLE_COUNTS; i++)
        for (int j = 0; j < 5; j++)
            for (int k = 0; k <= ISAS; k++) {
                struct heap heap = {0};
                host_kernel *there = layout_kernel(OP_TO_N16, k),
                            *back = layout_kernel(OP_TO_PLAIN, k);
                if (!there) continue;
                struct tensor x = tensor_random(&heap, 1, 4, sample_counts[i], counts[j][0],
                                                counts[j][1], counts[j][2]);
                struct tensor want = n16_of(&heap, &x, 0), y = n16_new(&heap, &x),
                              z = tensor_like(&heap, &x);
                there(&(struct op_args){.in = {x}, .out = {y}});
                cr_assert(same_bits(&y, &want), "to N16: n=%d, shape %d, kernels %d",
                          sample_counts[i], j, k);
                back(&(struct op_args){.in = {y}, .out = {z}});
                cr_assert(same_bits(&z, &x), "to plain: n=%d, shape %d, kernels %d",
                          sample_counts[i], j, k);
                heap_free(&heap);
            }
}

/* A plain tensor with channels last, and with rows longer than what is read of them. */
Test(math_ops, layouts_of_views, .timeout = 60) {
    static const int orders[][4] = {{0, 3, 1, 2}, {0, 1, 3, 2}, {0, 2, 3, 1}, {0, 1, 2, 3}};
    for (int i = 0; i < SAMPLE_COUNTS; i++)
        for (int j = 0; j < 8; j++)
            for (int k = 0; k <= ISAS; k++) {
                struct heap heap = {0};
                host_kernel *there = layout_kernel(OP_TO_N16, k),
                            *back = layout_kernel(OP_TO_PLAIN, k);
                if (!there) continue;
                struct tensor x = tensor_random(&heap, 1, 4, sample_counts[i], 5, 3, 19),
                              z = tensor_random(&heap, 2, 4, sample_counts[i], 5, 3, 19),
                              part = tensor_permuted(&x, (int[]){0, 1, 2, 3});
                if (j / 4) part.dims[3] -= 2; /* z keeps its values in these */
                const struct tensor view = tensor_permuted(&part, orders[j % 4]);
                struct tensor dense = heap_tensor(&heap, DTYPE_F32, 4, view.dims[0], view.dims[1],
                                                  view.dims[2], view.dims[3]),
                              to = view;
                host_reference_kernels[OP_PERMUTE](&(struct op_args){.in = {view}, .out = {dense}});
                struct tensor want = n16_of(&heap, &dense, 0), y = n16_new(&heap, &dense);
                there(&(struct op_args){.in = {view}, .out = {y}});
                cr_assert(same_bits(&y, &want), "to N16: n=%d, view %d, kernels %d",
                          sample_counts[i], j, k);
                to.data = z.data;
                back(&(struct op_args){.in = {y}, .out = {to}});
                size_t kept = 0;
                for (size_t e = 0; e < tensor_count(&x); e++)
                    if (j / 4 && e % 19 >= 17)
                        kept += tensor_f32(&z)[e] != tensor_f32(&x)[e];
                    else
                        cr_assert_eq(tensor_f32(&z)[e], tensor_f32(&x)[e]);
                cr_assert(j < 4 || kept || !sample_counts[i]);
                heap_free(&heap);
            }
}

/* NaN is not 0, -0 is; what is not chosen may be infinite. */
Test(math_ops, where, .timeout = 60) {
    float c[] = {0, 1, -0.0f, NAN, -2}, a[] = {1, 2, INFINITY, 4, 5}, b[] = {-1, NAN, -3, -4, -5},
          y[5];
    struct tensor t[4];
    for (int i = 0; i < 4; i++)
        t[i] = tensor_plain((float *[]){c, a, b, y}[i], DTYPE_F32, 1, (int[]){5});
    struct op_args all = {.in = {t[0], t[1], t[2]}, .out = {t[3]}, .p.fill.value = 9};
    host_reference_kernels[OP_WHERE](&all);
    cr_assert(y[0] == -1 && y[1] == 2 && y[2] == -3 && y[3] == 4 && y[4] == 5);
    all.in[1].data = NULL;
    host_reference_kernels[OP_WHERE](&all);
    cr_assert(y[0] == -1 && y[1] == 9 && y[2] == -3 && y[3] == 9 && y[4] == 9);
    all.in[1] = t[1], all.in[2].data = NULL;
    host_reference_kernels[OP_WHERE](&all);
    cr_assert(y[0] == 9 && y[1] == 2 && y[2] == 9 && y[3] == 4 && y[4] == 5);
}

/* The square of a float is exact in double, so it is rounded once: 4097 x 4097 is the middle of two
 * floats. */
Test(math_ops, a_square_is_rounded_once, .timeout = 60) {
    for (int k = -4100; k <= 4100; k++) {
        float x = (float)k, square = x * x;
        struct activation_args pow = {ACTIVATION_POW, 2, 0};
        cr_assert_eq(activation_value(pow, x), square, "%d^2 is %.9g, not %.9g", k,
                     (double)activation_value(pow, x), (double)square);
    }
}

/* --- dropout --- */

/* A fair mask of n draws is more than 5 standard deviations off n * p once in two million times;
 * the seed is fixed. */
static const double SIGMAS = 5;

static struct op_args dropout_of(const struct tensor *x, const struct tensor *y,
                                 const struct step_block *step, float p, int layer, int v) {
    return (struct op_args){
        .in = {*x}, .out = {*y}, .step = step, .p.dropout = {p, layer, v, 0, 0}};
}

Test(math_ops, dropout_keeps_the_right_share_and_scales_it, .timeout = 60) {
    static const float ps[] = {.1f, .25f, .5f, .9f};
    struct heap heap = {0};
    struct step_block step = {.seed = 0x123456789abcdef, .step = 7};
    struct tensor x = tensor_random(&heap, 1, 2, 50, 1000, 1, 1), y = tensor_like(&heap, &x);
    for (int i = 0; i < 4; i++) {
        struct op_args a = dropout_of(&x, &y, &step, ps[i], 0, 0);
        host_reference_kernels[OP_DROPOUT](&a);
        double kept = 0, n = (double)tensor_count(&x), p = (double)ps[i];
        for (size_t j = 0; j < tensor_count(&x); j++) {
            float got = tensor_f32(&y)[j];
            kept += got != 0;
            cr_assert(got == 0 || got == tensor_f32(&x)[j] * (1.0f / (1.0f - ps[i])), "element %zu",
                      j);
        }
        cr_assert(fabs(kept - n * (1 - p)) <= SIGMAS * sqrt(n * p * (1 - p)),
                  "p = %g: %g of %g kept", p, kept, n);
    }
    heap_free(&heap);
}

Test(math_ops, dropout_at_the_ends, .timeout = 60) {
    struct heap heap = {0};
    struct step_block step = {.seed = 1};
    struct tensor x = tensor_random(&heap, 1, 2, 17, 12, 1, 1), zero = tensor_copy(&heap, &x);
    tensor_f32(&x)[3] = -0.0f, tensor_f32(&x)[4] = INFINITY;
    for (size_t i = 0; i < tensor_count(&x); i++)
        tensor_f32(&zero)[i] = tensor_f32(&x)[i] * 0;
    struct tensor y = tensor_like(&heap, &x);
    struct op_args a = dropout_of(&x, &y, &step, 0, 0, 0);
    host_reference_kernels[OP_DROPOUT](&a);
    cr_assert(same_bits(&y, &x), "p = 0 copies");
    a.p.dropout.p = 1;
    host_reference_kernels[OP_DROPOUT](&a);
    for (size_t i = 0; i < tensor_count(&x); i++)
        cr_assert(tensor_f32(&y)[i] == tensor_f32(&zero)[i] || isnan(tensor_f32(&zero)[i]),
                  "p = 1 gives x * 0: element %zu", i);
    heap_free(&heap);
}

/* The mask is a function of the element and its key, and another one for any other key. */
Test(math_ops, dropout_masks_are_a_function_of_the_element, .timeout = 60) {
    for (int i = 0; i < SAMPLE_COUNTS; i++)
        for (int count = 1; count <= 40; count = count < 8 ? count + 1 : count + 8) {
            struct heap heap = {0};
            struct step_block step = {.seed = (uint64_t)3 << 33 | 9, .step = 11};
            struct tensor x = tensor_random(&heap, 1, 2, sample_counts[i], count, 1, 1),
                          y = tensor_like(&heap, &x);
            struct op_args a = dropout_of(&x, &y, &step, .4f, 3, 5);
            host_reference_kernels[OP_DROPOUT](&a);
            for (size_t j = 0; j < tensor_count(&x); j++) {
                int kept = philox_keep(step.seed, 5, 11, 3, j, philox_threshold(1 - (double).4f));
                cr_assert_eq(tensor_f32(&y)[j] != 0, kept, "element %zu", j);
            }
            heap_free(&heap);
        }
    struct heap heap = {0};
    struct tensor x = tensor_random(&heap, 1, 2, 4, 100, 1, 1), y[6];
    for (int i = 0; i < 6; i++) {
        y[i] = tensor_like(&heap, &x);
        struct step_block step = {.seed = i == 1   ? 6
                                          : i == 2 ? (uint64_t)5 | (uint64_t)1 << 32
                                                   : 5,
                                  .step = i == 3};
        struct op_args a = dropout_of(&x, &y[i], &step, .5f, i == 4, i == 5);
        host_reference_kernels[OP_DROPOUT](&a);
        for (int j = 0; j < i; j++)
            cr_assert(!same_bits(&y[i], &y[j]), "masks %d and %d are equal", i, j);
    }
    heap_free(&heap);
}

/* The roundings of the optimizer, with numbers for which a fused and an unfused step differ. */
Test(math_ops, sgd_fuses_where_pytorch_does, .timeout = 60) {
    struct heap heap = {0};
    struct step_block step = {.learning_rate = .1f, .first_update = 1};
    struct tensor g = tensor_random(&heap, 1, 1, 200, 1, 1, 1),
                  p = tensor_random(&heap, 2, 1, 200, 1, 1, 1), m = tensor_like(&heap, &p);
    struct tensor want_p = tensor_copy(&heap, &p), want_m = tensor_like(&heap, &p);
    struct op_args a = {
        .in = {g}, .out = {p, m}, .step = &step, .p.sgd = {.momentum = .9f, .weight_decay = .01f}};
    for (int update = 0; update < 3; update++, step.first_update = 0) {
        host_reference_kernels[OP_SGD](&a);
        for (int i = 0; i < 200; i++) {
            float *wp = &tensor_f32(&want_p)[i], *wm = &tensor_f32(&want_m)[i];
            float decayed = fmaf(*wp, .01f, tensor_f32(&g)[i]), rounded = update ? *wm * .9f : 0;
            *wm = update ? rounded + decayed : decayed;
            *wp = fmaf(*wm, -.1f, *wp);
        }
        cr_assert(same_bits(&p, &want_p) && same_bits(&m, &want_m), "update %d", update);
    }
    heap_free(&heap);
}

/* --- hash --- */

static uint64_t hash_of(const struct tensor *x, host_kernel *kernel) {
    uint64_t log[6] = {1, 2, 3, 4, 5, 6};
    int dims[2] = {2, 3};
    struct step_block step = {.row = 1};
    kernel(&(struct op_args){
        .in = {*x}, .out = {tensor_plain(log, DTYPE_U64, 2, dims)}, .step = &step, .p.hash = {2}});
    for (uint64_t i = 0; i < 5; i++)
        cr_assert_eq(log[i], i + 1, "the hash of row 1, column 2 wrote elsewhere");
    return log[5];
}

Test(math_ops, hash, .timeout = 60) {
    /* splitmix64's first outputs from seed 0, from its authors' program. */
    cr_assert_eq(hash_mix(0, 0), 0xe220a8397b1dcdafu);
    cr_assert_eq(hash_mix(0, 1), 0x6e789e6aa1b965f4u);
    for (int count = 0; count <= 70; count++) {
        struct heap heap = {0};
        struct tensor x = tensor_random(&heap, (uint64_t)count, 1, count, 1, 1, 1);
        uint64_t want = hash_of(&x, host_reference_kernels[OP_HASH]), backwards = 0;
        for (int i = count - 1; i >= 0; i--) {
            uint32_t bits;
            memcpy(&bits, tensor_f32(&x) + i, 4);
            backwards += hash_mix(bits, (uint64_t)i);
        }
        cr_assert_eq(backwards, want, "the sum has no order");
        for (int i = 0; i < ISAS; i++)
            if (kernel_of(OP_HASH, all_isas[i]))
                cr_assert_eq(hash_of(&x, kernel_of(OP_HASH, all_isas[i])), want, "%s, count %d",
                             all_isas[i], count);
        for (int bit = 0; bit < 32 && count;
             bit++) { /* any changed bit changes the hash, that of -0 too */
            uint32_t *word = (uint32_t *)x.data + bit % count;
            *word ^= 1u << bit;
            cr_assert_neq(hash_of(&x, kernel_of(OP_HASH, NULL)), want, "bit %d of %d elements", bit,
                          count);
            *word ^= 1u << bit;
        }
        if (count > 1) { /* so do two exchanged elements */
            float *f = tensor_f32(&x), first = f[0];
            f[0] = f[count - 1], f[count - 1] = first;
            cr_assert_neq(hash_of(&x, kernel_of(OP_HASH, NULL)), want, "exchange, count %d", count);
        }
        heap_free(&heap);
    }
}
