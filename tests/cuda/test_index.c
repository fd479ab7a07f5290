/* The CUDA kernels that sum no products, run on the host: elementwise, pools, logs. They do the
 * same operations in the same order as the reference, so the values must be equal: over sizes that
 * end in a tail, operands at odd addresses, and grids of every shape. */
#include "tests/cuda/index.h"

static int same_value(float a, float b) {
    return a == b || (isnan(a) && isnan(b));
}

static void expect_same(const struct tensor *got, const struct tensor *want, const char *what,
                        int variant) {
    for (size_t i = 0; i < tensor_count(want); i++)
        cr_assert(same_value(tensor_f32(got)[i], tensor_f32(want)[i]),
                  "%s, variant %d: element %zu is %g, not %g", what, variant, i,
                  (double)tensor_f32(got)[i], (double)tensor_f32(want)[i]);
}

Test(cuda_index, division_by_multiplication, .timeout = 60) {
    static const uint32_t edges[] = {
        1,     2,     3,          4,          5,          7,          9,
        25,    28,    169,        676,        1000,       4607,       65535,
        65536, 65537, 0x3fffffff, 0x40000000, 0x40000001, 0x7ffffffe, 0x7fffffff};
    uint64_t seed = 5;
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        struct divider by = divider_of(edges[i]);
        for (int j = 0; j < 40000; j++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            uint32_t
                x = (uint32_t)(seed >> 33),
                rest; /* every second x lies around a multiple, where a wrong rounding would show */
            if (j % 2) x = x / edges[i] * edges[i] - (uint32_t)(j % 4 == 1);
            x &= 0x7fffffff;
            cr_assert_eq(divide(by, x, &rest), x / edges[i], "%u / %u", x, edges[i]);
            cr_assert_eq(rest, x % edges[i], "%u %% %u", x, edges[i]);
        }
    }
}

/* --- elementwise --- */

/* A tensor of `count` elements that starts `skip` floats behind a 16-byte boundary. */
static struct tensor skewed(struct heap *heap, uint64_t seed, int count, int skip) {
    struct tensor all = tensor_random(heap, seed, 1, count + skip, 1, 1, 1), t = all;
    t.dims[0] = count;
    t.data = tensor_f32(&all) + skip;
    for (int i = 0; i < count; i += 7)
        tensor_f32(&t)[i] = i % 2 ? -0.0f : i % 3 ? NAN : INFINITY;
    return t;
}

static struct tensor skewed_copy(struct heap *heap, const struct tensor *t, int skip) {
    struct tensor copy = *t;
    copy.data = skewed(heap, 1, (int)tensor_count(t), skip).data;
    memcpy(copy.data, t->data, tensor_bytes(t));
    return copy;
}

/* `a` are the operands of the reference; each grid and each skew gets copies of them. in_place:
 * out[0] is in[in_place]. */
static void check_elementwise(enum op op, const struct op_args *a, int in_place) {
    for (int skip = 0; skip < 4; skip++)
        for (int g = 0; g < ODD_GRIDS; g++) {
            struct heap heap = {0};
            struct op_args got = *a, want = *a;
            for (int i = 0; i < 2; i++) {
                if (a->in[i].data) got.in[i] = skewed_copy(&heap, &a->in[i], skip);
                if (a->in[i].data) want.in[i] = tensor_copy(&heap, &a->in[i]);
                if (a->out[i].data)
                    got.out[i] = skewed_copy(&heap, &a->out[i], i ? (skip + 1) % 4 : skip);
                if (a->out[i].data) want.out[i] = tensor_copy(&heap, &a->out[i]);
            }
            if (in_place >= 0) got.out[0] = got.in[in_place], want.out[0] = want.in[in_place];
            run_elementwise(op, &got, odd_grids[g]);
            host_reference_kernels[op](&want);
            expect_same(&got.out[0], &want.out[0], op_name(op), 10 * skip + g);
            if (a->out[1].data) expect_same(&got.out[1], &want.out[1], op_name(op), 10 * skip + g);
            heap_free(&heap);
        }
}

static const int counts[] = {0, 1, 3, 4, 5, 127, 128, 1021, 2050};
enum { COUNTS = 9 };

