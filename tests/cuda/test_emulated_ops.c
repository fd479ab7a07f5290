/* Every op, launched on a GPU whose runtime is emulated: the operands are copied there, the kernel
 * is started by the code that starts it on hardware, and the result is copied back and compared
 * with the host's reference. (The arithmetic of the kernels over many more shapes, tiles and grids:
 * tests/cuda/test_index*.c.) The host cannot reach device memory here. */
#include "tests/harness/harness.h"

#ifndef CUDA_EMULATION
Test(emulated_ops, needs_the_emulated_runtime) {
    cr_skip_test("make EMULATION=1 builds with it: docs/cuda.md");
}
#else
#include <unistd.h>

#include "tests/cuda/emulated_whole.h"
#include "tests/stand_ins/ptx/library.h"

/* ---- products ---- */

static void try_conv(struct bed *b, const int s[8]) { /* n C H W O k stride padding */
    int p = (s[2] + 2 * s[7] - s[5]) / s[6] + 1, q = (s[3] + 2 * s[7] - s[5]) / s[6] + 1;
    struct tensor x = tensor_random(&b->heap, 1, 4, s[0], s[1], s[2], s[3]),
                  w = tensor_random(&b->heap, 2, 4, s[4], s[1], s[5], s[5]),
                  bias = tensor_random(&b->heap, 3, 1, s[4], 1, 1, 1),
                  dy = tensor_random(&b->heap, 4, 4, s[0], s[4], p, q);
    struct op_args a = {.in = {x, w, bias}, .out = {dy}, .p.conv = {s[6], s[7]}};
    check_product(b, OP_CONV2D_FORWARD, &a, tensor_count(&w) + 1);
    a = (struct op_args){.in = {dy, w}, .out = {x}, .p.conv = {s[6], s[7]}};
    check_product(b, OP_CONV2D_BACKWARD_DATA, &a, tensor_count(&w));
    a = (struct op_args){.in = {x, dy}, .out = {w, bias}, .p.conv = {s[6], s[7]}};
    check_product(b, OP_CONV2D_BACKWARD_WEIGHT, &a, tensor_count(&dy));
}

static void try_linear(struct bed *b, int n, int inputs, int outputs, int turned) {
    struct tensor x = tensor_random(&b->heap, 1, 2, n, inputs, 1, 1),
                  dy = tensor_random(&b->heap, 4, 2, n, outputs, 1, 1),
                  w = tensor_random(&b->heap, 2, 2, turned ? inputs : outputs,
                                    turned ? outputs : inputs, 1, 1),
                  bias = tensor_random(&b->heap, 3, 1, outputs, 1, 1, 1);
    struct op_args a = {.in = {x, w, bias}, .out = {dy}, .p.linear = {turned}};
    check_product(b, OP_LINEAR_FORWARD, &a, (size_t)inputs + 1);
    a = (struct op_args){.in = {dy, w}, .out = {x}, .p.linear = {turned}};
    check_product(b, OP_LINEAR_BACKWARD_DATA, &a, (size_t)outputs);
    a = (struct op_args){.in = {x, dy}, .out = {w, bias}, .p.linear = {turned}};
    check_product(b, OP_LINEAR_BACKWARD_WEIGHT, &a, (size_t)n);
}

/* ---- the rest ---- */

