/* Queries CUDA about itself and this machine's GPUs: see gpu.h. It calls only the CUDA runtime. The
 * versions of the other libraries are in their headers, so they are those of the build. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "doctor/cuda/gpu.h"

#ifdef HAVE_CUBLAS
#include <cublas_api.h>
#endif
#ifdef HAVE_NCCL
#include <nccl.h>
#endif

/* 13010 -> "13.1". */
static const char *version(int number, char text[16]) {
    snprintf(text, 16, "%d.%d", number / 1000, number % 1000 / 10);
    return text;
}

static void add(char *text, size_t bytes, const char *name, int major, int minor) {
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, ", %s %d.%d", name, major, minor);
}

void gpu_build(char *text, size_t bytes) {
    char number[16], found[100] = "";
#ifdef HAVE_CUBLAS
    add(found, sizeof found, "cublas", CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR);
#endif
#ifdef HAVE_NCCL
    add(found, sizeof found, "nccl", NCCL_MAJOR, NCCL_MINOR);
#endif
    (void)add;
    snprintf(text, bytes, "CUDA %s; at build time %s", version(CUDART_VERSION, number),
             *found ? found + 2 : "nothing");
}

int gpu_driver(char *text, size_t bytes) {
    char number[16];
    int driver = 0;
    cudaError_t error = cudaDriverGetVersion(&driver);
    if (error != cudaSuccess || driver == 0) {
        cudaGetLastError();
        return fail(ERR_USAGE,
                    "no NVIDIA driver on this machine: install one, or use --device cpu");
    }
    snprintf(text, bytes, "for CUDA %s", version(driver, number));
    return OK;
}

static int failed(cudaError_t error, int gpu) {
    cudaGetLastError();
    return fail(ERR_FAILED, "GPU %d: %s: %s", gpu, cudaGetErrorName(error),
                cudaGetErrorString(error));
}

int gpu_facts(int gpu, struct gpu_facts *facts) {
    struct cudaDeviceProp p;
    int mode = cudaComputeModeDefault;
    cudaError_t error = cudaGetDeviceProperties(&p, gpu);
    if (error != cudaSuccess) return failed(error, gpu);
    error = cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, gpu);
    if (error != cudaSuccess) return failed(error, gpu);
    *facts = (struct gpu_facts){.major = p.major,
                                .minor = p.minor,
                                .multiprocessors = p.multiProcessorCount,
                                .memory = p.totalGlobalMem,
                                .exclusive = mode == cudaComputeModeExclusiveProcess};
    snprintf(facts->name, sizeof facts->name, "%.63s", p.name);
    return OK;
}

int gpu_reaches(int from, int to) {
    int possible = 0;
    if (cudaDeviceCanAccessPeer(&possible, from, to) != cudaSuccess) cudaGetLastError();
    return possible;
}
