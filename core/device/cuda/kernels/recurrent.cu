/* The kernels of recurrent.h on the GPU, and their launches. */
#include "device/cuda/kernels/recurrent.h"
#include "device/cuda/kernels/launch.h"

/* Its threads work together only through global memory: a block's barrier orders that too. */
#define RECURRENT_KERNEL(name)                                  \
    static __global__ void __launch_bounds__(RECURRENT_THREADS) \
        name(const __grid_constant__ struct recurrence r) {     \
        struct thread_index at = here();                        \
        DUET_BLOCK_KERNEL(at);                                  \
        k_##name(&r, at);                                       \
    }

RECURRENT_KERNEL(recurrent_forward)
RECURRENT_KERNEL(recurrent_backward)

static const struct op_kernel kernels[] = {
    {OP_RECURRENT_FORWARD, DUET_KERNEL(recurrent_forward)},
    {OP_RECURRENT_BACKWARD, DUET_KERNEL(recurrent_backward)},
};

FAMILY_KERNELS(recurrent)

int enqueue_recurrent(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    struct recurrence r = recurrence_of(op, args);
    enqueue(stream, kernel_of(kernels, op), grid_for((size_t)r.samples, 1), RECURRENT_THREADS, &r);
    return OK;
}
