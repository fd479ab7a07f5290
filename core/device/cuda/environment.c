/* Handles the environment of a process and the settings of a GPU that affect a CUDA program. It
 * corrects a variable before CUDA reads it, and has the messages that refuse a GPU. docs/cuda.md,
 * "Environment", explains them. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/advice.h"
#include "device/cuda/cuda.h"

/* CUDA maps the streams of a process to this many hardware queues. Two streams in one queue run one
 * after the other, so a wait for another rank at the head of the queue would hold up both: kernels
 * after an allreduce, and the very write that should end the wait after that rank has died. A
 * device has four streams. Shells of other programs set 1 to order communication and computation,
 * which Duet orders by events. */
enum { QUEUES_LEAST = 8 };

int cuda_mps_is_there(void) {
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[512];
    snprintf(path, sizeof path, "%s/control", folder ? folder : "/tmp/nvidia-mps");
    return !access(path, F_OK);
}

/* Under MPS the processes of a GPU share its queues, and each process owns the number that it
 * requests: 60 processes fit with the default, which is 2 there, or 3 with 32. A process beyond
 * that is refused. */
void cuda_ask_for_queues(void) {
    const char *asked = getenv(CUDA_QUEUES_VARIABLE);
    if (!asked || atoi(asked) < QUEUES_LEAST)
        setenv(CUDA_QUEUES_VARIABLE, cuda_mps_is_there() ? CUDA_QUEUES_MPS : CUDA_QUEUES, 1);
}

/* 1: the reason is in the machine, the driver or the GPU's settings. */
static int is_refusal(cudaError_t error) {
    return error == cudaErrorSystemNotReady || error == cudaErrorSystemDriverMismatch ||
           error == cudaErrorCompatNotSupportedOnDevice || error == cudaErrorUnknown ||
           error == cudaErrorDevicesUnavailable ||
           (error >= cudaErrorMpsConnectionFailed && error <= cudaErrorMpsMaxConnectionsReached);
}

int cuda_enter(struct cuda_device *d) {
    cudaError_t error = cudaSetDevice(d->gpu);
    /* Before CUDA 12 the context is made by the first call that needs one. */
    if (error == cudaSuccess) error = cudaFree(NULL);
    if (error == cudaSuccess) return OK;
    cudaGetLastError();
    if (!is_refusal(error)) /* may also be the fault of a kernel that another thread launched */
        return fail(ERR_FAILED,
                    "choosing the GPU on %s: %s: %s; CUDA_LAUNCH_BLOCKING=1 names the kernel, if "
                    "one failed before",
                    d->head.name, cudaGetErrorName(error), cudaGetErrorString(error));
    return fail(ERR_FAILED, "device %s: %s: %s: " CUDA_ADVICE, d->head.name,
                cudaGetErrorName(error), cudaGetErrorString(error));
}
