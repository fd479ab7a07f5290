/* Runs the text of the kernels (device/cuda/kernels/NAME.h) on the host, every block and every
 * thread of a grid. Index arithmetic, tails and the order of sums are those of the GPU; under
 * ThreadSanitizer (test_races.c) its barriers are too. The GPU's own exp and log are not. */
#ifndef TESTS_CUDA_INDEX_H
#define TESTS_CUDA_INDEX_H

#ifdef __SANITIZE_THREAD__
#include "tests/stand_ins/gpu_of_threads.h"
#else
#include "tests/stand_ins/gpu_of_loops.h"
#endif

#include "device/cuda/kernels/algebra.h"
#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/elementwise.h"
#include "device/cuda/kernels/gather.h"
#include "device/cuda/kernels/grouped_conv.h"
#include "device/cuda/kernels/layer_norm.h"
#include "device/cuda/kernels/log.h"
#include "device/cuda/kernels/mse.h"
#include "device/cuda/kernels/narrow.h"
#include "device/cuda/kernels/norm.h"
#include "device/cuda/kernels/places.h"
#include "device/cuda/kernels/planes.h"
#include "device/cuda/kernels/pad.h"
#include "device/cuda/kernels/pool.h"
#include "device/cuda/kernels/recurrent.h"
#include "device/op_table.h"
#include "tests/device/kernels_common.h"

/* A kernel takes a pointer to its struct, and is called through a type that takes a pointer to
 * anything. */
#define RUN_THREADS(kernel, param, grid) \
    gpu_run_threads((thread_kernel *)(void (*)(void))(kernel), param, grid)
#define RUN_BLOCKS(kernel, param, shared_type, grid) \
    gpu_run_blocks((block_kernel *)(void (*)(void))(kernel), param, sizeof(shared_type), grid)

/* Grids that no launch would take, and some that a launch does. */
static const struct grid odd_grids[] = {{1, 1}, {1, 256}, {3, 33}, {7, 96}, {2, 256}};
enum { ODD_GRIDS = 5 };

/* A kernel whose threads work by themselves, over what TYPE_of makes of the operands; the same of
 * one whose threads work together. */
