/* The kernels of algebra.h on the GPU, and their launches. */
#include "device/cuda/kernels/algebra.h"
#include "device/cuda/kernels/launch.h"

template <int KIND, int TILE>
static __global__ void __launch_bounds__(tile_threads(TILE))
    matmul(const __grid_constant__ struct matmul m) {
    __shared__ struct product_shared shared;
    struct thread_index at = here();
    DUET_BLOCK_KERNEL(at);
    k_matmul(KIND, TILE, &m, &shared, at);
}

BLOCK_KERNEL(sum_over, struct sum_over, struct sum_over_shared, SUM_OVER_THREADS)
THREAD_KERNEL(spread, struct spread, SIMPLE_THREADS)
THREAD_KERNEL(permute, struct permute, SIMPLE_THREADS)
THREAD_KERNEL(to_index, struct to_index, SIMPLE_THREADS)
THREAD_KERNEL(embedding_backward, struct embedding, SIMPLE_THREADS)

#define TILES_OF(kind)                                                                        \
    {                                                                                         \
        DUET_KERNEL(matmul<kind, TILE_LARGE>), DUET_KERNEL(matmul<kind, TILE_MEDIUM>),        \
            DUET_KERNEL(matmul<kind, TILE_SMALL>), NULL, DUET_KERNEL(matmul<kind, TILE_TF32>) \
    }

enum { MATMUL_KINDS = 3 };
static const void *const kernels[MATMUL_KINDS][TILES] = {
    TILES_OF(PRODUCT_LINEAR_KK),
    TILES_OF(PRODUCT_LINEAR_KC),
    TILES_OF(PRODUCT_LINEAR_RC),
};

const void *algebra_kernel(int i) {
    const void *const others[] = {DUET_KERNEL(sum_over), DUET_KERNEL(spread),
                                  DUET_KERNEL(embedding_backward), DUET_KERNEL(permute),
                                  DUET_KERNEL(to_index)};
    for (int kind = 0; kind < MATMUL_KINDS; kind++)
        for (int tile = 0; tile < TILES; tile++)
            if (kernels[kind][tile] && i-- == 0) return kernels[kind][tile];
    return i < 5 ? others[i] : NULL;
}

static void enqueue_matmul(struct cuda_stream *stream, const struct op_args *args) {
    enum product_kind kind;
    struct matmul m = matmul_of(args, &kind);
    enum tile tile = product_choose(&m.p, kind, stream->head.device->config.allow_tf32);
    enqueue(stream, kernels[kind - PRODUCT_LINEAR_KK][tile], matmul_grid(&m, kind, tile),
            (uint32_t)tile_threads(tile), &m);
}

int enqueue_algebra(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    if (op == OP_MATMUL) {
        enqueue_matmul(stream, args);
    } else if (op == OP_SUM) {
        struct sum_over s = sum_over_of(args);
        enqueue(stream, DUET_KERNEL(sum_over), grid_for(s.tiles, 1), SUM_OVER_THREADS, &s);
    } else if (op == OP_SPREAD) {
        struct spread s = spread_of(args);
        enqueue_each(stream, DUET_KERNEL(spread), s.all, &s);
    } else if (op == OP_PERMUTE) {
        struct permute p = permute_of(args);
        enqueue_each(stream, DUET_KERNEL(permute), p.all, &p);
    } else if (op == OP_TO_INDEX) {
        struct to_index t = to_index_of(args);
        enqueue_each(stream, DUET_KERNEL(to_index), t.all, &t);
    } else { /* OP_EMBEDDING_BACKWARD */
        struct embedding e = embedding_of(args);
        enqueue_each(stream, DUET_KERNEL(embedding_backward), e.all, &e);
    }
    return OK;
}
