/* What the environment of a process, or the setting of a GPU, does to a program that uses CUDA: a
 * variable that is put right before CUDA reads it, and refusals whose reason CUDA does not say. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/advice.h"
#include "device/cuda/cuda.h"

/* CUDA maps the streams of a process to this many hardware queues. Two streams in one queue run one
 * after the other, so a wait for another rank at its head would hold up both: kernels behind an
 * allreduce, and the very write that is to end the wait when that rank has died. A device has four
 * streams. Shells of other programs set 1 to order communication and computation, which Duet orders
 * by events. */
enum { QUEUES_LEAST = 8 };

static const char *mps_folder(void) {
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    return folder ? folder : "/tmp/nvidia-mps";
}

int cuda_mps_is_there(void) {
    char path[512];
    snprintf(path, sizeof path, "%s/control", mps_folder());
    return !access(path, F_OK);
}

/* Under MPS the processes of a GPU share its queues, and each has those that it asks for to itself:
 * 60 processes that take the default, which is 2 there, or 3 that take 32. A process beyond that is
 * refused. */
void cuda_ask_for_queues(void) {
    const char *asked = getenv(CUDA_QUEUES_VARIABLE);
    if (!asked || atoi(asked) < QUEUES_LEAST)
        setenv(CUDA_QUEUES_VARIABLE, cuda_mps_is_there() ? CUDA_QUEUES_MPS : CUDA_QUEUES, 1);
}

/* Refusals that follow from the machine alone. */
static const char *machine_refusal(cudaError_t error) {
    switch (error) {
    case cudaErrorSystemNotReady:
        return "system not yet initialized: GPUs behind NVSwitches wait for the service "
               "nvidia-fabricmanager of the driver's version: systemctl start nvidia-fabricmanager";
    case cudaErrorSystemDriverMismatch:
        return "libcuda and the driver in the kernel have different versions: reboot after an "
               "update; in a container, start it anew";
    case cudaErrorCompatNotSupportedOnDevice:
        return "a libcuda newer than the driver was loaded, which only data center GPUs allow: "
               "take the folder cuda/compat out of LD_LIBRARY_PATH, or install a newer driver";
    case cudaErrorUnknown:
        return "unknown error: if nvidia-smi works, /dev/nvidia-uvm may be missing: "
               "nvidia-modprobe "
               "-u, or reboot";
    default: return NULL;
    }
}

static void mps_refusal(cudaError_t error, int gpu, char *text, size_t bytes) {
    if (error == cudaErrorMpsMaxClientsReached || error == cudaErrorMpsMaxConnectionsReached)
        snprintf(text, bytes,
                 "MPS has no room for another process on GPU %d: end others, take fewer ranks, "
                 "give each less by %s=%s, or unset CUDA_MPS_PIPE_DIRECTORY and end the daemon of "
                 "%s",
                 gpu, CUDA_QUEUES_VARIABLE, CUDA_QUEUES_MPS, mps_folder());
    else
        snprintf(text, bytes,
                 "the MPS daemon of %s does not serve this process: start it anew "
                 "(nvidia-cuda-mps-control -d), unset CUDA_MPS_PIPE_DIRECTORY",
                 mps_folder());
}

static void mode_refusal(int gpu, char *text, size_t bytes) {
    int mode = cudaComputeModeDefault;
    if (cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, gpu)) cudaGetLastError();
    if (mode == cudaComputeModeExclusiveProcess)
        snprintf(text, bytes,
                 "GPU %d takes one process at a time (compute mode EXCLUSIVE_PROCESS) and another "
                 "one has it: give each rank a GPU, use DataParallel, start MPS "
                 "(nvidia-cuda-mps-control -d), or set the mode back: nvidia-smi -i %d -c DEFAULT",
                 gpu, gpu);
    else if (mode == cudaComputeModeProhibited)
        snprintf(text, bytes,
                 "GPU %d takes no process (compute mode PROHIBITED): choose others by "
                 "CUDA_VISIBLE_DEVICES, or set the mode back: nvidia-smi -i %d -c DEFAULT",
                 gpu, gpu);
    else
        snprintf(text, bytes, "GPU %d is busy or broken: see nvidia-smi", gpu);
}

const char *cuda_refusal(cudaError_t error, int gpu, char *text, size_t bytes) {
    if (machine_refusal(error)) return machine_refusal(error);
    if (error >= cudaErrorMpsConnectionFailed && error <= cudaErrorMpsMaxConnectionsReached)
        mps_refusal(error, gpu, text, bytes);
    else if (error == cudaErrorDevicesUnavailable)
        mode_refusal(gpu, text, bytes);
    else
        return NULL;
    return text;
}

int cuda_enter(struct cuda_device *d) {
    char why[320];
    cudaError_t error = cudaSetDevice(d->gpu);
    /* Before CUDA 12 the context is made by the first call that needs one. */
    if (error == cudaSuccess) error = cudaFree(NULL);
    if (error == cudaSuccess) return OK;
    cudaGetLastError();
    const char *refusal = cuda_refusal(error, d->gpu, why, sizeof why);
    if (!refusal) /* the fault of a kernel that another thread has launched shows here, too */
        return fail(ERR_FAILED,
                    "choosing the GPU on %s: %s: %s; CUDA_LAUNCH_BLOCKING=1 names the kernel, if "
                    "one failed before",
                    d->head.name, cudaGetErrorName(error), cudaGetErrorString(error));
    return fail(ERR_FAILED, "device %s: %s: %s, or " ADVICE_CPU, d->head.name,
                cudaGetErrorName(error), refusal);
}
