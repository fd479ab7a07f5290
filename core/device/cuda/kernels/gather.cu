/* The kernels of gather.h on the GPU, and their launches. */
#include "device/cuda/kernels/launch.h"
#include "device/cuda/kernels/gather.h"

THREAD_KERNEL(gather_rows, struct gather_rows, SIMPLE_THREADS)
THREAD_KERNEL(take_along, struct along, SIMPLE_THREADS)
THREAD_KERNEL(add_along, struct along, SIMPLE_THREADS)
THREAD_KERNEL(argsort, struct argsort, SIMPLE_THREADS)

const void *gather_kernel(int i) {
    const void *const kernels[] = {DUET_KERNEL(take_along), DUET_KERNEL(add_along),
                                   DUET_KERNEL(argsort), DUET_KERNEL(gather_rows)};
    return i < 4 ? kernels[i] : NULL;
}

int enqueue_gather(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    if (op == OP_GATHER_ROWS) {
        struct gather_rows g = gather_rows_of(args);
        enqueue_each(stream, DUET_KERNEL(gather_rows), g.all, &g);
    } else if (op == OP_ARGSORT) {
        struct argsort s = argsort_of(args);
        enqueue_each(stream, DUET_KERNEL(argsort), s.all, &s);
    } else {
        struct along t = along_of(op, args);
        enqueue_each(stream, op == OP_TAKE_ALONG ? DUET_KERNEL(take_along) : DUET_KERNEL(add_along),
                     t.all, &t);
    }
    return OK;
}