Test(cuda_index, elementwise_equals_the_reference, .timeout = 120) {
    struct step_block step = {.seed = 99, .step = 3, .learning_rate = .1f};
    for (int i = 0; i < COUNTS; i++) {
        struct heap heap = {0};
        struct tensor x = skewed(&heap, 1, counts[i], 0), y = skewed(&heap, 2, counts[i], 0);
        for (int in_place = 0; in_place < 2; in_place++) {
            check_elementwise(OP_RELU_FORWARD, &(struct op_args){.in = {x}, .out = {y}},
                              in_place - 1);
            check_elementwise(OP_RELU_BACKWARD, &(struct op_args){.in = {x, y}, .out = {y}},
                              in_place ? 1 : -1);
            static const enum op of_one[] = {OP_NEGATE, OP_TANH_FORWARD, OP_SIGMOID_FORWARD},
                                 of_y_and_dy[] = {OP_TANH_BACKWARD, OP_SIGMOID_BACKWARD},
                                 of_two[] = {OP_ADD_FORWARD, OP_SUBTRACT_FORWARD,
                                             OP_MULTIPLY_FORWARD};
            for (int k = 0; k < 3; k++)
                check_elementwise(of_one[k], &(struct op_args){.in = {x}, .out = {y}},
                                  in_place - 1);
            for (int k = 0; k < 2; k++)
                check_elementwise(of_y_and_dy[k], &(struct op_args){.in = {x, y}, .out = {y}},
                                  in_place ? 1 : -1);
            for (int k = 0; k < 3 && !in_place; k++)
                check_elementwise(of_two[k], &(struct op_args){.in = {x, y}, .out = {y}}, -1);
            for (int k = 0; k < ACTIVATION_COUNT; k++) {
                struct op_args a = {.in = {x}, .out = {y}};
                a.p.activation = (struct activation_args){(enum activation)k, .3f, .7f};
                check_elementwise(OP_ACTIVATION_FORWARD, &a, in_place - 1);
                a.in[1] = y;
                check_elementwise(OP_ACTIVATION_BACKWARD, &a, in_place ? 1 : -1);
            }
            for (int v = 0; v < 3; v++)
                check_elementwise(
                    v ? OP_DROPOUT_FORWARD : OP_DROPOUT_BACKWARD,
                    &(struct op_args){
                        .in = {x}, .out = {y}, .step = &step, .p.dropout = {.25f * (float)v, 1, v}},
                    in_place - 1);
        }
        check_elementwise(OP_ADD, &(struct op_args){.in = {x}, .out = {y}}, -1);
        check_elementwise(OP_FILL, &(struct op_args){.out = {y}, .p.fill = {3.5f}}, -1);
        check_elementwise(OP_SCALE, &(struct op_args){.out = {y}, .p.fill = {1 / 3.0f}}, -1);
        heap_free(&heap);
    }
}

Test(cuda_index, sgd_rounds_as_the_reference, .timeout = 120) {
    for (int i = 0; i < COUNTS; i++)
        for (int v = 0; v < 12;
             v++) { /* 8 and 9 are dampened, 10 and 11 have Nesterov's momentum */
            struct heap heap = {0};
            struct step_block step = {.learning_rate = .37f, .first_update = v & 1};
            struct tensor grad = skewed(&heap, 1, counts[i], 0),
                          value = skewed(&heap, 2, counts[i], 0),
                          momentum = skewed(&heap, 3, counts[i], 0);
            struct op_args a = {.in = {grad}, .out = {value}, .step = &step};
            a.p.sgd = (struct sgd_args){v & 2 || v >= 8 ? .9f : 0, v & 4 ? .013f : 0,
                                        v / 2 == 4 ? .3 : 0, v / 2 == 5};
            if (v & 2 || v >= 8) a.out[1] = momentum;
            check_elementwise(OP_SGD, &a, -1);
            heap_free(&heap);
        }
}

static struct tensor pairs_of(struct heap *heap, int count, int first_has_sign) {
    struct tensor pairs = tensor_random(heap, 3, 2, count, 2, 1, 1);
    for (int i = 0; i < 2 * count; i++) /* means of squares are not negative */
        if (!first_has_sign || i % 2) tensor_f32(&pairs)[i] = fabsf(tensor_f32(&pairs)[i]);
    return pairs;
}

