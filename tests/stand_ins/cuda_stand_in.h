/* A stand-in for the CUDA runtime: the functions that the C files of device/cuda call, over host
 * memory, so that their logic runs where there is no GPU. A program that defines them all links
 * none from the real library. tests/README.md says when to take this stand-in and when another.
 *
 * It is no GPU: memory changes at the call, and it knows nothing of a driver beyond its
 * documentation. What it has that the emulated runtime (cuda_emulation) has not is control over
 * each call and over time:
 *
 *     fail_at = k   the k-th call from now fails, once: whatever call that is
 *     fault         what a broken context returns from every call
 *     work_ns       how long each piece of work takes: NEVER is for ever
 *     still_ns      stops the clock
 *
 * Time is the host's clock plus an offset. A stream is busy until some moment; work moves that
 * moment on by `work_ns`, and an event remembers it. What is made and not given back is counted
 * (stand_in_left). */
#ifndef TESTS_STAND_INS_CUDA_STAND_IN_H
#define TESTS_STAND_INS_CUDA_STAND_IN_H

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/cuda/cuda.h"
#include "device/cuda/kernels/sum_launch.h"
#include "tests/device/shared.h"

struct CUstream_st {
    int64_t busy_until;
    struct CUgraph_st *captured;
    int broken;
};
struct CUevent_st {
    int64_t at;
    int recorded, timed;
};

/* What a captured stream records: an op, a copy (to, from, bytes) or the record of an event. */
struct node {
    enum op op;
    struct op_args args;
    void *to;
    const void *from;
    size_t bytes;
    cudaEvent_t event;
};
enum { NODES = 64 };
struct CUgraph_st {
    int count;
    struct node node[NODES];
};
struct CUgraphExec_st {
    struct CUgraph_st graph;
    int uploaded;
};

enum { SLABS = 16 };

static struct gpu {
    void *slab[SLABS]; /* what cudaMalloc has given out */
    int count;         /* GPUs */
    int driver;        /* version of the driver, 0: none */
    size_t total;      /* memory of a GPU, in bytes */
    /* Failures that a test sets: of everything, and of single calls. */
    cudaError_t fault, count_error, malloc_error, ipc_error, close_error;
    int fail_at;          /* the fail_at-th call from now fails; 0: none */
    cudaError_t last;     /* an IPC close's error, until somebody asks for the last error */
    int pageable;         /* 1: all host memory is pageable */
    int64_t work_ns;      /* what a piece of work takes; NEVER: it never ends */
    int64_t still_ns;     /* not 0: the time, which stands still */
    int current;          /* the current GPU */
    cudaStream_t capture; /* the stream that is captured, NULL if none; tests have one thread */
    /* What exists now, and was not given back. */
    int memory, pinned, events, streams, opened, math, graphs;
    /* How often it was called: copies, IPC opens, peer access. */
    int copies, opens, pairs;
} gpu;

static const int64_t OFFSET_NS = 7123456789; /* the GPU's clock is not the host's */
static const int64_t NEVER = INT64_MAX;

static void stand_in_reset(void) {
    memset(&gpu, 0, sizeof gpu);
    gpu.count = 1, gpu.driver = CUDART_VERSION, gpu.total = (size_t)80 << 30;
}

static int stand_in_left(void) { /* counts what was not given back */
    return gpu.memory + gpu.pinned + gpu.events + gpu.streams + gpu.opened + gpu.math + gpu.graphs;
}

static cudaError_t enter(void) {
    if (gpu.fault) return gpu.fault;
    return gpu.fail_at && --gpu.fail_at == 0 ? cudaErrorUnknown : cudaSuccess;
}
#define ENTER()                   \
    do {                          \
        cudaError_t e_ = enter(); \
        if (e_) return e_;        \
    } while (0)

/* For calls that wait, ask or allocate: they are forbidden while the thread captures, and break the
 * capture. */
static cudaError_t enter_unsafe(void) {
    if (gpu.capture) return gpu.capture->broken = 1, cudaErrorStreamCaptureUnsupported;
    return enter();
}
#define ENTER_UNSAFE()                   \
    do {                                 \
        cudaError_t e_ = enter_unsafe(); \
        if (e_) return e_;               \
    } while (0)

/* 1 if the call is recorded and not run. Then node is added, unless the capture is broken. */
static int is_captured(cudaStream_t s, const struct node *node, cudaError_t *error) {
    if (!s->captured) return 0;
    *error = s->broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
    if (!s->broken) s->captured->node[s->captured->count++ % NODES] = *node;
    return 1;
}

static int64_t gpu_now(void) {
    return (gpu.still_ns ? gpu.still_ns : now_ns()) + OFFSET_NS;
}

