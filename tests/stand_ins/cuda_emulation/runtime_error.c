/* Errors. Each thread has its last error. The fault of a kernel belongs to the context, not to a
 * thread: it stays (struct gpu), and every call on that GPU returns it. */
#include "tests/stand_ins/cuda_emulation/emulation.h"

cudaError_t give(cudaError_t error) {
    if (error != cudaSuccess) emulated_self.last_error = error;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    int fault = emulated.count && !emulated.forked ? current_gpu()->fault : 0;
    return fault ? (cudaError_t)fault : emulated_self.last_error;
}

cudaError_t cudaGetLastError(void) {
    cudaError_t error = cudaPeekAtLastError();
    emulated_self.last_error = cudaSuccess;
    return error;
}

static const struct {
    cudaError_t code;
    const char *name, *text;
} words[] = {
#define WORD(code, text) \
    { code, #code, text }
    WORD(cudaSuccess, "no error"),
    WORD(cudaErrorInvalidValue, "invalid argument"),
    WORD(cudaErrorMemoryAllocation, "out of memory"),
    WORD(cudaErrorInitializationError, "initialization error"),
    WORD(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    WORD(cudaErrorInsufficientDriver,
         "CUDA driver version is insufficient for CUDA runtime version"),
    WORD(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    WORD(cudaErrorInvalidDeviceFunction, "invalid device function"),
    WORD(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    WORD(cudaErrorInvalidDevice, "invalid device ordinal"),
    WORD(cudaErrorDeviceUninitialized, "invalid device context"),
    WORD(cudaErrorMapBufferObjectFailed, "mapping of buffer object failed"),
    WORD(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    WORD(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    WORD(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    WORD(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    WORD(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    WORD(cudaErrorNotReady, "device not ready"),
    WORD(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    WORD(cudaErrorMisalignedAddress, "misaligned address"),
    WORD(cudaErrorLaunchFailure, "unspecified launch failure"),
    WORD(cudaErrorInvalidKernelImage, "device kernel image is invalid"),
    WORD(cudaErrorHostMemoryAlreadyRegistered,
         "part or all of the requested memory range is already mapped"),
    WORD(cudaErrorHostMemoryNotRegistered,
         "pointer does not correspond to a registered memory region"),
    WORD(cudaErrorNotPermitted, "operation not permitted"),
    WORD(cudaErrorNotSupported, "operation not supported"),
    WORD(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    WORD(cudaErrorSystemNotReady, "system not yet initialized"),
    WORD(cudaErrorUnknown, "unknown error"),
};

const char *cudaGetErrorName(cudaError_t code) {
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].code == code) return words[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t code) {
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].code == code) return words[i].text;
    return "unrecognized error code";
}