static void try_elementwise(struct bed *b, int count) {
    struct step_block step = {
        .seed = 99, .step = 3, .learning_rate = .37f, .first_update = count % 2};
    struct tensor x = tensor_random(&b->heap, 1, 1, count, 1, 1, 1),
                  y = tensor_random(&b->heap, 2, 1, count, 1, 1, 1),
                  m = tensor_random(&b->heap, 3, 1, count, 1, 1, 1);
    check(b, OP_RELU_FORWARD, &(struct op_args){.in = {x}, .out = {y}}, 0, NULL);
    check(b, OP_RELU_BACKWARD, &(struct op_args){.in = {x, y}, .out = {m}}, 0, NULL);
    static const enum op of_one[] = {OP_NEGATE, OP_TANH_FORWARD, OP_SIGMOID_FORWARD},
                         of_two[] = {OP_ADD_FORWARD, OP_SUBTRACT_FORWARD, OP_MULTIPLY_FORWARD,
                                     OP_TANH_BACKWARD, OP_SIGMOID_BACKWARD};
    for (int k = 0; k < 3; k++)
        check(b, of_one[k], &(struct op_args){.in = {x}, .out = {m}}, 0, NULL);
    for (int k = 0; k < 5; k++)
        check(b, of_two[k], &(struct op_args){.in = {x, y}, .out = {m}}, 0, NULL);
    check(b, OP_DROPOUT_FORWARD,
          &(struct op_args){.in = {x}, .out = {y}, .step = &step, .p.dropout = {.25f, 1, 2}}, 0,
          NULL);
    check(b, OP_DROPOUT_BACKWARD,
          &(struct op_args){.in = {x}, .out = {y}, .step = &step, .p.dropout = {.5f, 1, 2}}, 0,
          NULL);
    check(b, OP_ADD, &(struct op_args){.in = {x}, .out = {y}}, 0, NULL);
    check(b, OP_FILL, &(struct op_args){.out = {y}, .p.fill = {3.5f}}, 0, NULL);
    check(b, OP_SCALE, &(struct op_args){.out = {y}, .p.fill = {1 / 3.0f}}, 0, NULL);
    const struct sgd_args sgd[] = {
        {.momentum = 0}, {.9f, .013f, 0, 0}, {.9f, .013f, 0, 1}, {.9f, 0, .3, 0}};
    struct op_args a = {.in = {x}, .out = {y}, .step = &step};
    for (int i = 0; i < 4; i++, a.out[1] = m) {
        a.p.sgd = sgd[i];
        check(b, OP_SGD, &a, 0, NULL);
    }
    struct tensor pairs = a.out[1] = tensor_random(&b->heap, 4, 2, count, 2, 1, 1);
    for (size_t i = 0; i < tensor_count(&pairs); i++)
        tensor_f32(&pairs)[i] = fabsf(tensor_f32(&pairs)[i]);
    step.adam_rate = .7f, step.adam_root = .31f, step.adam_keep = .9951f;
    a.p.adadelta = (struct adadelta_args){0, .9, 1e-6};
    check(b, OP_ADADELTA, &a, 0, NULL);
    for (int decoupled = 0; decoupled < 2; decoupled++) {
        a.p.adam = (struct adam_args){.013f, decoupled, .9, .999, 1e-8};
        check(b, OP_ADAM, &a, 0, NULL);
    }
    step.slot = 1;
    struct tensor hashes = tensor_new(&b->heap, DTYPE_U64, 2, 3, 3, 1, 1);
    a = (struct op_args){.in = {x}, .out = {hashes}, .step = &step, .p.hash = {2}};
    struct tensor got[2];
    run_there(b, OP_HASH, &a, got);
    host_reference_kernels[OP_HASH](&a);
    cr_assert(same_bits(&got[0], &hashes), "hash of %d", count);
    b->tried[OP_HASH]++;
}

static void try_pool(struct bed *b, int n, int size, int stride, int relu) {
    enum { H = 9, W = 7 };
    const struct pool_args p = {size, stride, relu};
    struct tensor x = tensor_random(&b->heap, 1, 4, n, 3, H, W),
                  y = tensor_random(&b->heap, 2, 4, n, 3, (H - size) / stride + 1,
                                    (W - size) / stride + 1);
    for (size_t i = 0; i < tensor_count(&x); i++) /* many equal values */
        tensor_f32(&x)[i] = roundf(3 * tensor_f32(&x)[i]) / 2;
    struct op_args back = {.in = {y}, .out = {tensor_like(&b->heap, &x)}, .p.pool = p};
    if (relu) back.in[1] = x;
    check(b, OP_AVG_POOL_FORWARD, &(struct op_args){.in = {x}, .out = {y}, .p.pool = p}, 0, NULL);
    check(b, OP_AVG_POOL_BACKWARD, &back, 0, NULL);
    check(b, OP_MAX_POOL_FORWARD, &(struct op_args){.in = {x}, .out = {y}, .p.pool = p}, 0, NULL);
    back.in[0] = x, back.in[1] = y;
    check(b, OP_MAX_POOL_BACKWARD, &back, 0, NULL);
}

