/* The kernel of bias.h on the GPU, and its launch after a product that a library computed. */
#include "device/cuda/kernels/bias.h"
#include "device/cuda/kernels/launch.h"

THREAD_KERNEL(add_bias, struct add_bias, SIMPLE_THREADS)

const void *bias_kernel(int i) {
    return i == 0 ? DUET_KERNEL(add_bias) : NULL;
}

int enqueue_add_bias(struct cuda_stream *stream, const struct tensor *y, const struct tensor *b) {
    struct add_bias a = add_bias_of(y, b);
    enqueue_each(stream, DUET_KERNEL(add_bias), a.count, &a);
    return OK;
}
