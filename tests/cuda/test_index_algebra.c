/* The CUDA kernels of matmul, sums, their gradient, that of an embedding, the order of
 * dimensions and norms of rows, run on the host over shapes and grids that fit nothing, compared
 * with the reference. */
#include "base/error.h"
#include "device/cuda/kernels/algebra.h"
#include "device/cuda/kernels/layer_norm.h"
#include "tests/cuda/index.h"
#include "tests/nn/layer.h"

struct matmul_call {
    int kind, tile;
    const struct matmul *m;
};

static void matmul_block(const void *param, void *shared, struct place at) {
    const struct matmul_call *c = param;
    k_matmul(c->kind, c->tile, c->m, shared, at);
}

/* Every tile has the same bits, but for that of tensor cores. */
static void check_matmul(const int s[4], int turned) { /* matrices, rows, columns, depth */
    struct heap heap = {0};
    struct matmul_case c = matmul_case(&heap, s, turned);
    struct op_args a = c.args;
    struct tensor first = {.data = NULL};
    for (int tile = TILE_LARGE; tile < TILES; tile++) {
        struct matmul m;
        enum product_kind kind;
        char line[80];
        if (tile == TILE_WIDE) continue;
        a.out[0] = tensor_like(&heap, &c.want);
        cr_assert_eq(op_check(OP_MATMUL, &a), OK);
        cr_assert(matmul_of(&a, &m, &kind));
        struct grid grid = {(uint32_t)matmul_grid(&m, kind, (enum tile)tile),
                            (uint32_t)tile_threads(tile)};
        cr_assert_eq(m.p.splits, 1);
        struct matmul_call call = {(int)kind, tile, &m};
        gpu_run_blocks(matmul_block, &call, sizeof(struct product_shared), grid);
        snprintf(line, sizeof line, "matmul %d x %d x %d x %d, turned %d, tile %d", s[0], s[1],
                 s[2], s[3], turned, tile);
        expect_near(line, &a.out[0], &c.want, &c.size,
                    rounding((size_t)s[3]) + (tile == TILE_TF32 ? TF32_PRODUCT : 0));
        if (!first.data) first = a.out[0];
        cr_assert(tile == TILE_TF32 || same_bits(&a.out[0], &first), "%s: other bits", line);
    }
    heap_free(&heap);
}

Test(cuda_index_algebra, matmul_equals_the_reference, .timeout = 120) {
    static const int shapes[][4] = {{1, 1, 1, 1},    {3, 2, 5, 7},     {0, 3, 4, 5},
                                    {2, 17, 66, 40}, {4, 65, 33, 130}, {1, 70, 3, 300}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int turned = 0; turned < 3; turned++)
            check_matmul(shapes[i], turned);
}

/* Sums of at most 1100 doubles in another order, rounded to float: one unit in the last place. */
Test(cuda_index_algebra, sums_equal_the_reference, .timeout = 120) {
    static const int shapes[][3] = {{1, 1, 1},   {1, 1100, 1}, {40, 9, 1}, {3, 300, 33},
                                    {5, 7, 100}, {0, 3, 2},    {1, 2, 32}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int mean = 0; mean < 2; mean++) {
            const int *s = shapes[i];
            struct heap heap = {0};
            struct op_args a = {.in = {tensor_random(&heap, 1, 3, s[0], s[1], s[2], 1)},
                                .out = {tensor_new(&heap, DTYPE_F32, 2, s[0], s[2], 1, 1)},
                                .p.sum.divide = mean ? s[1] : 1};
            struct tensor want = a.out[0];
            host_reference_kernels[OP_SUM](&a);
            for (uint32_t blocks = 1; blocks < 6; blocks += 2) {
                a.out[0] = tensor_like(&heap, &want);
                struct sum_over sum = sum_over_of(&a);
                struct grid grid = {blocks, SUM_OVER_THREADS};
                RUN_BLOCKS(k_sum_over, &sum, struct sum_over_shared, grid);
                for (size_t e = 0; e < tensor_count(&want); e++) {
                    double g = (double)tensor_f32(&a.out[0])[e], w = (double)tensor_f32(&want)[e];
                    cr_assert(fabs(g - w) <= 0x1p-23 * fabs(w) + 1e-12, "%g, not %g", g, w);
                }
            }
            heap_free(&heap);
        }
}

