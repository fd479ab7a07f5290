/* The kernel of gather.h on the GPU, and its launch. */
#include "device/cuda/kernels/gather.h"
#include "device/cuda/kernels/launch.h"

THREAD_KERNEL(gather_samples, struct gather, SIMPLE_THREADS)

const void *gather_kernel(int i) {
    return i == 0 ? DUET_KERNEL(gather_samples) : NULL;
}

int enqueue_gather(struct cuda_stream *stream, const struct op_args *args) {
    struct gather g;
    if (!gather_of(args, &g))
        return fail(ERR_FAILED, "%s: more than 2^31 pixels: give a smaller batch",
                    op_name(OP_GATHER_SAMPLES));
    enqueue(stream, DUET_KERNEL(gather_samples), grid_for(g.all_quads, SIMPLE_THREADS),
            SIMPLE_THREADS, &g);
    return OK;
}
