/* What the environment of a process, or the setting of a GPU, does to a program that uses CUDA: a
 * variable that is put right before CUDA reads it, and refusals whose reason CUDA does not say. */
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/cuda.h"

/* CUDA maps the streams of a process to this many hardware queues. Two streams in one queue run one
 * after the other, so a wait for another rank at its head would hold up both: kernels behind an
 * allreduce, and the very write that is to end the wait when that rank has died. A device has four
 * streams. Shells of other programs set 1 to order communication and computation, which Duet orders
 * by events. */
enum { QUEUES_LEAST = 8 };

void cuda_ask_for_queues(void) {
    const char *asked = getenv(CUDA_QUEUES_VARIABLE);
    if (!asked || atoi(asked) < QUEUES_LEAST) setenv(CUDA_QUEUES_VARIABLE, CUDA_QUEUES, 1);
}

const char *cuda_refusal(cudaError_t error, int gpu, char *text, size_t bytes) {
    const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
    int mode = cudaComputeModeDefault;
    if (error >= cudaErrorMpsConnectionFailed && error <= cudaErrorMpsMaxConnectionsReached) {
        snprintf(text, bytes,
                 "the MPS daemon of %s does not serve this process: start it anew "
                 "(nvidia-cuda-mps-control -d), unset CUDA_MPS_PIPE_DIRECTORY",
                 pipe ? pipe : "/tmp/nvidia-mps");
        return text;
    }
    if (error != cudaErrorDevicesUnavailable) return NULL;
    if (cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, gpu)) cudaGetLastError();
    if (mode == cudaComputeModeExclusiveProcess)
        snprintf(text, bytes,
                 "GPU %d takes one process at a time (compute mode EXCLUSIVE_PROCESS) and another "
                 "one has it: give each rank a GPU, take --mode dp, start MPS "
                 "(nvidia-cuda-mps-control -d), or set the mode back: nvidia-smi -i %d -c DEFAULT",
                 gpu, gpu);
    else if (mode == cudaComputeModeProhibited)
        snprintf(text, bytes,
                 "GPU %d takes no process (compute mode PROHIBITED): choose others by "
                 "CUDA_VISIBLE_DEVICES, or set the mode back: nvidia-smi -i %d -c DEFAULT",
                 gpu, gpu);
    else
        snprintf(text, bytes, "GPU %d is busy or broken: see nvidia-smi", gpu);
    return text;
}

int cuda_enter(struct cuda_device *d) {
    char why[320];
    cudaError_t error = cudaSetDevice(d->gpu);
    /* Before CUDA 12 the context is made by the first call that needs one. */
    if (error == cudaSuccess) error = cudaFree(NULL);
    if (error == cudaSuccess) return OK;
    cudaGetLastError();
    if (!cuda_refusal(error, d->gpu, why, sizeof why))
        return cuda_fail(error, "choosing the GPU", d->head.name);
    return fail(ERR_FAILED, "device %s: %s: %s, or use --device cpu", d->head.name,
                cudaGetErrorName(error), why);
}
