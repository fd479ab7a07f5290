/* The spin kernel on the GPU, and its launch; spin.h has the kernel's source. A block has 512
 * threads with at most 64 registers, so a multiprocessor holds two. */
#include "allreduce/cuda/spin_kernel.h"

static __global__ void __launch_bounds__(SPIN_THREADS, 2)
    spin_kernel(const __grid_constant__ struct spin_call p) {
    __shared__ struct spin_shared shared;
    struct thread_index at = {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x};
    DUET_BLOCK_KERNEL(at);
    k_spin(&p, &shared, at);
}

int spin_load(const struct cuda_device *d, int *resident) {
    struct cudaFuncAttributes attributes;
    int blocks = 0;
    CUDA_CHECK(cudaFuncGetAttributes(&attributes, DUET_KERNEL(spin_kernel)), "loading kernels",
               d->head.name);
    CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, DUET_KERNEL(spin_kernel),
                                                             SPIN_THREADS, 0),
               "room for a kernel", d->head.name);
    *resident = blocks * d->multiprocessors;
    return OK;
}

cudaError_t spin_launch(cudaStream_t stream, const struct spin_call *call) {
    void *params[1] = {(void *)call};
    dim3 grid = {call->channels, 1, 1}, block = {SPIN_THREADS, 1, 1};
    return cudaLaunchKernel(DUET_KERNEL(spin_kernel), grid, block, params, 0, stream);
}