static void try_adaptive_pool(struct bed *b, int n, int rows, int columns) {
    struct tensor x = tensor_random(&b->heap, 1, 4, n, 3, 9, 7),
                  y = tensor_random(&b->heap, 2, 4, n, 3, rows, columns);
    check(b, OP_ADAPTIVE_AVG_POOL_FORWARD, &(struct op_args){.in = {x}, .out = {y}}, 0, NULL);
    check(b, OP_ADAPTIVE_AVG_POOL_BACKWARD, &(struct op_args){.in = {y}, .out = {x}}, 0, NULL);
    struct tensor dx = tensor_like(&b->heap, &x);
    check(b, OP_PAD, &(struct op_args){.in = {x}, .out = {y}, .p.pad = {-2, -1, 3}}, 0, NULL);
    check(b, OP_PAD, &(struct op_args){.in = {y}, .out = {dx}, .p.pad = {2, 1, 0}}, 0, NULL);
    check(b, OP_CAT,
          &(struct op_args){.in = {y, y},
                            .out = {tensor_new(&b->heap, DTYPE_F32, 4, n, 3, 2 * rows, columns)}},
          0, NULL);
    check(b, OP_ADAPTIVE_MAX_POOL_FORWARD, &(struct op_args){.in = {x}, .out = {y}}, 0, NULL);
    check(b, OP_ADAPTIVE_MAX_POOL_BACKWARD, &(struct op_args){.in = {x, y}, .out = {dx}}, 0, NULL);
}

static void try_dropout2d(struct bed *b, int n, int channels, int side) {
    struct step_block step = {.seed = 99, .step = 3};
    struct tensor x = tensor_random(&b->heap, 1, 4, n, channels, side, side);
    struct op_args a = {
        .in = {x}, .out = {tensor_like(&b->heap, &x)}, .step = &step, .p.dropout = {.4f, 1, 2}};
    check(b, OP_DROPOUT2D_FORWARD, &a, 0, NULL);
    check(b, OP_DROPOUT2D_BACKWARD, &a, 0, NULL);
}

/* Sums of doubles in another order: rounded to float they differ by one unit in the last place at
 * most. */
static void try_rows(struct bed *b, int rows, int classes) {
    static const double ORDER = 1e-12, LAST_PLACE = 0x1p-23;
    struct step_block step = {.weight = 1.0f / 96, .slot = 2};
    struct tensor x = tensor_random(&b->heap, 1, 2, rows, classes, 1, 1),
                  y = tensor_random(&b->heap, 2, 2, rows, classes, 1, 1),
                  labels = tensor_new(&b->heap, DTYPE_I32, 1, rows, 1, 1, 1),
                  loss = tensor_new(&b->heap, DTYPE_F64, 1, rows, 1, 1, 1),
                  hits = tensor_new(&b->heap, DTYPE_I32, 1, rows, 1, 1, 1),
                  dloss = tensor_random(&b->heap, 3, 1, rows, 1, 1, 1),
                  sums = tensor_new(&b->heap, DTYPE_F64, 2, 4, 3, 1, 1),
                  counts = tensor_new(&b->heap, DTYPE_I64, 2, 4, 3, 1, 1);
    for (int i = 0; i < rows; i++)
        ((int32_t *)labels.data)[i] = i * 7 % classes;
    memset(counts.data, 0, tensor_bytes(&counts));
    struct tensor p = tensor_like(&b->heap, &x);
    check(b, OP_SOFTMAX_FORWARD, &(struct op_args){.in = {x}, .out = {p}}, LAST_PLACE, NULL);
    host_reference_kernels[OP_SOFTMAX_FORWARD](&(struct op_args){.in = {x}, .out = {p}});
    check(b, OP_SOFTMAX_BACKWARD,
          &(struct op_args){.in = {p, y}, .out = {tensor_like(&b->heap, &x)}}, LAST_PLACE, NULL);
    check(b, OP_LOG_SOFTMAX_FORWARD, &(struct op_args){.in = {x}, .out = {y}}, LAST_PLACE, NULL);
    struct tensor dx = tensor_like(&b->heap, &x);
    check(b, OP_LOG_SOFTMAX_BACKWARD, &(struct op_args){.in = {x, y}, .out = {dx}}, 4 * LAST_PLACE,
          NULL);
    struct op_args a = {.in = {x, labels},
                        .out = {loss, hits},
                        .step = &step,
                        .p.loss = {.reduction = REDUCE_MEAN, .column = 1}};
    check(b, OP_NLL_FORWARD, &a, 0, NULL);
    a.p.loss.smoothing = .2;
    check(b, OP_CROSS_ENTROPY_FORWARD, &a, ORDER, NULL);
    a.p.loss.smoothing = 0;
    check(b, OP_CROSS_ENTROPY_FORWARD, &a, ORDER, NULL);
    host_reference_kernels[OP_CROSS_ENTROPY_FORWARD](&a);
    check(b, OP_LOSS_SUM,
          &(struct op_args){
              .in = {loss, hits}, .out = {sums, counts}, .step = &step, .p.loss = {.column = 1}},
          0, NULL);
    a = (struct op_args){
        .in = {x, labels, dloss}, .out = {y}, .step = &step, .p.loss = {.reduction = REDUCE_NONE}};
    check(b, OP_NLL_BACKWARD, &a, 0, NULL);
    check(b, OP_CROSS_ENTROPY_BACKWARD, &a, LAST_PLACE, NULL);
    a.p.loss.smoothing = .2;
    check(b, OP_CROSS_ENTROPY_BACKWARD, &a, LAST_PLACE, NULL);
    a.p.loss.smoothing = 0;
    a.in[1] = dx;
    check(b, OP_MSE_BACKWARD, &a, 0, NULL);
    a = (struct op_args){.in = {x, dx}, .out = {loss, hits}};
    check(b, OP_MSE_FORWARD, &a, ORDER, NULL);
}

