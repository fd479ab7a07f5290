/* The kernels of product.h on the GPU, and their launches: convolutions and linear layers. One
 * template serves each kind of product and each shape of tile that product_choose may name, and
 * another serves small convolutions. product.h says what is multiplied, tile.h and conv_planes.h
 * say how, and plan.h says with which grid. */
#include "device/cuda/kernels/bias.h"
#include "device/cuda/kernels/launch.h"
#include "device/cuda/kernels/conv_planes.h"

template <int KIND, int TILE>
static __global__ void __launch_bounds__(tile_threads(TILE))
    product(const __grid_constant__ struct product p) {
    __shared__ struct product_shared shared;
    struct thread_index at = here();
    DUET_BLOCK_KERNEL(at);
    k_product(KIND, TILE, &p, &shared, at);
}

template <int KIND, int K>
static __global__ void __launch_bounds__(32 * PLANES_WARPS, 3)
    product_planes(const __grid_constant__ struct planes q) {
    __shared__ struct planes_shared shared;
    struct thread_index at = here();
    DUET_BLOCK_KERNEL(at);
    k_planes(KIND, K, &q, &shared, at);
}

template <int KIND>
static __global__ void __launch_bounds__(SIMPLE_THREADS)
    add_splits(const __grid_constant__ struct product p) {
    k_add_splits(KIND, &p, here());
}

THREAD_KERNEL(add_bias, struct add_bias, SIMPLE_THREADS)

/* The tiles of one kind; NULL if tile_fits says no. */
#define TILES_OF(kind)                                                                          \
    {                                                                                           \
        DUET_KERNEL(product<kind, TILE_LARGE>), DUET_KERNEL(product<kind, TILE_MEDIUM>),        \
            DUET_KERNEL(product<kind, TILE_SMALL>), NULL, DUET_KERNEL(product<kind, TILE_TF32>) \
    }
#define ALL_TILES_OF(kind)                                                                 \
    {                                                                                      \
        DUET_KERNEL(product<kind, TILE_LARGE>), DUET_KERNEL(product<kind, TILE_MEDIUM>),   \
            DUET_KERNEL(product<kind, TILE_SMALL>), DUET_KERNEL(product<kind, TILE_WIDE>), \
            DUET_KERNEL(product<kind, TILE_TF32>)                                          \
    }

static const void *const kernels[PRODUCT_KINDS][TILES] = {
    ALL_TILES_OF(PRODUCT_CONV_FORWARD),
    ALL_TILES_OF(PRODUCT_CONV_DATA),
    ALL_TILES_OF(PRODUCT_CONV_DATA_STRIDED),
    TILES_OF(PRODUCT_CONV_WEIGHT),
    TILES_OF(PRODUCT_LINEAR_KK),
    TILES_OF(PRODUCT_LINEAR_KC),
    TILES_OF(PRODUCT_LINEAR_RC),
};

/* [direction: forward, data][size: 3 x 3, 5 x 5] */
static const void *const planes_kernels[2][2] = {
    {DUET_KERNEL(product_planes<PRODUCT_CONV_FORWARD, 3>),
     DUET_KERNEL(product_planes<PRODUCT_CONV_FORWARD, 5>)},
    {DUET_KERNEL(product_planes<PRODUCT_CONV_DATA, 3>),
     DUET_KERNEL(product_planes<PRODUCT_CONV_DATA, 5>)},
};

static const void *splits_kernel(enum product_kind kind) {
    return kind == PRODUCT_CONV_WEIGHT ? DUET_KERNEL(add_splits<PRODUCT_CONV_WEIGHT>)
                                       : DUET_KERNEL(add_splits<PRODUCT_LINEAR_RC>);
}

const void *product_kernel(int i) {
    for (int kind = 0; kind < PRODUCT_KINDS; kind++)
        for (int tile = 0; tile < TILES; tile++)
            if (kernels[kind][tile] && i-- == 0) return kernels[kind][tile];
    const void *const others[] = {splits_kernel(PRODUCT_CONV_WEIGHT),
                                  splits_kernel(PRODUCT_LINEAR_RC), DUET_KERNEL(add_bias)};
    if (i < 4) return planes_kernels[i / 2][i % 2];
    return i < 7 ? others[i - 4] : NULL;
}

static int check_workspace(const struct cuda_stream *stream, enum op op) {
    return stream->workspace
               ? OK
               : fail(ERR_FAILED, "%s: on a stream without a workspace: use the compute stream",
                      op_name(op));
}

static void enqueue_tiles(struct cuda_stream *stream, struct product *p, enum product_kind kind,
                          int allow_tf32) {
    struct planes q;
    float *partial = (float *)stream->workspace;
    allow_tf32 = allow_tf32 && tf32_pays(p, kind);
    if (planes_chosen(p, kind, allow_tf32, &q)) {
        enqueue(stream, planes_kernels[kind != PRODUCT_CONV_FORWARD][p->k == 5], planes_blocks(&q),
                planes_threads(&q), &q);
        return;
    }
    enum tile tile = product_choose(p, kind, allow_tf32);
    product_grid(p, kind, tile, partial, CUDA_WORKSPACE_BYTES);
    enqueue(stream, kernels[kind][tile], p->row_tiles * p->col_tiles * p->splits,
            (uint32_t)tile_threads(tile), p);
    if (p->splits > 1) enqueue_each(stream, splits_kernel(kind), (size_t)p->rows * p->cols, p);
}

int enqueue_product(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    struct product p;
    if (op < OP_LINEAR_FORWARD && args->p.conv.general)
        return enqueue_grouped_conv(stream, op, args);
    CHECK(check_workspace(stream, op));
    enum product_kind kind = product_of(op, args, &p);
    enqueue_tiles(stream, &p, kind, stream->head.device->config.allow_tf32);
    return OK;
}

int enqueue_add_bias(struct cuda_stream *stream, const struct tensor *y, const struct tensor *b) {
    struct add_bias a = add_bias_of(y, b);
    enqueue_each(stream, DUET_KERNEL(add_bias), a.count, &a);
    return OK;
}

int enqueue_bias_gradient(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    struct product p;
    CHECK(check_workspace(stream, op));
    enum product_kind kind = product_of(op, args, &p);
    product_bias_alone(&p, kind);
    enqueue_tiles(stream, &p, kind, 0);
    return OK;
}
