/* Writes a small value from the host to device memory, such as the step block of each step. The
 * value is the kernel's own argument. So it is captured at the call, needs no pinned memory that
 * outlives the call, and stays in order with the stream. */
#include <string.h>

#include "device/cuda/kernels/launch.h"

enum { LIMIT = 256 }; /* bytes: what device.h promises, checked by device/stream.c */

struct write {
    unsigned char *destination;
    unsigned bytes;
    unsigned char value[LIMIT];
};

static __global__ void __launch_bounds__(LIMIT)
    write_value(const __grid_constant__ struct write w) {
    if (threadIdx.x < w.bytes) w.destination[threadIdx.x] = w.value[threadIdx.x];
}

cudaError_t cuda_write_launch(cudaStream_t stream, void *destination, const void *value,
                              size_t bytes) {
    struct write w;
    w.destination = static_cast<unsigned char *>(destination);
    w.bytes = (unsigned)bytes;
    memcpy(w.value, value, bytes);
    memset(w.value + bytes, 0, LIMIT - bytes);
    void *params[1] = {&w};
    return cudaLaunchKernel(DUET_KERNEL(write_value), dim3(1), dim3(LIMIT), params, 0, stream);
}

cudaError_t cuda_write_load(void) {
    struct cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, DUET_KERNEL(write_value));
}
