/* The kernels of norm.h on the GPU, and their launches. Moments and sums use a block per part of a
 * channel, steps on C numbers a thread per channel, and forward and dx a thread per element. */
#include "device/cuda/kernels/norm.h"
#include "device/cuda/kernels/launch.h"

#define EACH_BLOCK_KERNEL(ROW)                     \
    ROW(OP_BATCH_NORM_MOMENTS, batch_norm_moments) \
    ROW(OP_BATCH_NORM_SUMS, batch_norm_sums)
#define EACH_THREAD_KERNEL(ROW)                    \
    ROW(OP_BATCH_NORM_FORWARD, batch_norm_forward) \
    ROW(OP_BATCH_NORM_BACKWARD_DATA, batch_norm_backward_data)
#define EACH_STEP(ROW)                                             \
    ROW(OP_BATCH_NORM_MERGE, batch_norm_merge)                     \
    ROW(OP_BATCH_NORM_TOTAL, batch_norm_total)                     \
    ROW(OP_BATCH_NORM_OF_RUNNING, batch_norm_of_running)           \
    ROW(OP_BATCH_NORM_FACTORS, batch_norm_factors)                 \
    ROW(OP_BATCH_NORM_BACKWARD_WEIGHT, batch_norm_backward_weight) \
    ROW(OP_BATCH_NORM_BACKWARD_FACTORS, batch_norm_backward_factors)

#define OF_BLOCK(OP, NAME) BLOCK_KERNEL(NAME, struct norm, struct norm_shared, NORM_THREADS)
#define OF_THREAD(OP, NAME) THREAD_KERNEL(NAME, struct norm, NORM_THREADS)
#define OF_STEP(OP, NAME) THREAD_KERNEL(NAME, struct norm_steps, NORM_THREADS)
EACH_BLOCK_KERNEL(OF_BLOCK)
EACH_THREAD_KERNEL(OF_THREAD)
EACH_STEP(OF_STEP)
BLOCK_KERNEL(batch_norm_track, struct norm_steps, struct norm_shared, NORM_THREADS)

static const struct op_kernel kernels[] = {EACH_BLOCK_KERNEL(OP_KERNEL_ROW) EACH_THREAD_KERNEL(
    OP_KERNEL_ROW) EACH_STEP(OP_KERNEL_ROW) OP_KERNEL_ROW(OP_BATCH_NORM_TRACK, batch_norm_track)};

FAMILY_KERNELS(norm)

static void enqueue_step(struct cuda_stream *stream, enum op op, const struct norm_steps *s) {
    enqueue(stream, kernel_of(kernels, op),
            op == OP_BATCH_NORM_TRACK ? 1 : grid_for(s->channels, NORM_THREADS), NORM_THREADS, s);
}

int enqueue_norm(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    const int over_values = op == OP_BATCH_NORM_MOMENTS || op == OP_BATCH_NORM_SUMS;
    if (!over_values && op != OP_BATCH_NORM_FORWARD && op != OP_BATCH_NORM_BACKWARD_DATA) {
        struct norm_steps step = norm_steps_of(op, args);
        enqueue_step(stream, op, &step);
        return OK;
    }
    struct norm_steps merge;
    struct norm n = norm_of(op, args);
    const int cut = over_values && norm_cut(&n, (double *)stream->workspace, &merge);
    enqueue(stream, kernel_of(kernels, op),
            over_values ? grid_for((size_t)norm_parts(&n), 1) : grid_for(n.count, NORM_THREADS),
            NORM_THREADS, &n);
    if (cut)
        enqueue_step(stream, op == OP_BATCH_NORM_SUMS ? OP_BATCH_NORM_TOTAL : OP_BATCH_NORM_MERGE,
                     &merge);
    return OK;
}
