/* CUDA: the launch of OP_GATHER_SAMPLES, one kernel, device/cuda/kernels/gather.h. */
#include "device/cuda/kernels/gather.h"
#include "device/cuda/kernels/launch.h"

static __global__ void __launch_bounds__(SIMPLE_THREADS)
    gather_samples(const __grid_constant__ struct gather g) {
    struct place at = {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x};
    k_gather_samples(&g, at);
}

const void *gather_kernel(void) {
    return DUET_KERNEL(gather_samples);
}

int enqueue_gather(struct cuda_stream *stream, const struct op_args *args) {
    struct gather g;
    if (!gather_of(args, &g))
        return fail(ERR_FAILED, "%s: more than 2^31 pixels: give a smaller batch",
                    op_name(OP_GATHER_SAMPLES));
    enqueue(stream, gather_kernel(), grid_for(g.all_quads, SIMPLE_THREADS), SIMPLE_THREADS, &g);
    return OK;
}
