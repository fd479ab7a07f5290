/* Every kernel of convolutions, linear layers and matmul as nvcc compiled it, also those that no
 * small shape chooses: each kind of product in each tile that it may have, small convolutions by
 * planes, weight gradients that are split. The bits are those of the text compiled as C++. Each
 * operand is an allocation of its own, so that an access beside it is found. */
#include "tests/harness/harness.h"

#ifndef CUDA_EMULATION
Test(ptx_tiles, needs_the_emulated_runtime) {
    cr_skip_test("make EMULATION=1 builds with it: docs/cuda.md");
}
#else
#include <unistd.h>

#include "device/cuda/kernels/algebra.h"
#include "device/cuda/kernels/launch.h"
#include "device/cuda/kernels/narrow.h"
#include "device/cuda/kernels/planes.h"
#include "tests/cuda/ptx_ran.h"
#include "tests/nn/layer.h"
#include "tests/stand_ins/cuda_emulation/use_ptx.h"

#define DONE(call) cr_assert_eq((call), cudaSuccess, "%s: %s", #call, cudaGetErrorName(call))

/* ---- memory of the GPU: the host reaches it too, here ---- */

static void on_gpu(struct tensor *t) {
    const void *from = t->data;
    if (!from) return;
    DONE(cudaMalloc(&t->data, tensor_bytes(t)));
    memcpy(t->data, from, tensor_bytes(t));
}

static struct op_args args_on_gpu(const struct op_args *a) {
    struct op_args there = *a;
    for (int i = 0; i < 3; i++)
        on_gpu(&there.in[i]);
    for (int i = 0; i < 2; i++)
        on_gpu(&there.out[i]);
    return there;
}

static void args_free(const struct op_args *there) {
    for (int i = 0; i < 3; i++)
        DONE(cudaFree(there->in[i].data));
    for (int i = 0; i < 2; i++)
        DONE(cudaFree(there->out[i].data));
}

/* ---- a kernel by its text, and by its PTX ---- */

struct one_launch {
    const void *kernel, *param;
    uint32_t blocks, threads;
};

static void start(const struct one_launch *l) {
    void *params[1] = {(void *)(uintptr_t)l->param};
    if (!l->kernel) return;
    DONE(cudaLaunchKernel(l->kernel, (dim3){l->blocks, 1, 1}, (dim3){l->threads, 1, 1}, params, 0,
                          NULL));
    DONE(cudaDeviceSynchronize());
}

/* Runs both launches twice, and compares what comes to lie in out[]. */
static void check_bits(const char *what, const struct op_args *there,
                       const struct one_launch l[2]) {
    struct heap heap = {0};
    struct tensor by_text[2];
    for (int ptx = 0; ptx < 2; ptx++) {
        for (int i = 0; i < 2; i++)
            if (there->out[i].data) memset(there->out[i].data, 0x7f, tensor_bytes(&there->out[i]));
        emulated_ptx_pause(!ptx);
        start(&l[0]);
        start(&l[1]);
        for (int i = 0; i < 2; i++) {
            const struct tensor *out = &there->out[i];
            if (!out->data) continue;
            if (ptx)
                cr_assert(same_bits(out, &by_text[i]), "%s: out[%d] has other bits", what, i);
            else
                by_text[i] = tensor_copy(&heap, out);
        }
    }
    heap_free(&heap);
}

/* The number of kernels before that of kind and tile, as product_kernel counts them. */
static int kernel_number(int kind, int tile) {
    int number = 0;
    for (int k = 0; k < PRODUCT_KINDS; k++)
        for (int t = 0; t < TILES; t++) {
            if (k == kind && t == tile) return number;
            number += tile_fits((enum product_kind)k, (enum tile)t);
        }
    return number;
}

static void check_planes(const char *what, const struct op_args *there, const struct product *p,
                         enum product_kind kind) {
    const int first = kernel_number(PRODUCT_KINDS, 0);
    struct planes q;
    if (!planes_of(p, kind, &q)) return;
    const struct one_launch l[2] = {
        {product_kernel(first + 2 * (kind != PRODUCT_CONV_FORWARD) + (p->k == 5)), &q,
         planes_blocks(&q), planes_threads(&q)},
        {NULL, NULL, 0, 0}};
    check_bits(what, there, l);
}

/* The weight gradient of one channel, and its splits added up. */
static void check_narrow(const char *what, const struct op_args *there, struct product *p,
                         enum product_kind kind) {
    const int first = kernel_number(PRODUCT_KINDS, 0);
    void *partial;
    if (!narrow_chosen(p, kind, 0)) return;
    narrow_grid(p, NULL, CUDA_WORKSPACE_BYTES);
    cr_assert_gt(p->splits, 1);
    DONE(cudaMalloc(&partial, sizeof(float) * p->splits * p->rows * p->cols));
    p->partial = partial;
    const struct one_launch l[2] = {
        {product_kernel(first + 6), p, p->row_tiles * p->splits, NARROW_THREADS},
        {product_kernel(first + 4), p, grid_for((size_t)p->rows * p->cols, SIMPLE_THREADS),
         SIMPLE_THREADS}};
    check_bits(what, there, l);
    DONE(cudaFree(partial));
}

