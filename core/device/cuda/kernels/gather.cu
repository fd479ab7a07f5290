/* The kernel of gather.h on the GPU, and its launch. */
#include "device/cuda/kernels/gather.h"
#include "device/cuda/kernels/launch.h"

THREAD_KERNEL(gather_rows, struct gather_rows, SIMPLE_THREADS)

const void *gather_kernel(int i) {
    return i == 0 ? DUET_KERNEL(gather_rows) : NULL;
}

int enqueue_gather_rows(struct cuda_stream *stream, const struct op_args *args) {
    struct gather_rows g;
    if (!gather_rows_of(args, &g)) return refuse_size(OP_GATHER_ROWS);
    enqueue_each(stream, DUET_KERNEL(gather_rows), g.all, &g);
    return OK;
}
