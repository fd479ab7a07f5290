/* Programmatic dependent launch: a kernel may be started when the blocks of the one before it on
 * the stream have ended, and waits inside (griddepcontrol.wait) until that one's memory can be
 * seen.
 * What it saves is part of the time from one kernel's end to the next one's begin, some 30 times a
 * step.
 *
 *     without   | kernel 1 | memory, launch | kernel 2 |
 *     with      | kernel 1 | memory | kernel 2 |
 *                            launch
 *
 * Each of Duet's kernels waits before it touches memory (here() in kernels/launch.h), so it reads
 * what it would read without: the bits are the same. Since every kernel waits for the one before
 * it, it also waits for all before that.
 *
 * Kernels are launched so where all of this holds (device.c finds out); elsewhere as ever:
 *   - the GPU is of compute capability 9.0 or later, and the code that it was given has the wait
 *   - the driver accepts the launch; one that it refuses is launched in the plain way
 *   - for recordings: a graph of two kernels was recorded and made when the device was opened, by
 *     a driver and a runtime of CUDA 12.3 or later, the first whose graphs know such an edge
 *   - the environment does not say DUET_DEPENDENT_LAUNCH=0 */
#include "device/cuda/cuda.h"

/* Only a kernel is followed so: what CUDA makes of an event, a flag or a copy in front of a
 * dependent launch is not documented. */
int cuda_may_depend(const struct cuda_stream *s) {
    const struct cuda_device *d = (const struct cuda_device *)s->head.device;
    return s->linked && d->dependent >= (s->capturing ? DEPENDENT_RECORDED : DEPENDENT_PLAIN);
}

void cuda_launch_dependent(struct cuda_stream *s, const void *kernel, dim3 grid, dim3 block,
                           void **params) {
    cudaLaunchAttribute dependent = {.id = cudaLaunchAttributeProgrammaticStreamSerialization,
                                     .val = {.programmaticStreamSerializationAllowed = 1}};
    const cudaLaunchConfig_t how = {.gridDim = grid,
                                    .blockDim = block,
                                    .stream = s->stream,
                                    .attrs = &dependent,
                                    .numAttrs = 1};
    cudaError_t error = cudaLaunchKernelExC(&how, kernel, params);
    if (s->capturing || (error != cudaErrorNotSupported && error != cudaErrorInvalidValue)) return;
    cudaGetLastError(); /* a refusal of the attribute: nothing was enqueued */
    (void)cudaLaunchKernel(kernel, grid, block, params, 0, s->stream);
}
