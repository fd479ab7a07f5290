/* The kernel of sum.h and its launch. A block has 256 threads of at most 64 registers, so four
 * blocks fit on a multiprocessor. With 8 vectors in flight per thread, 128 KiB of loads are in
 * flight. To keep its share of the memory busy, a multiprocessor needs about 30 KiB (bandwidth
 * times latency, divided by the multiprocessors). */
#include "device/cuda/kernels/sum_launch.h"
#include "device/cuda/kernels/launch.h"

static __global__ void __launch_bounds__(SUM_THREADS, 4)
    sum_kernel(const __grid_constant__ struct sum p) {
    k_sum(&p, here());
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