Test(cuda_index, adadelta_and_adam_round_as_the_reference, .timeout = 120) {
    for (int i = 0; i < COUNTS; i++)
        for (int v = 0; v < 6; v++) { /* the last two: AdamW */
            struct heap heap = {0};
            struct step_block step = {
                .learning_rate = .37f, .adam_rate = .7f, .adam_root = .31f, .adam_keep = .9951f};
            struct tensor grad = skewed(&heap, 1, counts[i], 0),
                          value = skewed(&heap, 2, counts[i], 0);
            struct op_args a = {.in = {grad},
                                .out = {value, pairs_of(&heap, counts[i], v & 1 || v >= 4)},
                                .step = &step};
            float decay = v & 2 ? .013f : 0;
            int adam = v & 1 || v >= 4;
            if (adam)
                a.p.adam = (struct adam_args){v >= 4 ? .013f * (float)(v - 4) : decay, v >= 4, .9,
                                              .999, 1e-8};
            else
                a.p.adadelta = (struct adadelta_args){decay, .9, 1e-6};
            check_elementwise(adam ? OP_ADAM : OP_ADADELTA, &a, -1);
            heap_free(&heap);
        }
}

/* p = 1 multiplies by 0 and not by infinity; the upper half of the step's number does not reach the
 * counter, as on the host. */
Test(cuda_index, dropout_at_the_ends, .timeout = 60) {
    struct heap heap = {0};
    struct step_block step = {.seed = 0x123456789abcdef, .step = 0x100000007};
    struct tensor x = skewed(&heap, 1, 301, 0), y = skewed(&heap, 2, 301, 0);
    for (int i = 0; i < 3; i++)
        check_elementwise(
            OP_DROPOUT_FORWARD,
            &(struct op_args){
                .in = {x}, .out = {y}, .step = &step, .p.dropout = {(float)i / 2, 5, 63}},
            -1);
    heap_free(&heap);
}

/* Planes of every size that a quad of elements can cut. */
Test(cuda_index, dropout2d_equals_the_reference, .timeout = 60) {
    struct step_block step = {.seed = 0x123456789abcdef, .step = 0x100000007};
    for (int side = 1; side < 12; side++)
        for (int n = 0; n < 3; n++) {
            struct heap heap = {0};
            struct tensor x = tensor_random(&heap, 1, 4, 3 * n, 5, 1, side),
                          y = tensor_like(&heap, &x);
            for (int op = OP_DROPOUT2D_FORWARD; op <= OP_DROPOUT2D_BACKWARD; op++)
                check_elementwise(
                    (enum op)op,
                    &(struct op_args){
                        .in = {x}, .out = {y}, .step = &step, .p.dropout = {.5f, 5, 63}},
                    n - 1 ? -1 : 0);
            heap_free(&heap);
        }
}

/* --- pools --- */

Test(cuda_index, pools_equal_the_reference, .timeout = 120) {
    static const int samples[] = {0, 1, 3, 17};
    for (int i = 0; i < 8; i++)
        for (int shape = 0; shape < 15; shape++) {
            struct heap heap = {0};
            int relu = i / 4, size = shape % 4 + 1, stride = shape / 4 + 1, h = 6 + shape % 2,
                w = 9 - shape % 3, n = samples[i % 4];
            struct tensor x = tensor_random(&heap, 1, 4, n, 3, h, w),
                          dy = tensor_random(&heap, 2, 4, n, 3, (h - size) / stride + 1,
                                             (w - size) / stride + 1);
            for (size_t j = 0; j < tensor_count(&x); j++)
                tensor_f32(&x)[j] = roundf(3 * tensor_f32(&x)[j]) / 2; /* many equal values */
            if (n) tensor_f32(&x)[1] = tensor_f32(&x)[w] = NAN;
            struct op_args cases[OP_COUNT] = {[OP_AVG_POOL_FORWARD] = {.in = {x}, .out = {dy}},
                                              [OP_AVG_POOL_BACKWARD] = {.in = {dy}, .out = {x}},
                                              [OP_MAX_POOL_FORWARD] = {.in = {x}, .out = {dy}},
                                              [OP_MAX_POOL_BACKWARD] = {.in = {x, dy}, .out = {x}}};
            if (relu) cases[OP_AVG_POOL_BACKWARD].in[1] = x;
            for (enum op op = OP_AVG_POOL_FORWARD; op <= OP_MAX_POOL_BACKWARD; op++)
                for (int g = 0; g < ODD_GRIDS; g++) {
                    struct op_args want = cases[op], got = cases[op];
                    want.p.pool = got.p.pool = (struct pool_args){size, stride, relu};
                    want.out[0] = tensor_like(&heap, &want.out[0]),
                    got.out[0] = tensor_like(&heap, &got.out[0]);
                    host_reference_kernels[op](&want);
                    run_pool(op, &got, odd_grids[g]);
                    expect_same(&got.out[0], &want.out[0], op_name(op), 10 * shape + g);
                }
            heap_free(&heap);
        }
}

