/* The kernels of pool.h and pad.h on the GPU, and their launches: one thread an element of the
 * output, or in a gradient of a pool one for each window. */
#include "device/cuda/kernels/pool.h"
#include "device/cuda/kernels/pad.h"
#include "device/cuda/kernels/launch.h"

/* Blocks that a multiprocessor holds at once. 8 would fit, but for 8 the compiler spills
 * registers. */
enum { POOL_BLOCKS = 6 };

THREAD_KERNEL(avg_pool_forward, struct pool, SIMPLE_THREADS, POOL_BLOCKS)
THREAD_KERNEL(avg_pool_backward, struct pool, SIMPLE_THREADS, POOL_BLOCKS)
THREAD_KERNEL(max_pool_forward, struct pool, SIMPLE_THREADS, POOL_BLOCKS)
THREAD_KERNEL(max_pool_backward, struct pool, SIMPLE_THREADS, POOL_BLOCKS)
THREAD_KERNEL(avg_pool_2x2_forward, struct pool, SIMPLE_THREADS, POOL_BLOCKS)
THREAD_KERNEL(avg_pool_2x2_backward, struct pool, SIMPLE_THREADS, POOL_BLOCKS)
THREAD_KERNEL(max_pool_2x2_forward, struct pool, SIMPLE_THREADS, POOL_BLOCKS)
THREAD_KERNEL(max_pool_2x2_backward, struct pool, SIMPLE_THREADS, POOL_BLOCKS)
THREAD_KERNEL(adaptive_avg_pool_forward, struct pool, SIMPLE_THREADS, POOL_BLOCKS)
THREAD_KERNEL(adaptive_avg_pool_backward, struct pool, SIMPLE_THREADS, POOL_BLOCKS)
THREAD_KERNEL(adaptive_max_pool_forward, struct pool, SIMPLE_THREADS, POOL_BLOCKS)
THREAD_KERNEL(adaptive_max_pool_backward, struct pool, SIMPLE_THREADS)
THREAD_KERNEL(pad, struct pad, SIMPLE_THREADS)
THREAD_KERNEL(cat, struct cat, SIMPLE_THREADS)

/* Ways: windows of any size, of 2 x 2 pixels that lie side by side, and as many as asked for. */
enum { POOL_WAYS = 3, POOL_KERNELS = 4 };
static const struct op_kernel kernels[POOL_WAYS][POOL_KERNELS] = {
    {{OP_AVG_POOL_FORWARD, DUET_KERNEL(avg_pool_forward)},
     {OP_AVG_POOL_BACKWARD, DUET_KERNEL(avg_pool_backward)},
     {OP_MAX_POOL_FORWARD, DUET_KERNEL(max_pool_forward)},
     {OP_MAX_POOL_BACKWARD, DUET_KERNEL(max_pool_backward)}},
    {{OP_AVG_POOL_FORWARD, DUET_KERNEL(avg_pool_2x2_forward)},
     {OP_AVG_POOL_BACKWARD, DUET_KERNEL(avg_pool_2x2_backward)},
     {OP_MAX_POOL_FORWARD, DUET_KERNEL(max_pool_2x2_forward)},
     {OP_MAX_POOL_BACKWARD, DUET_KERNEL(max_pool_2x2_backward)}},
    {{OP_ADAPTIVE_AVG_POOL_FORWARD, DUET_KERNEL(adaptive_avg_pool_forward)},
     {OP_ADAPTIVE_AVG_POOL_BACKWARD, DUET_KERNEL(adaptive_avg_pool_backward)},
     {OP_MAX_POOL_FORWARD, DUET_KERNEL(adaptive_max_pool_forward)},
     {OP_MAX_POOL_BACKWARD, DUET_KERNEL(adaptive_max_pool_backward)}},
};

const void *pool_kernel(int i) {
    if (i < 2) return i == 0 ? DUET_KERNEL(pad) : DUET_KERNEL(cat);
    i -= 2;
    return i < POOL_WAYS * POOL_KERNELS ? kernel_at(kernels[i / POOL_KERNELS], i % POOL_KERNELS)
                                        : NULL;
}

static int too_large(enum op op) {
    return fail(ERR_FAILED, "%s: more than 2^31 elements: give a smaller batch", op_name(op));
}

static int enqueue_pad(struct cuda_stream *stream, const struct op_args *args) {
    struct pad p;
    if (!pad_of(args, &p)) return too_large(OP_PAD);
    enqueue(stream, DUET_KERNEL(pad), grid_for(p.count, SIMPLE_THREADS), SIMPLE_THREADS, &p);
    return OK;
}

static int enqueue_cat(struct cuda_stream *stream, const struct op_args *args) {
    struct cat c;
    if (!cat_of(args, &c)) return too_large(OP_CAT);
    enqueue(stream, DUET_KERNEL(cat), grid_for(c.count, SIMPLE_THREADS), SIMPLE_THREADS, &c);
    return OK;
}

int enqueue_pool(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    struct pool p;
    if (op == OP_PAD) return enqueue_pad(stream, args);
    if (op == OP_CAT) return enqueue_cat(stream, args);
    if (!pool_of(op, args, &p)) return too_large(op);
    const void *kernel = kernel_of(kernels[p.adaptive ? 2 : pool_is_2x2(&p)], op);
    enqueue(stream, kernel, grid_for(p.count, SIMPLE_THREADS), SIMPLE_THREADS, &p);
    return OK;
}
