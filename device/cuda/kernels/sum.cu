/* The kernel of kernels/sum.h and its launch. 256 threads with up to 64 registers: four blocks
 * to a multiprocessor, 8 vectors under way in each thread, 128 KiB in each multiprocessor. What
 * a GPU's memory needs to be busy is some 30 (its bandwidth times its delay, over the
 * multiprocessors). */
#include "device/cuda/kernels/sum_launch.h"
#include "device/cuda/kernels/launch.h"

static __global__ void __launch_bounds__(SUM_THREADS, 4)
    sum_kernel(const __grid_constant__ struct sum p) {
    struct place at = {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x};
    k_sum(&p, at);
}

int cuda_sum_load(const struct cuda_device *device) {
    struct cudaFuncAttributes attributes;
    CUDA_CHECK(cudaFuncGetAttributes(&attributes, DUET_KERNEL(sum_kernel)), "loading kernels",
               device->head.name);
    return OK;
}

int cuda_sum(struct cuda_stream *stream, struct sum *sum, const char *what) {
    if (sum->length == 0) return OK;
    sum_align(sum);
    enqueue(stream, DUET_KERNEL(sum_kernel), sum_blocks(sum), SUM_THREADS, sum);
    CUDA_STREAM_CHECK(stream, cudaGetLastError(), what);
    return OK;
}
