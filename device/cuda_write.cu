/* A small value from the host into device memory: the step block of each step. It travels as the kernel's own
 * argument, so it is captured at the call, needs no pinned memory that would have to outlive the call, and
 * stays in order with the stream. */
#include <string.h>

#include "device/cuda.h"

enum { LIMIT = 256 }; /* bytes: what device.h promises, checked in stream.c */

struct value {
    unsigned char bytes[LIMIT];
};

static __global__ void write_value(unsigned char *destination, const __grid_constant__ struct value value, int bytes) {
    if ((int)threadIdx.x < bytes) destination[threadIdx.x] = value.bytes[threadIdx.x];
}

cudaError_t cuda_write_launch(cudaStream_t stream, void *destination, const void *value, size_t bytes) {
    struct value v;
    memcpy(v.bytes, value, bytes);
    memset(v.bytes + bytes, 0, LIMIT - bytes);
    write_value<<<1, LIMIT, 0, stream>>>(static_cast<unsigned char *>(destination), v, (int)bytes);
    return cudaGetLastError();
}

cudaError_t cuda_write_load(void) {
    struct cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(write_value));
}
