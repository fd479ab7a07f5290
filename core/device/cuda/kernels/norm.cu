/* The kernels of norm.h on the GPU, and their launches. Moments and sums take a block per part of a
 * channel, what works on C numbers a thread per channel, forward and dx a thread per element. */
#include "device/cuda/kernels/norm.h"
#include "device/cuda/kernels/launch.h"

BLOCK_KERNEL(batch_norm_moments, struct norm, struct norm_shared, NORM_THREADS)
BLOCK_KERNEL(batch_norm_sums, struct norm, struct norm_shared, NORM_THREADS)
BLOCK_KERNEL(batch_norm_track, struct norm, struct norm_shared, NORM_THREADS)
THREAD_KERNEL(batch_norm_merge, struct norm, NORM_THREADS)
THREAD_KERNEL(batch_norm_total, struct norm, NORM_THREADS)
THREAD_KERNEL(batch_norm_of_running, struct norm, NORM_THREADS)
THREAD_KERNEL(batch_norm_factors, struct norm, NORM_THREADS)
THREAD_KERNEL(batch_norm_backward_weight, struct norm, NORM_THREADS)
THREAD_KERNEL(batch_norm_backward_factors, struct norm, NORM_THREADS)
THREAD_KERNEL(batch_norm_forward, struct norm, NORM_THREADS)
THREAD_KERNEL(batch_norm_backward_data, struct norm, NORM_THREADS)

static const struct op_kernel kernels[] = {
    {OP_BATCH_NORM_MOMENTS, DUET_KERNEL(batch_norm_moments)},
    {OP_BATCH_NORM_SUMS, DUET_KERNEL(batch_norm_sums)},
    {OP_BATCH_NORM_TRACK, DUET_KERNEL(batch_norm_track)},
    {OP_BATCH_NORM_MERGE, DUET_KERNEL(batch_norm_merge)},
    {OP_BATCH_NORM_TOTAL, DUET_KERNEL(batch_norm_total)},
    {OP_BATCH_NORM_OF_RUNNING, DUET_KERNEL(batch_norm_of_running)},
    {OP_BATCH_NORM_FACTORS, DUET_KERNEL(batch_norm_factors)},
    {OP_BATCH_NORM_BACKWARD_WEIGHT, DUET_KERNEL(batch_norm_backward_weight)},
    {OP_BATCH_NORM_BACKWARD_FACTORS, DUET_KERNEL(batch_norm_backward_factors)},
    {OP_BATCH_NORM_FORWARD, DUET_KERNEL(batch_norm_forward)},
    {OP_BATCH_NORM_BACKWARD_DATA, DUET_KERNEL(batch_norm_backward_data)},
};

const void *norm_kernel(int i) {
    return kernel_at(kernels, i);
}

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
    struct norm n, merge;
    if (!norm_of(op, args, &n))
        return fail(ERR_FAILED, "%s: more than 2^31 elements: give a smaller batch", op_name(op));
    const int cut = over_values && norm_cut(&n, (double *)stream->workspace, &merge);
    enqueue(stream, kernel_of(kernels, op), norm_blocks(op, &n), NORM_THREADS, &n);
    if (cut)
        enqueue(stream, kernel_of(kernels, merging), norm_blocks(merging, &merge), NORM_THREADS,
                &merge);
    return OK;
}