Test(cuda_index_algebra, spread_and_embedding_have_the_references_bits, .timeout = 60) {
    static const int shapes[][3] = {{1, 1, 1}, {3, 7, 5}, {40, 9, 1}, {0, 4, 3}, {2, 1, 65}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int g = 0; g < ODD_GRIDS; g++) {
            const int *s = shapes[i];
            struct heap heap = {0};
            struct tensor dy = tensor_random(&heap, 1, 2, s[0], s[2], 1, 1),
                          dx = tensor_new(&heap, DTYPE_F32, 3, s[0], s[1], s[2], 1),
                          dw = tensor_new(&heap, DTYPE_F32, 2, s[1], s[2], 1, 1),
                          index = tensor_new(&heap, DTYPE_I32, 1, s[0], 1, 1, 1);
            struct op_args a = {.in = {dy}, .out = {dx}, .p.sum.divide = s[1]};
            struct spread spread;
            cr_assert(spread_of(&a, &spread));
            RUN_THREADS(k_spread, &spread, odd_grids[g]);
            a.out[0] = tensor_like(&heap, &dx);
            host_reference_kernels[OP_SPREAD](&a);
            cr_assert(same_bits(&a.out[0], &dx), "spread %zu, grid %d", i, g);
            for (int n = 0; n < s[0]; n++)
                ((int32_t *)index.data)[n] = n * 5 % (s[1] + 2) - 1;
            a = (struct op_args){.in = {dy, index}, .out = {dw}};
            struct embedding embedding;
            cr_assert(embedding_of(&a, &embedding));
            RUN_THREADS(k_embedding_backward, &embedding, odd_grids[g]);
            a.out[0] = tensor_like(&heap, &dw);
            host_reference_kernels[OP_EMBEDDING_BACKWARD](&a);
            cr_assert(same_bits(&a.out[0], &dw), "embedding %zu, grid %d", i, g);
            heap_free(&heap);
        }
}