/* Sums of doubles in another order, moments and sums of another mean; all else is equal. */
static void try_norm(struct bed *b, int n, int channels, int height, int width) {
    static const double ORDER = 1e-12;
    const struct norm_args norm = {1e-5, 0.1, 0}, cumulative = {1e-5, -1, 0};
    struct heap *h = &b->heap;
    struct tensor x = tensor_random(h, 1, 4, n, channels, height, width),
                  dy = tensor_random(h, 2, 4, n, channels, height, width),
                  w = tensor_random(h, 3, 1, channels, 1, 1, 1),
                  bias = tensor_random(h, 4, 1, channels, 1, 1, 1),
                  running = tensor_random(h, 5, 2, 2, channels, 1, 1),
                  batches = tensor_new(h, DTYPE_I64, 1, 1, 1, 1, 1),
                  parts = tensor_new(h, DTYPE_F64, 3, 3, 3, channels, 1),
                  moments = tensor_new(h, DTYPE_F64, 2, 3, channels, 1, 1),
                  sums = tensor_new(h, DTYPE_F64, 2, 2, channels, 1, 1),
                  two = tensor_new(h, DTYPE_F32, 2, 2, channels, 1, 1),
                  four = tensor_new(h, DTYPE_F32, 2, 4, channels, 1, 1), dw = tensor_like(h, &w);
    *(int64_t *)batches.data = 6;
    for (int s = 0; s < 3; s++) { /* the second part is empty */
        struct tensor part = moments, half = x;
        part.data = (double *)parts.data + (size_t)s * 3 * (size_t)channels;
        half.dims[0] = s == 1 ? 0 : n;
        if (s == 2) half.data = dy.data;
        host_reference_kernels[OP_BATCH_NORM_MOMENTS](
            &(struct op_args){.in = {half}, .out = {part}});
    }
    check(b, OP_BATCH_NORM_MERGE, &(struct op_args){.in = {parts}, .out = {moments}}, 0, NULL);
    struct tensor pairs = parts; /* (3,3,C) read as (3,2,C) */
    pairs.dims[1] = 2;
    check(b, OP_BATCH_NORM_TOTAL, &(struct op_args){.in = {pairs}, .out = {sums}}, 0, NULL);
    check(b, OP_BATCH_NORM_OF_RUNNING, &(struct op_args){.in = {running}, .out = {moments}}, 0,
          NULL);
    struct op_args a = {.in = {x}, .out = {moments}};
    check(b, OP_BATCH_NORM_MOMENTS, &a, ORDER, NULL);
    host_reference_kernels[OP_BATCH_NORM_MOMENTS](&a);
    a = (struct op_args){.in = {moments}, .out = {running, batches}};
    a.p.norm = n % 2 ? norm : cumulative;
    check(b, OP_BATCH_NORM_TRACK, &a, 0, NULL);
    a = (struct op_args){.in = {moments, w, bias}, .out = {two}, .p.norm = norm};
    check(b, OP_BATCH_NORM_FACTORS, &a, 0, NULL);
    host_reference_kernels[OP_BATCH_NORM_FACTORS](&a);
    for (int kind = 0; kind < 4; kind++) {
        a = (struct op_args){.in = {x, two}, .out = {x}, .p.norm.relu = kind % 2};
        if (kind > 1) a.in[2] = dy;
        check(b, OP_BATCH_NORM_FORWARD, &a, 0, NULL);
    }
    a = (struct op_args){.in = {x, dy, moments}, .out = {sums}};
    check(b, OP_BATCH_NORM_SUMS, &a, ORDER, NULL);
    host_reference_kernels[OP_BATCH_NORM_SUMS](&a);
    check(b, OP_BATCH_NORM_BACKWARD_WEIGHT,
          &(struct op_args){.in = {sums, moments}, .out = {dw, bias}, .p.norm = norm}, 0, NULL);
    a = (struct op_args){.in = {sums, moments, w}, .out = {four}, .p.norm = norm};
    check(b, OP_BATCH_NORM_BACKWARD_FACTORS, &a, 0, NULL);
    host_reference_kernels[OP_BATCH_NORM_BACKWARD_FACTORS](&a);
    check(b, OP_BATCH_NORM_BACKWARD_DATA,
          &(struct op_args){.in = {x, dy, four}, .out = {tensor_like(h, &x)}}, 0, NULL);
}

