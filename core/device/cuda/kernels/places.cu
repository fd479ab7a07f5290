/* The kernels of places.h on the GPU, and their launches. */
#include "device/cuda/kernels/launch.h"
#include "device/cuda/kernels/places.h"

THREAD_KERNEL(gather_rows, struct gather_rows, SIMPLE_THREADS)
THREAD_KERNEL(take_along, struct along, SIMPLE_THREADS)
THREAD_KERNEL(add_along, struct along, SIMPLE_THREADS)
THREAD_KERNEL(argsort, struct argsort, SIMPLE_THREADS)

const void *places_kernel(int i) {
    const void *const kernels[] = {DUET_KERNEL(take_along), DUET_KERNEL(add_along),
                                   DUET_KERNEL(argsort), DUET_KERNEL(gather_rows)};
    return i < 4 ? kernels[i] : NULL;
}

int enqueue_places(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    struct along t;
    struct argsort s;
    struct gather_rows g;
    if (op == OP_GATHER_ROWS) {
        if (!gather_rows_of(args, &g)) return refuse_size(op);
        enqueue_each(stream, DUET_KERNEL(gather_rows), g.all, &g);
        return OK;
    }
    if (op == OP_ARGSORT) {
        if (!argsort_of(args, &s)) return refuse_size(op);
        enqueue_each(stream, DUET_KERNEL(argsort), s.all, &s);
        return OK;
    }
    if (!along_of(op, args, &t)) return refuse_size(op);
    enqueue_each(stream, op == OP_TAKE_ALONG ? DUET_KERNEL(take_along) : DUET_KERNEL(add_along),
                 t.all, &t);
    return OK;
}
