/* The kernels of norm.h on the GPU, and their launches. Moments and sums use a block per part of a
 * channel, steps on C numbers a thread per channel, and forward and dx a thread per element. */
#include "device/cuda/kernels/norm.h"
#include "device/cuda/kernels/launch.h"

#define EACH_BLOCK_KERNEL(ROW)                     \
    ROW(OP_BATCH_NORM_MOMENTS, batch_norm_moments) \
    ROW(OP_BATCH_NORM_SUMS, batch_norm_sums)       \
    ROW(OP_BATCH_NORM_TRACK, batch_norm_track)
#define EACH_THREAD_KERNEL(ROW)                                      \
    ROW(OP_BATCH_NORM_MERGE, batch_norm_merge)                       \
    ROW(OP_BATCH_NORM_TOTAL, batch_norm_total)                       \
    ROW(OP_BATCH_NORM_OF_RUNNING, batch_norm_of_running)             \
    ROW(OP_BATCH_NORM_FACTORS, batch_norm_factors)                   \
    ROW(OP_BATCH_NORM_BACKWARD_WEIGHT, batch_norm_backward_weight)   \
    ROW(OP_BATCH_NORM_BACKWARD_FACTORS, batch_norm_backward_factors) \
    ROW(OP_BATCH_NORM_FORWARD, batch_norm_forward)                   \
    ROW(OP_BATCH_NORM_BACKWARD_DATA, batch_norm_backward_data)

#define OF_BLOCK(OP, NAME) BLOCK_KERNEL(NAME, struct norm, struct norm_shared, NORM_THREADS)
#define OF_THREAD(OP, NAME) THREAD_KERNEL(NAME, struct norm, NORM_THREADS)
EACH_BLOCK_KERNEL(OF_BLOCK)
EACH_THREAD_KERNEL(OF_THREAD)

static const struct op_kernel kernels[] = {EACH_BLOCK_KERNEL(OP_KERNEL_ROW)
                                               EACH_THREAD_KERNEL(OP_KERNEL_ROW)};

FAMILY_KERNELS(norm)

static uint32_t norm_blocks(enum op op, const struct norm *n) {
    switch (op) {
    case OP_BATCH_NORM_MOMENTS:
    case OP_BATCH_NORM_SUMS: return grid_for((size_t)norm_parts(n), 1);
    case OP_BATCH_NORM_TRACK: return 1;
    case OP_BATCH_NORM_FORWARD:
    case OP_BATCH_NORM_BACKWARD_DATA: return grid_for(n->count, NORM_THREADS);
    default: return grid_for((size_t)n->channels, NORM_THREADS);
    }
}

int enqueue_norm(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    const int over_values = op == OP_BATCH_NORM_MOMENTS || op == OP_BATCH_NORM_SUMS;
    const enum op merging = op == OP_BATCH_NORM_SUMS ? OP_BATCH_NORM_TOTAL : OP_BATCH_NORM_MERGE;
    struct norm n = norm_of(op, args), merge;
    const int cut = over_values && norm_cut(&n, (double *)stream->workspace, &merge);
    enqueue(stream, kernel_of(kernels, op), norm_blocks(op, &n), NORM_THREADS, &n);
    if (cut)
        enqueue(stream, kernel_of(kernels, merging), norm_blocks(merging, &merge), NORM_THREADS,
                &merge);
    return OK;
}