/* One pass of a layer, in every way. */
static void check_pass(const struct layer *layer, enum pass pass) {
    struct heap heap = {0};
    enum op op = op_of(layer, pass);
    struct op_args here = launch_of(&heap, layer, pass), there = args_on_gpu(&here);
    enum product_kind kind;
    struct product p;
    char what[100];
    cr_assert(product_of(op, &there, &p, &kind));
    for (int tile = 0; tile < TILES; tile++) {
        void *partial = NULL;
        if (!tile_fits(kind, (enum tile)tile)) continue;
        product_grid(&p, kind, (enum tile)tile, NULL, CUDA_WORKSPACE_BYTES);
        if (p.splits > 1) DONE(cudaMalloc(&partial, sizeof(float) * p.splits * p.rows * p.cols));
        p.partial = partial;
        snprintf(what, sizeof what, "%s, kind %d, tile %d, %u splits", op_name(op), (int)kind, tile,
                 p.splits);
        const int folds = kernel_number(PRODUCT_KINDS, 0) + 4 + (kind != PRODUCT_CONV_WEIGHT);
        const struct one_launch l[2] = {
            {product_kernel(kernel_number((int)kind, tile)), &p,
             p.row_tiles * p.col_tiles * p.splits, (uint32_t)tile_threads(tile)},
            {p.splits > 1 ? product_kernel(folds) : NULL, &p,
             grid_for((size_t)p.rows * p.cols, SIMPLE_THREADS), SIMPLE_THREADS}};
        check_bits(what, &there, l);
        DONE(cudaFree(partial));
    }
    check_planes(op_name(op), &there, &p, kind);
    check_narrow(op_name(op), &there, &p, kind);
    args_free(&there);
    heap_free(&heap);
}

static void check_matmul(int turned) {
    enum { MATRICES = 2, ROWS = 67, COLUMNS = 35, DEPTH = 41 };
    struct heap heap = {0};
    const int a_turned = turned == 1, b_turned = turned == 2;
    struct op_args here = {.in = {tensor_random(&heap, 1, 3, MATRICES, a_turned ? DEPTH : ROWS,
                                                a_turned ? ROWS : DEPTH, 1),
                                  tensor_random(&heap, 2, 3, MATRICES, b_turned ? COLUMNS : DEPTH,
                                                b_turned ? DEPTH : COLUMNS, 1)},
                           .out = {heap_tensor(&heap, DTYPE_F32, 3, MATRICES, ROWS, COLUMNS, 1)},
                           .p.matmul = {a_turned, b_turned}};
    struct op_args there = args_on_gpu(&here);
    for (int tile = 0; tile < TILES; tile++) {
        struct matmul m;
        enum product_kind kind;
        char what[40];
        if (tile == TILE_WIDE) continue;
        cr_assert(matmul_of(&there, &m, &kind));
        size_t blocks = matmul_grid(&m, kind, (enum tile)tile);
        const int number =
            (int)(kind - PRODUCT_LINEAR_KK) * (TILES - 1) + tile - (tile > TILE_WIDE);
        const struct one_launch l[2] = {
            {algebra_kernel(number), &m, (uint32_t)blocks, (uint32_t)tile_threads(tile)},
            {NULL, NULL, 0, 0}};
        snprintf(what, sizeof what, "matmul, turned %d, tile %d", turned, tile);
        check_bits(what, &there, l);
    }
    args_free(&there);
    heap_free(&heap);
}

Test(ptx_tiles, every_product_has_the_bits_of_its_text, .timeout = 120) {
    /*                            n  C   H   W   O  k  s  p */
    static const int convs[][8] = {{3, 5, 9, 11, 20, 3, 1, 1},   {2, 3, 12, 10, 7, 5, 1, 2},
                                   {2, 4, 9, 9, 33, 3, 2, 1},    {1, 34, 13, 13, 34, 5, 1, 0},
                                   {1, 32, 12, 12, 32, 3, 1, 0}, {5, 1, 9, 8, 23, 3, 1, 1}};
    if (access(PTX_FOLDER, R_OK)) cr_skip_test("no nvcc here: there is no PTX");
    emulated_ptx_use(PTX_FOLDER);
    for (int i = 0; i < 8; i++) {
        struct heap heap = {0};
        struct layer layer =
            i < 6 ? conv_layer(&heap, convs[i]) : linear_layer(&heap, 150, 43, 37, i == 7);
        for (enum pass pass = FORWARD; pass < PASSES; pass++)
            check_pass(&layer, pass);
        heap_free(&heap);
    }
    for (int turned = 0; turned < 3; turned++)
        check_matmul(turned);
    cr_expect_gt(expect_all_ran(1, emulated_ptx_ran), 40);
}
#endif