static void work(cudaStream_t s) {
    int64_t begin = s->busy_until > gpu_now() ? s->busy_until : gpu_now();
    s->busy_until = begin == NEVER || gpu.work_ns == NEVER ? NEVER : begin + gpu.work_ns;
}

cudaError_t cudaGetLastError(void) { /* clears the error, unless it is the context's own */
    cudaError_t last = gpu.fault ? gpu.fault : gpu.last;
    return gpu.last = cudaSuccess, last;
}
const char *cudaGetErrorName(cudaError_t e) {
    return e == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "cudaErrorOther";
}
const char *cudaGetErrorString(cudaError_t e) {
    return e == cudaErrorIllegalAddress ? "an illegal memory access" : "another error";
}
cudaError_t cudaDriverGetVersion(int *v) {
    return *v = gpu.driver, cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v) {
    return *v = CUDART_VERSION, cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *n) {
    ENTER();
    return *n = gpu.count, gpu.count_error;
}
cudaError_t cudaSetDevice(int device) {
    ENTER();
    return gpu.current = device, cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    ENTER();
    memset(p, 0, sizeof *p);
    p->major = 9, p->multiProcessorCount = 132;
    memset(p->uuid.bytes, device + 1, sizeof p->uuid.bytes);
    strcpy(p->name, "Stand-in");
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    ENTER();
    return *least = 0, *greatest = -5, cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    (void)attribute, (void)device;
    return *value = 0, cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b) {
    return *can = a != b, cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    (void)flags;
    gpu.pairs++;
    return peer == gpu.current ? cudaErrorInvalidDevice : cudaSuccess;
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    gpu.pairs--;
    return peer == gpu.current ? cudaErrorInvalidDevice : cudaSuccess;
}

/* Memory. */
cudaError_t cudaMemGetInfo(size_t *free_now, size_t *total) {
    ENTER();
    return *free_now = gpu.total / 2, *total = gpu.total, cudaSuccess;
}
cudaError_t cudaMalloc(void **out, size_t bytes) {
    ENTER_UNSAFE();
    if (gpu.malloc_error) return gpu.malloc_error;
    *out = aligned_alloc(2 << 20, bytes);
    /* kept in a list, so that what a stuck device keeps is no leak to a sanitizer */
    for (int i = 0; i < SLABS && *out; i++)
        if (!gpu.slab[i]) {
            gpu.slab[i] = *out;
            break;
        }
    gpu.memory++;
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *memory) {
    if (!memory) return gpu.fault;
    for (int i = 0; i < SLABS; i++)
        if (gpu.slab[i] == memory) gpu.slab[i] = NULL;
    return free(memory), gpu.memory--, gpu.fault;
}
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    ENTER_UNSAFE();
    (void)flags;
    if (gpu.malloc_error) return gpu.malloc_error;
    *out = malloc(bytes);
    gpu.pinned++;
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *memory) {
    return free(memory), gpu.pinned--, gpu.fault;
}
cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t s) {
    ENTER();
    return memset(memory, byte, bytes), work(s), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s) {
    ENTER();
    struct node node = {.to = to, .from = from, .bytes = bytes};
    cudaError_t error;
    if (is_captured(s, &node, &error)) return error;
    (void)kind, gpu.copies++;
    return memcpy(to, from, bytes), work(s), cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void *to, int to_gpu, const void *from, int from_gpu, size_t bytes,
                                cudaStream_t s) {
    ENTER();
    if (to_gpu == from_gpu) return cudaErrorInvalidDevice;
    return memcpy(to, from, bytes), work(s), cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
    ENTER();
    memset(a, 0, sizeof *a);
    a->type = p && !gpu.pageable ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

/* A handle holds the address, as if the peer's slab were mapped at the same place here. */
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory) {
    ENTER();
    memset(handle, 0, sizeof *handle);
    return memcpy(handle, &memory, sizeof memory), cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle, unsigned flags) {
    ENTER();
    (void)flags;
    if (gpu.ipc_error) return gpu.ipc_error;
    memcpy(out, &handle, sizeof *out);
    return gpu.opened++, gpu.opens++, cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void *memory) {
    (void)memory;
    gpu.opened--;
    return gpu.last = gpu.fault ? gpu.fault : gpu.close_error;
}

#include "tests/stand_ins/cuda_stand_in_stream.h"

/* ---- devices on it ---- */
static const uint64_t MEMORY = 80 << 20;

static inline struct device_config config_of(int index, int devices) {
    struct device_config config = test_config(DEVICE_CUDA, index);
    config.devices = devices;
    config.memory_bytes = MEMORY;
    return config;
}

static inline struct device *open_one(int index, int devices) {
    struct device_config config = config_of(index, devices);
    struct device *device;
    MUST(device_open(&device, &config));
    return device;
}

#endif