static void try_gather(struct bed *b, int rows, int n) {
    uint64_t seed = 5;
    struct tensor images = tensor_new(&b->heap, DTYPE_U8, 4, rows, 2, 5, 7),
                  labels = tensor_new(&b->heap, DTYPE_U8, 1, rows, 1, 1, 1),
                  index = tensor_new(&b->heap, DTYPE_I32, 1, n, 1, 1, 1),
                  x = tensor_new(&b->heap, DTYPE_F32, 4, n, 2, 5, 7),
                  of_x = tensor_new(&b->heap, DTYPE_I32, 1, n, 1, 1, 1);
    for (size_t i = 0; i < tensor_count(&images); i++)
        ((uint8_t *)images.data)[i] = (uint8_t)(128 * (test_random(&seed) + 1));
    for (int i = 0; i < rows; i++)
        ((uint8_t *)labels.data)[i] = (uint8_t)(i % 10);
    for (int i = 0; i < n; i++)
        ((int32_t *)index.data)[i] = i * 7 % rows;
    struct op_args a = {.in = {images, labels, index}, .out = {x, of_x}};
    a.p.gather.mean = 0.25f, a.p.gather.std = n % 2 ? 0 : 0.5f;
    check(b, OP_GATHER_SAMPLES, &a, 0, NULL);
    if (n) ((int32_t *)index.data)[0] = rows; /* there is none */
    a = (struct op_args){.in = {tensor_random(&b->heap, 7, 4, rows, 2, 5, 7), index}, .out = {x}};
    check(b, OP_GATHER_ROWS, &a, 0, NULL);
    /* part of an order: the last row lies behind its end */
    struct step_block step = {.first = n / 2 + 1};
    x.dims[0] = of_x.dims[0] = n - n / 2;
    a = (struct op_args){.in = {images, labels, index}, .out = {x, of_x}, .step = &step};
    check(b, OP_GATHER_SAMPLES, &a, 0, NULL);
    a = (struct op_args){.in = {a.in[0], index}, .out = {x}, .step = &step};
    a.in[0] = tensor_random(&b->heap, 7, 4, rows, 2, 5, 7);
    check(b, OP_GATHER_ROWS, &a, 0, NULL);
}