Test(cuda_index_algebra, permute_equals_the_reference, .timeout = 60) {
    static const struct {
        int rank, dims[4], order[4];
    } cases[] = {{1, {70, 1, 1, 1}, {0}},         {2, {3, 130, 1, 1}, {1, 0}},
                 {3, {5, 7, 9, 1}, {2, 0, 1}},    {3, {0, 7, 9, 1}, {0, 2, 1}},
                 {4, {3, 4, 5, 6}, {0, 2, 1, 3}}, {4, {3, 4, 5, 6}, {3, 1, 0, 2}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int g = 0; g < ODD_GRIDS; g++) {
            const int *s = cases[i].dims, *order = cases[i].order;
            struct heap heap = {0};
            struct op_args a = {
                .in = {tensor_random(&heap, 1, cases[i].rank, s[0], s[1], s[2], s[3])}};
            int to[4] = {1, 1, 1, 1};
            for (int k = 0; k < cases[i].rank; k++)
                to[k] = s[order[k]], a.p.permute.order[k] = order[k];
            a.out[0] = tensor_new(&heap, DTYPE_F32, cases[i].rank, to[0], to[1], to[2], to[3]);
            cr_assert_eq(op_check(OP_PERMUTE, &a), OK, "%s", error_message());
            struct permute permute;
            struct tensor got = a.out[0];
            cr_assert(permute_of(&a, &permute));
            RUN_THREADS(k_permute, &permute, odd_grids[g]);
            a.out[0] = tensor_like(&heap, &got);
            host_reference_kernels[OP_PERMUTE](&a);
            cr_assert(same_bits(&a.out[0], &got), "order %zu, grid %d", i, g);
            heap_free(&heap);
        }
}

/* Sums of doubles in another order, rounded to float: one unit in the last place of numbers that
 * are 10 at most. */
static void expect_close(const char *what, const struct tensor *got, const struct tensor *want) {
    for (size_t e = 0; e < tensor_count(want); e++) {
        double g = (double)tensor_f32(got)[e], w = (double)tensor_f32(want)[e];
        cr_assert(fabs(g - w) <= 0x1p-23 * fabs(w) + 1e-12, "%s[%zu] is %g, not %g", what, e, g, w);
    }
}

Test(cuda_index_algebra, layer_norm_equals_the_reference, .timeout = 60) {
    static const int shapes[][5] = {/* rows, length, groups, neighbours, are there weights? */
                                    {1, 1, 1, 1, 1},   {7, 33, 1, 1, 1},  {9, 64, 1, 1, 0},
                                    {5, 300, 1, 1, 1}, {12, 30, 3, 5, 1}, {6, 96, 2, 96, 1},
                                    {0, 9, 1, 1, 1},   {600, 3, 1, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint32_t blocks = 1; blocks < 6; blocks += 2) {
            const int *s = shapes[i];
            int weights = s[2] * (s[1] / s[3]);
            struct heap heap = {0};
            struct grid rows_grid = {blocks, NORM_ROW_THREADS},
                        weights_grid = {blocks, NORM_WEIGHT_THREADS};
            struct tensor x = tensor_random(&heap, 1, 2, s[0], s[1], 1, 1),
                          dy = tensor_random(&heap, 2, 2, s[0], s[1], 1, 1),
                          y = tensor_like(&heap, &x), none = {.data = NULL},
                          moments = tensor_new(&heap, DTYPE_F64, 2, s[0], 2, 1, 1),
                          w = s[4] ? tensor_random(&heap, 3, 1, weights, 1, 1, 1) : none,
                          b = s[4] ? tensor_random(&heap, 4, 1, weights, 1, 1, 1) : none,
                          dw = tensor_new(&heap, DTYPE_F32, 1, weights, 1, 1, 1),
                          db = tensor_like(&heap, &dw);
            struct op_args a = {.in = {x, w, b}, .out = {y, moments}}, want = a;
            a.p.layer_norm = want.p.layer_norm = (struct layer_norm_args){1e-5, s[2], s[3]};
            cr_assert_eq(op_check(OP_LAYER_NORM_FORWARD, &a), OK, "%s", error_message());
            struct norm_rows rows = norm_rows_of(OP_LAYER_NORM_FORWARD, &a);
            RUN_BLOCKS(k_layer_norm_forward, &rows, struct norm_rows_shared, rows_grid);
            want.out[0] = tensor_like(&heap, &y), want.out[1] = tensor_like(&heap, &moments);
            host_reference_kernels[OP_LAYER_NORM_FORWARD](&want);
            expect_close("y", &y, &want.out[0]);
            a.in[1] = want.in[1] = dy, a.in[2] = want.in[2] = w;
            rows = norm_rows_of(OP_LAYER_NORM_BACKWARD_DATA, &a);
            RUN_BLOCKS(k_layer_norm_backward_data, &rows, struct norm_rows_shared, rows_grid);
            host_reference_kernels[OP_LAYER_NORM_BACKWARD_DATA](&want);
            expect_close("dx", &y, &want.out[0]);
            a.in[2] = moments, want.in[2] = want.out[1];
            a.out[0] = dw, a.out[1] = db;
            want.out[0] = tensor_like(&heap, &dw), want.out[1] = tensor_like(&heap, &db);
            struct norm_weights sums;
            cr_assert(norm_weights_of(&a, &sums));
            RUN_BLOCKS(k_layer_norm_backward_weight, &sums, struct norm_weights_shared,
                       weights_grid);
            host_reference_kernels[OP_LAYER_NORM_BACKWARD_WEIGHT](&want);
            expect_close("dw", &dw, &want.out[0]);
            expect_close("db", &db, &want.out[1]);
            heap_free(&heap);
        }
}