#define RUN_MADE(kernel, type, a, grid)       \
    do {                                      \
        struct type made;                     \
        cr_assert(type##_of(a, &made));       \
        RUN_THREADS(k_##kernel, &made, grid); \
    } while (0)
#define RUN_NORM_BLOCKS(kernel, n, grid) \
    RUN_BLOCKS(k_##kernel, n, struct norm_shared, ((struct grid){(grid).blocks, NORM_THREADS}))

static inline void run_elementwise(enum op op, const struct op_args *a, struct grid grid) {
    struct elementwise e = elementwise_of(op, a);
    switch (op) {
    case OP_RELU_FORWARD: RUN_THREADS(k_relu_forward, &e, grid); break;
    case OP_RELU_BACKWARD: RUN_THREADS(k_relu_backward, &e, grid); break;
    case OP_ADD_FORWARD: RUN_THREADS(k_add_forward, &e, grid); break;
    case OP_SUBTRACT_FORWARD: RUN_THREADS(k_subtract_forward, &e, grid); break;
    case OP_MULTIPLY_FORWARD: RUN_THREADS(k_multiply_forward, &e, grid); break;
    case OP_WHERE: RUN_THREADS(k_where, &e, grid); break;
    case OP_TANH_FORWARD: RUN_THREADS(k_tanh_forward, &e, grid); break;
    case OP_TANH_BACKWARD: RUN_THREADS(k_tanh_backward, &e, grid); break;
    case OP_SIGMOID_FORWARD: RUN_THREADS(k_sigmoid_forward, &e, grid); break;
    case OP_SIGMOID_BACKWARD: RUN_THREADS(k_sigmoid_backward, &e, grid); break;
    case OP_ACTIVATION_FORWARD: RUN_THREADS(k_activation_forward, &e, grid); break;
    case OP_ACTIVATION_BACKWARD: RUN_THREADS(k_activation_backward, &e, grid); break;
    case OP_DROPOUT: RUN_THREADS(e.by_plane.d ? k_dropout2d : k_dropout, &e, grid); break;
    case OP_RANDOM: RUN_THREADS(k_random_numbers, &e, grid); break;
    case OP_FILL: RUN_THREADS(k_fill, &e, grid); break;
    case OP_SCALE: RUN_THREADS(k_scale, &e, grid); break;
    case OP_CLIP: RUN_THREADS(k_clip, &e, grid); break;
    case OP_SGD: RUN_THREADS(k_sgd, &e, grid); break;
    case OP_ADADELTA: RUN_THREADS(k_adadelta, &e, grid); break;
    case OP_ADAM: RUN_THREADS(k_adam, &e, grid); break;
    default: cr_assert_fail("%s: index.h does not know its kernel", op_name(op));
    }
}

/* As a launch chooses. */
#define RUN_POOL(pool, pass, p, grid)                         \
    do {                                                      \
        if ((p)->adaptive)                                    \
            RUN_THREADS(k_adaptive_##pool##_##pass, p, grid); \
        else if (pool_is_2x2(p))                              \
            RUN_THREADS(k_##pool##_2x2_##pass, p, grid);      \
        else                                                  \
            RUN_THREADS(k_##pool##_##pass, p, grid);          \
    } while (0)

static inline void run_pool(enum op op, const struct op_args *a, struct grid grid) {
    struct pool p;
    cr_assert(pool_of(op, a, &p));
    switch (op) {
    case OP_ADAPTIVE_AVG_POOL_FORWARD:
    case OP_AVG_POOL_FORWARD: RUN_POOL(avg_pool, forward, &p, grid); break;
    case OP_ADAPTIVE_AVG_POOL_BACKWARD:
    case OP_AVG_POOL_BACKWARD: RUN_POOL(avg_pool, backward, &p, grid); break;
    case OP_MAX_POOL_FORWARD: RUN_POOL(max_pool, forward, &p, grid); break;
    default: RUN_POOL(max_pool, backward, &p, grid); break;
    }
}

#define RUN_ROWS(kernel, r, grid) RUN_BLOCKS(k_##kernel, r, struct row_shared, grid)

static inline void run_rows(enum op op, const struct op_args *a, uint32_t blocks) {
    struct row_op r = row_op_of(op, a);
    struct grid grid = {blocks, ROW_THREADS};
    switch (op) {
    case OP_SOFTMAX_FORWARD: RUN_ROWS(softmax_forward, &r, grid); break;
    case OP_SOFTMAX_BACKWARD: RUN_ROWS(softmax_backward, &r, grid); break;
    case OP_NLL_FORWARD: RUN_ROWS(nll_forward, &r, grid); break;
    case OP_NLL_BACKWARD: RUN_ROWS(nll_backward, &r, grid); break;
    case OP_CROSS_ENTROPY_FORWARD: RUN_ROWS(cross_entropy_forward, &r, grid); break;
    case OP_CROSS_ENTROPY_BACKWARD: RUN_ROWS(cross_entropy_backward, &r, grid); break;
    case OP_MSE_FORWARD: RUN_ROWS(mse_forward, &r, grid); break;
    default: RUN_ROWS(mse_backward, &r, grid); break;
    }
}

static inline void run_loss_sum(const struct op_args *a) {
    struct loss_sum s = loss_sum_of(a);
    struct grid grid = {1, LOG_THREADS};
    RUN_BLOCKS(k_loss_sum, &s, struct loss_sum_shared, grid);
}

static inline void run_hash(const struct op_args *a, uint32_t blocks) {
    struct hash h = hash_of(a);
    struct grid zero = {1, 32}, grid = {blocks, LOG_THREADS};
    if (blocks > 1) RUN_THREADS(k_hash_zero, &h, zero);
    RUN_BLOCKS(k_hash, &h, struct hash_shared, grid);
}

static inline void run_square_sums(const struct op_args *a, uint32_t blocks) {
    struct square_sums s = square_sums_of(a);
    struct grid grid = {blocks, CLIP_LANES};
    RUN_BLOCKS(k_square_sums, &s, struct square_sums_shared, grid);
}

static inline void run_batch_norm(enum op op, const struct op_args *a, struct grid grid) {
    static double norm_workspace[3 * 4096];
    struct norm n, merge;
    int cut;
    cr_assert(norm_of(op, a, &n));
    switch (op) {
    case OP_BATCH_NORM_MOMENTS:
        cut = norm_cut(&n, norm_workspace, &merge);
        RUN_NORM_BLOCKS(batch_norm_moments, &n, grid);
        if (cut) RUN_THREADS(k_batch_norm_merge, &merge, grid);
        break;
    case OP_BATCH_NORM_SUMS:
        cut = norm_cut(&n, norm_workspace, &merge);
        RUN_NORM_BLOCKS(batch_norm_sums, &n, grid);
        if (cut) RUN_THREADS(k_batch_norm_total, &merge, grid);
        break;
    case OP_BATCH_NORM_TRACK:
        grid.blocks = 1;
        RUN_NORM_BLOCKS(batch_norm_track, &n, grid);
        break;
    case OP_BATCH_NORM_MERGE: RUN_THREADS(k_batch_norm_merge, &n, grid); break;
    case OP_BATCH_NORM_TOTAL: RUN_THREADS(k_batch_norm_total, &n, grid); break;
    case OP_BATCH_NORM_OF_RUNNING: RUN_THREADS(k_batch_norm_of_running, &n, grid); break;
    case OP_BATCH_NORM_FACTORS: RUN_THREADS(k_batch_norm_factors, &n, grid); break;
    case OP_BATCH_NORM_FORWARD: RUN_THREADS(k_batch_norm_forward, &n, grid); break;
    case OP_BATCH_NORM_BACKWARD_WEIGHT: RUN_THREADS(k_batch_norm_backward_weight, &n, grid); break;
    case OP_BATCH_NORM_BACKWARD_FACTORS:
        RUN_THREADS(k_batch_norm_backward_factors, &n, grid);
        break;
    default: RUN_THREADS(k_batch_norm_backward_data, &n, grid); break;
    }
}

static inline void run_layer_norm(enum op op, const struct op_args *a, struct grid grid) {
    if (op == OP_LAYER_NORM_BACKWARD_WEIGHT) {
        struct norm_weights w;
        cr_assert(norm_weights_of(a, &w));
        grid.threads = NORM_WEIGHT_THREADS;
        RUN_BLOCKS(k_layer_norm_backward_weight, &w, struct norm_weights_shared, grid);
        return;
    }
    struct norm_rows r = norm_rows_of(op, a);
    grid.threads = NORM_ROW_THREADS;
    if (op == OP_LAYER_NORM_FORWARD)
        RUN_BLOCKS(k_layer_norm_forward, &r, struct norm_rows_shared, grid);
    else
        RUN_BLOCKS(k_layer_norm_backward_data, &r, struct norm_rows_shared, grid);
}

static inline void run_attention(enum op op, const struct op_args *args, struct grid grid) {
    struct attention a = attention_of(op, args);
    grid.threads = ATTENTION_THREADS;
    if (op == OP_ATTENTION_FORWARD)
        RUN_BLOCKS(k_attention_forward, &a, struct attention_shared, grid);
    else
        RUN_BLOCKS(k_attention_backward, &a, struct attention_shared, grid);
}

static inline void run_sum(const struct op_args *a, struct grid grid) {
    struct sum_over sum = sum_over_of(a);
    grid.threads = SUM_OVER_THREADS;
    RUN_BLOCKS(k_sum_over, &sum, struct sum_over_shared, grid);
}

static inline void run_to_index(const struct op_args *a, struct grid grid) {
    struct to_index index = to_index_of(a);
    RUN_THREADS(k_to_index, &index, grid);
}

static inline void run_places(enum op op, const struct op_args *a, struct grid grid) {
    struct along t;
    if (op == OP_ARGSORT) {
        RUN_MADE(argsort, argsort, a, grid);
        return;
    }
    cr_assert(along_of(op, a, &t));
    if (op == OP_TAKE_ALONG)
        RUN_THREADS(k_take_along, &t, grid);
    else
        RUN_THREADS(k_add_along, &t, grid);
}

static inline void run_grouped_conv(enum op op, const struct op_args *a, struct grid grid) {
    struct grouped_conv c;
    cr_assert(grouped_conv_of(op, a, &c));
    if (op == OP_GROUPED_CONV_FORWARD) {
        RUN_THREADS(k_grouped_conv_forward, &c, grid);
    } else if (op == OP_GROUPED_CONV_BACKWARD_DATA) {
        RUN_THREADS(k_grouped_conv_backward_data, &c, grid);
    } else {
        grid.threads = GROUPED_THREADS;
        RUN_BLOCKS(k_grouped_conv_backward_weight, &c, struct grouped_shared, grid);
    }
}

static inline void recurrent_forward_block(const void *r, void *shared, struct place at) {
    (void)shared;
    k_recurrent_forward(r, at);
}
static inline void recurrent_backward_block(const void *r, void *shared, struct place at) {
    (void)shared;
    k_recurrent_backward(r, at);
}

static inline void run_recurrent(enum op op, const struct op_args *a, struct grid grid) {
    struct recurrence r = recurrence_of(op, a);
    gpu_run_blocks(op == OP_RECURRENT_FORWARD ? recurrent_forward_block : recurrent_backward_block,
                   &r, 1, grid);
}

/* Any op but products and changes of layout. Kernels whose threads work together take the grid's
 * blocks, with threads of their own number. */
static inline void run_text(enum op op, const struct op_args *a, struct grid grid) {
    switch (op_table[op].family) {
    case NORM: run_batch_norm(op, a, grid); return;
    case LOSS: run_rows(op, a, grid.blocks); return;
    case LAYER_NORM: run_layer_norm(op, a, grid); return;
    case ATTENTION: run_attention(op, a, grid); return;
    case GROUPED: run_grouped_conv(op, a, grid); return;
    case RECURRENT: run_recurrent(op, a, grid); return;
    case POINTWISE: run_elementwise(op, a, grid); return;
    case ALONG: run_places(op, a, grid); return;
    default: break;
    }
    switch (op) {
    case OP_PAD: RUN_MADE(pad, pad, a, grid); break;
    case OP_CAT: RUN_MADE(cat, cat, a, grid); break;
    case OP_LOSS_SUM: run_loss_sum(a); break;
    case OP_HASH: run_hash(a, grid.blocks); break;
    case OP_SQUARE_SUMS: run_square_sums(a, grid.blocks); break;
    case OP_GATHER_SAMPLES: RUN_MADE(gather_samples, gather, a, grid); break;
    case OP_GATHER_ROWS: RUN_MADE(gather_rows, gather_rows, a, grid); break;
    case OP_SUM: run_sum(a, grid); break;
    case OP_SPREAD: RUN_MADE(spread, spread, a, grid); break;
    case OP_PERMUTE: RUN_MADE(permute, permute, a, grid); break;
    case OP_TO_INDEX: run_to_index(a, grid); break;
    case OP_EMBEDDING_BACKWARD: RUN_MADE(embedding_backward, embedding, a, grid); break;
    default: run_pool(op, a, grid);
    }
}

struct product_call {
    int kind, tile;
    const struct product *p;
};
static inline void product_block(const void *param, void *shared, struct place at) {
    const struct product_call *c = param;
    k_product(c->kind, c->tile, c->p, shared, at);
}
static inline void narrow_block(const void *param, void *shared, struct place at) {
    const struct product_call *c = param;
    k_product_narrow(c->p, shared, at);
}
static inline void add_splits_thread(const void *param, struct place at) {
    const struct product_call *c = param;
    k_add_splits(c->kind, c->p, at);
}

/* In place of a tile: what a launch would take, or the kernels of planes.h. */
enum { AS_LAUNCHED = -2, PLANES = -1 };

struct planes_call {
    int kind;
    const struct planes *q;
};
static inline void planes_block(const void *param, void *shared, struct place at) {
    const struct planes_call *c = param;
    k_planes(c->kind, c->q->p.k, c->q, shared, at);
}

static inline uint32_t run_planes(const struct planes *q, enum product_kind kind) {
    struct planes_call call = {(int)kind, q};
    struct grid grid = {planes_blocks(q), planes_threads(q)};
    gpu_run_blocks(planes_block, &call, sizeof(struct planes_shared), grid);
    return 1;
}

/* `tile` is one of enum tile, or one of the two above. `workspace` is in bytes; what is used of it
 * is allocated to the byte. Returns the number of splits. */
static inline uint32_t run_product(enum op op, const struct op_args *a, int tile,
                                   size_t workspace) {
    struct product p;
    struct planes q;
    enum product_kind kind;
    struct heap heap = {0};
    cr_assert(product_of(op, a, &p, &kind));
    if (tile == PLANES ? planes_of(&p, kind, &q)
                       : tile == AS_LAUNCHED && planes_chosen(&p, kind, 0, &q))
        return run_planes(&q, kind);
    cr_assert_neq(tile, PLANES);
    int narrow = tile == AS_LAUNCHED && narrow_chosen(&p, kind, 0);
    if (tile < 0) tile = (int)product_choose(&p, kind, 0);
    if (narrow)
        narrow_grid(&p, NULL, workspace);
    else
        product_grid(&p, kind, (enum tile)tile, NULL, workspace);
    if (p.splits > 1) p.partial = heap_take(&heap, sizeof(float) * p.splits * p.rows * p.cols);
    struct product_call call = {(int)kind, tile, &p};
    struct grid grid = {p.row_tiles * p.col_tiles * p.splits,
                        narrow ? NARROW_THREADS : (uint32_t)tile_threads(tile)},
                fold = {3, 33};
    gpu_run_blocks(narrow ? narrow_block : product_block, &call,
                   narrow ? sizeof(struct narrow_shared) : sizeof(struct product_shared), grid);
    if (p.splits > 1) gpu_run_threads(add_splits_thread, &call, fold);
    heap_free(&heap);
    return p.splits;
}

#endif
