/* The CUDA kernels of matmul, run on the host with every tile, over shapes that fit nothing. (All
 * others of algebra.h and layer_norm.h: test_index.c.) */
#include "base/error.h"
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
