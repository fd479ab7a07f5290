/* The kernels of pool.h and pad.h on the GPU, and their launches: one thread per element of the
 * output, or, in the gradient of a pool, one per window. */
#include "device/cuda/kernels/pool.h"
#include "device/cuda/kernels/pad.h"
#include "device/cuda/kernels/launch.h"

/* Blocks that a multiprocessor holds at once. 8 would fit, but for 8 the compiler spills
 * registers. */
enum { POOL_BLOCKS = 6 };

/* Windows of any size, adaptive pools, and adjacent windows of 2 x 2 pixels. */
enum { OF_2X2 = OP_COUNT };
#define EACH_KERNEL(ROW)                                         \
    ROW(OP_AVG_POOL_FORWARD, avg_pool_forward)                   \
    ROW(OP_AVG_POOL_BACKWARD, avg_pool_backward)                 \
    ROW(OP_MAX_POOL_FORWARD, max_pool_forward)                   \
    ROW(OP_MAX_POOL_BACKWARD, max_pool_backward)                 \
    ROW(OF_2X2 + OP_AVG_POOL_FORWARD, avg_pool_2x2_forward)      \
    ROW(OF_2X2 + OP_AVG_POOL_BACKWARD, avg_pool_2x2_backward)    \
    ROW(OF_2X2 + OP_MAX_POOL_FORWARD, max_pool_2x2_forward)      \
    ROW(OF_2X2 + OP_MAX_POOL_BACKWARD, max_pool_2x2_backward)    \
    ROW(OP_ADAPTIVE_AVG_POOL_FORWARD, adaptive_avg_pool_forward) \
    ROW(OP_ADAPTIVE_AVG_POOL_BACKWARD, adaptive_avg_pool_backward)

#define KERNEL(OP, NAME) THREAD_KERNEL(NAME, struct pool, SIMPLE_THREADS, POOL_BLOCKS)
EACH_KERNEL(KERNEL)
THREAD_KERNEL(pad, struct pad, SIMPLE_THREADS)
THREAD_KERNEL(cat, struct cat, SIMPLE_THREADS)

static const struct op_kernel kernels[] = {
    {OP_PAD, DUET_KERNEL(pad)}, {OP_CAT, DUET_KERNEL(cat)}, EACH_KERNEL(OP_KERNEL_ROW)};

FAMILY_KERNELS(pool)

static void enqueue_pad(struct cuda_stream *stream, const struct op_args *args) {
    struct pad p = pad_of(args);
    enqueue_each(stream, DUET_KERNEL(pad), p.count, &p);
}

static void enqueue_cat(struct cuda_stream *stream, const struct op_args *args) {
    struct cat c = cat_of(args);
    enqueue_each(stream, DUET_KERNEL(cat), c.count, &c);
}

static int enqueue_windows(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    const int adaptive = op == OP_ADAPTIVE_AVG_POOL_FORWARD || op == OP_ADAPTIVE_AVG_POOL_BACKWARD;
    struct pool p = pool_of(op, args);
    if (adaptive && pool_too_long(&p)) return refuse_size(op);
    enqueue_each(stream, kernel_of(kernels, (pool_is_2x2(&p) ? OF_2X2 : 0) + op), p.count, &p);
    return OK;
}

int enqueue_pool(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    if (op != OP_PAD && op != OP_CAT) return enqueue_windows(stream, op, args);
    (op == OP_PAD ? enqueue_pad : enqueue_cat)(stream, args);
    return OK;
}
