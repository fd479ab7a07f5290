/* A GPU made of loops: runs the kernels of device/cuda_kernels_*.h on the host, every block and every thread
 * of a grid one after another, with shared memory of exactly its size that starts as NaN. Index arithmetic,
 * tails and the order of sums are those of the GPU; races and the GPU's own exp and log are not seen here. */
#ifndef TESTS_TEST_CUDA_INDEX_H
#define TESTS_TEST_CUDA_INDEX_H

#include "device/cuda_kernels_elementwise.h"
#include "device/cuda_kernels_log.h"
#include "device/cuda_kernels_loss.h"
#include "device/cuda_kernels_planes.h"
#include "device/cuda_kernels_pool.h"
#include "tests/test_math_common.h"

struct grid {
    uint32_t blocks, threads;
};

/* Threads that know nothing of each other: any grid must do. */
#define RUN_LONELY(kernel, param, grid)                                      \
    for (uint32_t b_ = 0; b_ < (grid).blocks; b_++)                          \
        for (uint32_t t_ = 0; t_ < (grid).threads; t_++)                     \
            kernel(param, (struct place){b_, (grid).blocks, t_, (grid).threads})

/* Threads that share memory; the block's size is the kernel's own. */
#define RUN_SHARING(kernel, param, shared_type, grid)                        \
    for (uint32_t b_ = 0; b_ < (grid).blocks; b_++) {                        \
        shared_type shared_;                                                 \
        memset(&shared_, 0xff, sizeof shared_);                              \
        kernel(param, &shared_, (struct place){b_, (grid).blocks, 0, (grid).threads}); \
    }

/* Grids no launch would take, beside those that a launch does. */
static const struct grid odd_grids[] = {{1, 1}, {1, 256}, {3, 33}, {7, 96}, {2, 256}};
enum { ODD_GRIDS = 5 };

static inline void run_elementwise(enum op op, const struct op_args *a, struct grid grid) {
    struct elementwise e = elementwise_of(op, a);
    switch (op) {
    case OP_RELU_FORWARD: RUN_LONELY(k_relu_forward, &e, grid); break;
    case OP_RELU_BACKWARD: RUN_LONELY(k_relu_backward, &e, grid); break;
    case OP_DROPOUT_FORWARD:
    case OP_DROPOUT_BACKWARD: RUN_LONELY(k_dropout, &e, grid); break;
    case OP_FILL: RUN_LONELY(k_fill, &e, grid); break;
    case OP_ADD: RUN_LONELY(k_add, &e, grid); break;
    case OP_SCALE: RUN_LONELY(k_scale, &e, grid); break;
    case OP_SGD: RUN_LONELY(k_sgd, &e, grid); break;
    default: cr_assert_fail("%s is not elementwise", op_name(op));
    }
}

static inline void run_pool(enum op op, const struct op_args *a, struct grid grid) {
    struct pool p;
    cr_assert(pool_of(op, a, &p));
    switch (op) {
    case OP_AVG_POOL_FORWARD: RUN_LONELY(k_avg_pool_forward, &p, grid); break;
    case OP_AVG_POOL_BACKWARD: RUN_LONELY(k_avg_pool_backward, &p, grid); break;
    case OP_MAX_POOL_FORWARD: RUN_LONELY(k_max_pool_forward, &p, grid); break;
    case OP_MAX_POOL_BACKWARD: RUN_LONELY(k_max_pool_backward, &p, grid); break;
    default: cr_assert_fail("%s is no pool", op_name(op));
    }
}

static inline void run_rows(enum op op, const struct op_args *a, uint32_t blocks) {
    struct row_op r = row_op_of(op, a);
    struct grid grid = {blocks, ROW_THREADS};
    switch (op) {
    case OP_LOG_SOFTMAX_FORWARD: RUN_SHARING(k_log_softmax_forward, &r, struct row_shared, grid); break;
    case OP_LOG_SOFTMAX_BACKWARD: RUN_SHARING(k_log_softmax_backward, &r, struct row_shared, grid); break;
    case OP_NLL_FORWARD: RUN_SHARING(k_nll_forward, &r, struct row_shared, grid); break;
    case OP_NLL_BACKWARD: RUN_SHARING(k_nll_backward, &r, struct row_shared, grid); break;
    case OP_CROSS_ENTROPY_FORWARD: RUN_SHARING(k_cross_entropy_forward, &r, struct row_shared, grid); break;
    case OP_CROSS_ENTROPY_BACKWARD: RUN_SHARING(k_cross_entropy_backward, &r, struct row_shared, grid); break;
    default: cr_assert_fail("%s does not work by rows", op_name(op));
    }
}

static inline void run_loss_sum(const struct op_args *a) {
    struct loss_sum s = loss_sum_of(a);
    struct grid grid = {1, LOG_THREADS};
    RUN_SHARING(k_loss_sum, &s, struct loss_sum_shared, grid);
}

static inline void run_hash(const struct op_args *a, uint32_t blocks) {
    struct hash h = hash_of(a);
    struct grid zero = {1, 32}, grid = {blocks, LOG_THREADS};
    if (blocks > 1) RUN_LONELY(k_hash_zero, &h, zero);
    RUN_SHARING(k_hash, &h, struct hash_shared, grid);
}

/* In place of a tile: what a launch takes, and the kernels of cuda_kernels_planes.h. */
enum { AS_LAUNCHED = -2, PLANES = -1 };

static inline uint32_t run_planes(const struct planes *q, enum product_kind kind) {
    for (uint32_t b = 0; b < planes_blocks(q); b++) {
        struct planes_shared shared;
        memset(&shared, 0xff, sizeof shared);
        k_planes((int)kind, q->p.k, q, &shared, (struct place){b, planes_blocks(q), 0, planes_threads(q)});
    }
    return 1;
}

/* `tile`: one of enum tile, or of the two above. `workspace` in bytes; what is used of it is allocated to the byte.
 * Returns the number of splits. */
static inline uint32_t run_product(enum op op, const struct op_args *a, int tile, size_t workspace) {
    struct product p;
    struct planes q;
    enum product_kind kind;
    struct heap heap = {0};
    cr_assert(product_of(op, a, &p, &kind));
    if (tile == PLANES ? planes_of(&p, kind, &q) : tile == AS_LAUNCHED && planes_chosen(&p, kind, 0, &q))
        return run_planes(&q, kind);
    cr_assert_neq(tile, PLANES);
    if (tile < 0) tile = (int)product_choose(&p, kind, 0);
    product_grid(&p, kind, (enum tile)tile, NULL, workspace);
    if (p.splits > 1) p.partial = heap_take(&heap, sizeof(float) * p.splits * p.rows * p.cols);
    uint32_t blocks = p.row_tiles * p.col_tiles * p.splits;
    for (uint32_t b = 0; b < blocks; b++) {
        struct product_shared shared;
        memset(&shared, 0xff, sizeof shared);
        k_product((int)kind, tile, &p, &shared, (struct place){b, blocks, 0, (uint32_t)tile_threads(tile)});
    }
    struct grid fold = {3, 33};
    if (p.splits > 1)
        for (uint32_t b = 0; b < fold.blocks; b++)
            for (uint32_t t = 0; t < fold.threads; t++)
                k_product_fold((int)kind, &p, (struct place){b, fold.blocks, t, fold.threads});
    heap_free(&heap);
    return p.splits;
}

#endif