static void products(struct bed *b) {
    static const int convs[][8] = {{1, 1, 1, 1, 1, 1, 1, 0},
                                   {5, 1, 14, 14, 6, 3, 1, 0},
                                   {3, 3, 9, 11, 4, 5, 1, 2},
                                   {2, 2, 9, 14, 40, 5, 2, 2}};
    static const int linears[][4] = {{1, 1, 1, 0}, {7, 33, 10, 0}, {70, 150, 65, 1}};
    for (int i = 0; i < 4; i++) {
        try_conv(b, convs[i]);
        heap_free(&b->heap);
    }
    for (int i = 0; i < 3; i++) {
        try_linear(b, linears[i][0], linears[i][1], linears[i][2], linears[i][3]);
        heap_free(&b->heap);
    }
}

static void others(struct bed *b) {
    static const int counts[] = {1, 5, 1023, 4099};
    for (int i = 0; i < 4; i++) {
        try_elementwise(b, counts[i]);
        try_activations(b, counts[i]);
        heap_free(&b->heap);
    }
    for (int i = 1; i < 4; i++) {
        try_pool(b, 2 * i - 1, i, i % 2 + 1, i == 3);
        try_pool(b, 2 * i, i, i, i != 3);
        try_dropout2d(b, 2 * i, 7, i);
        heap_free(&b->heap);
        try_adaptive_pool(b, 5 * i, 2 * i - 1, 5 * i - 4);
        heap_free(&b->heap);
        try_rows(b, 20 * i - 19, 11 * i - 10);
        try_gather(b, 30, 13 * i - 12);
        try_norm(b, 3 * i - 1, 5 * i - 4, 2 * i, 9 - i);
        heap_free(&b->heap);
        try_algebra(b, 5 * i - 3, 7 * i, 30 * i - 29, 40 * i - 39);
        heap_free(&b->heap);
        try_layer_norm(b, 10 * i - 9, i * i, 2 * i - 1, 7 * i);
        try_layer_norm(b, 11 * i, 1, 1, 30 * i + 3);
        heap_free(&b->heap);
    }
}

static void try_all(struct bed *b, int with_products) {
    struct device_config config = test_config(DEVICE_CUDA, 0);
    config.memory_bytes = 96 << 20;
    MUST(device_open(&b->device, &config));
    if (with_products) products(b);
    others(b);
    device_close(b->device);
}

Test(emulated_ops, every_op_equals_the_reference, .timeout = 120) {
    setenv("EMULATED_CUDA_GUARD", "1", 1);
    struct bed b = {.device = NULL};
    try_all(&b, 1);
    for (int op = 0; op < OP_COUNT; op++)
        cr_expect(b.tried[op] || op == OP_TO_N16 || op == OP_TO_PLAIN, "%s was not tried",
                  op_name((enum op)op));
}

/* Every op from the PTX that nvcc makes of its kernels: within the bounds of the reference too, and
 * with the bits of the text. */
static void from_ptx(const char *folder, const char *capability) {
    struct bed b = {.ptx = 1};
    char products[sizeof PTX_FOLDER + 40];
    if (access(folder, R_OK)) cr_skip_test("no nvcc here: there is no PTX");
    snprintf(products, sizeof products, "%s/product.ptx", folder);
    setenv("EMULATED_CAPABILITY", capability, 1);
    emulated_ptx_use(folder);
    try_all(&b, access(products, R_OK) == 0);
    cr_expect(emulated_ptx_launches() > 300, "%lu launches ran PTX", emulated_ptx_launches());
}

Test(emulated_ops, every_op_has_the_same_bits_from_ptx, .timeout = 120) {
    from_ptx(PTX_FOLDER, "90");
}

/* What nvcc makes for GPUs before Hopper. Convolutions and linear layers take long to compile: they
 * are run if somebody has made them (make EMULATION=1 ptx-80). */
Test(emulated_ops, every_op_has_the_same_bits_from_ptx_of_older_gpus, .timeout = 120) {
    from_ptx(PTX_FOLDER "/80", "80");
}
#endif