Test(cuda_index, adaptive_pools_equal_the_reference, .timeout = 120) {
    static const int shapes[][5] = {/* n  h  w  p  q */
                                    {3, 7, 7, 1, 1},   {17, 28, 12, 1, 1}, {0, 3, 3, 2, 2},
                                    {2, 6, 9, 3, 3},   {1, 7, 5, 3, 4},    {5, 2, 3, 5, 3},
                                    {1, 13, 17, 5, 7}, {2, 1, 1, 4, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int g = 0; g < ODD_GRIDS; g++) {
            struct heap heap = {0};
            const int *s = shapes[i];
            struct tensor x = tensor_random(&heap, 1, 4, s[0], 3, s[1], s[2]),
                          y = tensor_random(&heap, 2, 4, s[0], 3, s[3], s[4]);
            for (size_t k = 0; k < tensor_count(&x); k++) /* many equal values, and some NaN */
                tensor_f32(&x)[k] = k % 11 == 5 ? NAN : roundf(3 * tensor_f32(&x)[k]) / 2;
            for (int k = 0; k < 4; k++) {
                static const enum op ops[] = {
                    OP_ADAPTIVE_AVG_POOL_FORWARD, OP_ADAPTIVE_AVG_POOL_BACKWARD,
                    OP_ADAPTIVE_MAX_POOL_FORWARD, OP_ADAPTIVE_MAX_POOL_BACKWARD};
                enum op op = ops[k];
                int back = k % 2;
                struct op_args want = {.in = {k == 1 ? y : x}}, got;
                if (k == 3) want.in[1] = y;
                got = want;
                want.out[0] = tensor_like(&heap, back ? &x : &y);
                got.out[0] = tensor_like(&heap, back ? &x : &y);
                host_reference_kernels[op](&want);
                run_pool(op, &got, odd_grids[g]);
                expect_same(&got.out[0], &want.out[0], op_name(op), (int)i);
            }
            heap_free(&heap);
        }
}

Test(cuda_index, pads_equal_the_reference, .timeout = 60) {
    static const int shapes[][7] = {/* n  h  w  p  q top left */
                                    {3, 7, 7, 9, 9, 1, 1},    {17, 8, 12, 8, 12, 0, 0},
                                    {0, 3, 3, 5, 5, 1, 1},    {2, 6, 9, 3, 3, -2, -6},
                                    {1, 7, 5, 13, 6, 6, -1},  {5, 2, 3, 5, 3, 0, 2},
                                    {1, 13, 17, 5, 30, -8, 9}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int g = 0; g < ODD_GRIDS; g++) {
            struct heap heap = {0};
            const int *s = shapes[i];
            struct tensor x = tensor_random(&heap, 1, 4, s[0], 3, s[1], s[2]),
                          y = tensor_new(&heap, DTYPE_F32, 4, s[0], 3, s[3], s[4]);
            struct op_args want = {.in = {x}, .out = {y}, .p.pad = {s[5], s[6], -1.5f}}, got = want;
            struct pad p;
            got.out[0] = tensor_like(&heap, &y);
            host_reference_kernels[OP_PAD](&want);
            cr_assert(pad_of(&got, &p));
            RUN_THREADS(k_pad, &p, odd_grids[g]);
            expect_same(&got.out[0], &want.out[0], "pad", (int)i);
            heap_free(&heap);
        }
}

Test(cuda_index, cat_equals_the_reference, .timeout = 60) {
    static const int shapes[][4] = {/* n k l i */ {3, 7, 1, 9}, {0, 1, 1, 2}, {17, 1, 30, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int g = 0; g < ODD_GRIDS; g++) {
            struct heap heap = {0};
            const int *s = shapes[i];
            struct tensor a = tensor_random(&heap, 1, 4, s[0], 3, s[1], s[3]),
                          b = tensor_random(&heap, 2, 4, s[0], 3, s[2], s[3]),
                          y = tensor_new(&heap, DTYPE_F32, 4, s[0], 3, s[1] + s[2], s[3]);
            struct op_args want = {.in = {a, b}, .out = {y}}, got = want;
            struct cat c;
            got.out[0] = tensor_like(&heap, &y);
            host_reference_kernels[OP_CAT](&want);
            cr_assert(cat_of(&got, &c));
            RUN_THREADS(k_cat, &c, odd_grids[g]);
            expect_same(&got.out[0], &want.out[0], "cat", (int)i);
            heap_free(&heap);
        }
}

/* --- logs --- */

Test(cuda_index, loss_sum_has_the_hosts_bits, .timeout = 60) {
    static const int rows[] = {0, 1, 2, 255, 256, 257, 1000};
    for (int i = 0; i < 7; i++) {
        struct heap heap = {0};
        struct step_block step = {.slot = 2};
        struct tensor loss = tensor_new(&heap, DTYPE_F64, 1, rows[i], 1, 1, 1),
                      hits = tensor_new(&heap, DTYPE_I32, 1, rows[i], 1, 1, 1);
        uint64_t seed = 3;
        for (int j = 0; j < rows[i]; j++) {
            ((double *)loss.data)[j] = exp(9 * (double)test_random(&seed)) / 3;
            ((int32_t *)hits.data)[j] = test_random(&seed) > 0;
        }
        struct op_args a[2];
        for (int j = 0; j < 2; j++) {
            a[j] = (struct op_args){.in = {loss, hits}, .step = &step, .p.loss = {.column = 1}};
            a[j].out[0] = tensor_new(&heap, DTYPE_F64, 2, 4, 3, 1, 1);
            a[j].out[1] = tensor_new(&heap, DTYPE_I64, 2, 4, 3, 1, 1);
        }
        host_reference_kernels[OP_LOSS_SUM](&a[0]);
        run_loss_sum(&a[1]);
        for (int j = 0; j < 2; j++)
            cr_assert(same_bits(&a[0].out[j], &a[1].out[j]), "%d rows, output %d", rows[i], j);
        heap_free(&heap);
    }
}

Test(cuda_index, hash_has_the_hosts_bits, .timeout = 60) {
    static const int sizes[] = {0, 1, 3, 255, 1023, HASH_ALONE, HASH_ALONE + 1, 70003};
    for (int i = 0; i < 8; i++)
        for (int skip = 0; skip < 2; skip++) {
            struct heap heap = {0};
            struct step_block step = {.slot = 1};
            struct tensor x = skewed(&heap, 8, sizes[i], skip);
            struct op_args a[2];
            const uint32_t blocks[] = {hash_blocks((size_t)sizes[i]), 1, 5};
            for (int g = 0; g < 3; g++) {
                for (int j = 0; j < 2; j++) {
                    a[j] = (struct op_args){.in = {x}, .step = &step, .p.hash = {2}};
                    a[j].out[0] = tensor_new(&heap, DTYPE_U64, 2, 3, 3, 1, 1);
                }
                host_reference_kernels[OP_HASH](&a[0]);
                run_hash(&a[1], blocks[g]);
                cr_assert(same_bits(&a[0].out[0], &a[1].out[0]), "%d elements, %u blocks", sizes[i],
                          blocks[g]);
            }
            heap_free(&heap);
        }
}
