/* CUDA: the bias behind a product made by a library; kernels/bias.h has the text. */
#include "device/cuda/kernels/bias.h"
#include "device/cuda/kernels/launch.h"
#include "device/cuda/library.h"

static __global__ void __launch_bounds__(SIMPLE_THREADS)
    add_bias(const __grid_constant__ struct add_bias p) {
    struct place at = {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x};
    k_add_bias(&p, at);
}

const void *add_bias_kernel(void) {
    return DUET_KERNEL(add_bias);
}

int enqueue_add_bias(struct cuda_stream *stream, const struct tensor *y, const struct tensor *b) {
    struct add_bias a;
    if (!add_bias_of(y, b, &a))
        return fail(ERR_FAILED, "bias: 2^31 elements or more: give a smaller batch");
    enqueue(stream, DUET_KERNEL(add_bias), grid_for(a.count, SIMPLE_THREADS), SIMPLE_THREADS, &a);
    return OK;
}
