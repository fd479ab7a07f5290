/* Runs the source of kernels with cooperating threads (device/cuda/kernels/NAME.h) on a GPU made of
 * threads, for test_races.c. Index arithmetic, the order of sums and the barriers are those of a
 * GPU. */
#ifndef TESTS_CUDA_RACES_H
#define TESTS_CUDA_RACES_H

#include "tests/stand_ins/gpu_of_threads.h"

/* gcc does not see that the first phase sets what a thread keeps from one phase to the next. */
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "device/cuda/kernels/algebra.h"
#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/grouped_conv.h"
#include "device/cuda/kernels/layer_norm.h"
#include "device/cuda/kernels/log.h"
#include "device/cuda/kernels/mse.h"
#include "device/cuda/kernels/norm.h"
#include "device/cuda/kernels/conv_planes.h"
#include "device/cuda/kernels/recurrent.h"
#include "device/op_table.h"
#include "tests/core/device/kernels_common.h"

/* A kernel takes a pointer to its struct, and is called through a type that takes a pointer to
 * anything. */
#define RUN_THREADS(kernel, param, grid) \
    gpu_run_threads((thread_kernel *)(void (*)(void))(kernel), param, grid)
#define RUN_BLOCKS(kernel, param, shared, blocks, threads)                              \
    gpu_run_blocks((block_kernel *)(void (*)(void))(k_##kernel), param, sizeof(shared), \
                   (struct grid){blocks, threads})
#define RUN_ROWS(kernel, r) RUN_BLOCKS(kernel, r, struct row_shared, 3, ROW_THREADS)
#define RUN_NORM(kernel, n, blocks) RUN_BLOCKS(kernel, n, struct norm_shared, blocks, NORM_THREADS)

static inline void run_rows(enum op op, const struct op_args *a) {
    struct row_op r = row_op_of(op, a);
    switch (op) {
    case OP_SOFTMAX_FORWARD: RUN_ROWS(softmax_forward, &r); break;
    case OP_SOFTMAX_BACKWARD: RUN_ROWS(softmax_backward, &r); break;
    case OP_CROSS_ENTROPY_FORWARD: RUN_ROWS(cross_entropy_forward, &r); break;
    case OP_CROSS_ENTROPY_BACKWARD: RUN_ROWS(cross_entropy_backward, &r); break;
    case OP_MSE_FORWARD: RUN_ROWS(mse_forward, &r); break;
    default: RUN_ROWS(mse_backward, &r); break;
    }
}

static inline void run_norm(enum op op, const struct op_args *a) {
    static double norm_workspace[3 * 4096];
    struct norm_steps steps;
    if (op == OP_BATCH_NORM_TRACK) steps = norm_steps_of(op, a);
    if (op == OP_BATCH_NORM_TRACK) RUN_NORM(batch_norm_track, &steps, 1);
    if (op != OP_BATCH_NORM_MOMENTS && op != OP_BATCH_NORM_SUMS) return;
    struct norm n = norm_of(op, a);
    (void)norm_cut(&n, norm_workspace, &steps);
    if (op == OP_BATCH_NORM_MOMENTS)
        RUN_NORM(batch_norm_moments, &n, 3);
    else
        RUN_NORM(batch_norm_sums, &n, 3);
}

static inline void run_layer_norm(enum op op, const struct op_args *a) {
    struct norm_rows r;
    if (op == OP_LAYER_NORM_BACKWARD_WEIGHT) {
        struct norm_weights w = norm_weights_of(a);
        RUN_BLOCKS(layer_norm_backward_weight, &w, struct norm_weights_shared, 3,
                   NORM_WEIGHT_THREADS);
        return;
    }
    r = norm_rows_of(op, a);
    if (op == OP_LAYER_NORM_FORWARD)
        RUN_BLOCKS(layer_norm_forward, &r, struct norm_rows_shared, 3, ROW_THREADS);
    else
        RUN_BLOCKS(layer_norm_backward_data, &r, struct norm_rows_shared, 3, ROW_THREADS);
}

static inline void run_attention(enum op op, const struct op_args *args) {
    struct attention a = attention_of(op, args);
    if (op == OP_ATTENTION_FORWARD)
        RUN_BLOCKS(attention_forward, &a, struct attention_shared, 3, ATTENTION_THREADS);
    else
        RUN_BLOCKS(attention_backward, &a, struct attention_shared, 3, ATTENTION_THREADS);
}

static inline void recurrent_forward_block(const void *r, void *shared, struct thread_index at) {
    (void)shared;
    k_recurrent_forward(r, at);
}
static inline void recurrent_backward_block(const void *r, void *shared, struct thread_index at) {
    (void)shared;
    k_recurrent_backward(r, at);
}

static inline void run_recurrent(enum op op, const struct op_args *a) {
    struct recurrence r = recurrence_of(op, a);
    gpu_run_blocks(op == OP_RECURRENT_FORWARD ? recurrent_forward_block : recurrent_backward_block,
                   &r, 1, (struct grid){3, 32});
}

static inline void run_log(enum op op, const struct op_args *a) {
    struct loss_sum s;
    struct hash h;
    struct square_sums q;
    switch (op) {
    case OP_LOSS_SUM:
        s = loss_sum_of(a);
        RUN_BLOCKS(loss_sum, &s, struct loss_sum_shared, 1, LOG_THREADS);
        break;
    case OP_HASH:
        h = hash_of(a);
        RUN_THREADS(k_hash_zero, &h, ((struct grid){1, 32}));
        RUN_BLOCKS(hash, &h, struct hash_shared, 9, LOG_THREADS);
        break;
    default:
        q = square_sums_of(a);
        RUN_BLOCKS(square_sums, &q, struct square_sums_shared, 3, CLIP_LANES);
    }
}

static inline void run_grouped_weight(const struct op_args *a) {
    struct grouped_conv c = grouped_conv_of(OP_CONV2D_BACKWARD_WEIGHT, a);
    RUN_BLOCKS(grouped_conv_backward_weight, &c, struct grouped_shared, 3, GROUPED_THREADS);
}

static inline void run_sum(const struct op_args *a) {
    struct sum_over sum = sum_over_of(a);
    RUN_BLOCKS(sum_over, &sum, struct sum_over_shared, 3, SUM_OVER_THREADS);
}

/* Ops but products whose threads work together; nothing for all others. */
static inline void run_together(enum op op, const struct op_args *a) {
    switch (op_table[op].family) {
    case NORM: run_norm(op, a); break;
    case LOSS: run_rows(op, a); break;
    case LAYER_NORM: run_layer_norm(op, a); break;
    case ATTENTION: run_attention(op, a); break;
    case RECURRENT: run_recurrent(op, a); break;
    case LOG: run_log(op, a); break;
    default:
        if (op == OP_CONV2D_BACKWARD_WEIGHT && a->p.conv.general) run_grouped_weight(a);
        if (op == OP_SUM) run_sum(a);
    }
}

struct product_call {
    int kind, tile;
    const struct product *p;
};
static inline void product_block(const void *param, void *shared, struct thread_index at) {
    const struct product_call *c = param;
    k_product(c->kind, c->tile, c->p, shared, at);
}
static inline void add_splits_thread(const void *param, struct thread_index at) {
    const struct product_call *c = param;
    k_add_splits(c->kind, c->p, at);
}

/* In place of a tile: the kernels of conv_planes.h. */
enum { PLANES = -1 };

struct planes_call {
    int kind;
    const struct planes *q;
};
static inline void planes_block(const void *param, void *shared, struct thread_index at) {
    const struct planes_call *c = param;
    k_planes(c->kind, c->q->p.k, c->q, shared, at);
}

static inline uint32_t run_planes(const struct planes *q, enum product_kind kind) {
    struct planes_call call = {(int)kind, q};
    struct grid grid = {planes_blocks(q), planes_threads(q)};
    gpu_run_blocks(planes_block, &call, sizeof(struct planes_shared), grid);
    return 1;
}

/* `tile` is one of enum tile, or PLANES. `workspace` is in bytes; what is used of it
 * is allocated to the byte. Returns the number of splits. */
static inline uint32_t run_product(enum op op, const struct op_args *a, int tile,
                                   size_t workspace) {
    struct product p;
    struct planes q;
    enum product_kind kind = product_of(op, a, &p);
    struct heap heap = {0};
    if (tile == PLANES) {
        cr_assert(planes_of(&p, kind, &q));
        return run_planes(&q, kind);
    }
    product_grid(&p, kind, (enum tile)tile, NULL, workspace);
    if (p.splits > 1) p.partial = heap_take(&heap, sizeof(float) * p.splits * p.rows * p.cols);
    struct product_call call = {(int)kind, tile, &p};
    struct grid grid = {p.row_tiles * p.col_tiles * p.splits, (uint32_t)tile_threads(tile)},
                fold = {3, 33};
    gpu_run_blocks(product_block, &call, sizeof(struct product_shared), grid);
    if (p.splits > 1) gpu_run_threads(add_splits_thread, &call, fold);
    heap_free(&heap);
    return p.splits;
}

#endif
