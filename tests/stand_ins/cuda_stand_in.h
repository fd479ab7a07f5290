/* A stand-in for the CUDA runtime: the functions that device/cuda_*.c call, over host memory, so
 * that their logic runs where there is no GPU. A program that defines them all takes none from
 * the real library. It is no GPU: memory changes at the call, and what is true of a driver
 * beyond its documentation it cannot know.
 *
 * Time is the host's clock plus an offset. A stream is busy until some point; work moves that
 * point on by `work_ns`, an event remembers it. Failures: `fault` is what a broken context
 * answers to everything; `fail_at` = k lets the k-th call from now fail, once. What is made and
 * not given back is counted. */
#ifndef TESTS_CUDA_STAND_IN_H
#define TESTS_CUDA_STAND_IN_H

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/cuda/cuda.h"
#include "tests/device/shared.h"

struct CUstream_st {
    int64_t busy_until;
    struct CUgraph_st *taken_down;
    int broken;
};
struct CUevent_st {
    int64_t at;
    int recorded, timed;
};

/* What a captured stream takes down: an op, a copy (to, from, bytes) or the record of an event. */
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
    void *slab[SLABS];
    int count, driver; /* GPUs; version of the driver, 0: none */
    cudaError_t fault, count_error, malloc_error, ipc_error, close_error;
    cudaError_t last; /* of an IPC close: who launches next and asks would find it */
    int pageable;     /* 1: memory is none that the runtime knows */
    int copies, fail_at;
    int64_t work_ns;  /* INT64_MAX: work that never ends */
    int64_t still_ns; /* not 0: the time, which stands still */
    size_t total;
    int current, memory, pinned, events, streams, opened, opens, math, pairs, graphs;
    cudaStream_t capture; /* of the one thread that these tests have; NULL: none */
} gpu;

static const int64_t OFFSET_NS = 7123456789; /* the GPU's clock is another one than the host's */
static const int64_t NEVER = INT64_MAX;

static void stand_in_reset(void) {
    memset(&gpu, 0, sizeof gpu);
    gpu.count = 1, gpu.driver = CUDART_VERSION, gpu.total = (size_t)80 << 30;
}

static int stand_in_left(void) { /* what was not given back */
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

/* Calls that wait, ask or allocate are forbidden while the thread captures, and break the
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

/* Is the call taken down and not run? Then node is added, unless the capture is broken. */
static int is_taken_down(cudaStream_t s, const struct node *node, cudaError_t *error) {
    if (!s->taken_down) return 0;
    *error = s->broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
    if (!s->broken) s->taken_down->node[s->taken_down->count++ % NODES] = *node;
    return 1;
}

static int64_t gpu_now(void) {
    return (gpu.still_ns ? gpu.still_ns : now_ns()) + OFFSET_NS;
}

static void work(cudaStream_t s) {
    int64_t begin = s->busy_until > gpu_now() ? s->busy_until : gpu_now();
    s->busy_until = begin == NEVER || gpu.work_ns == NEVER ? NEVER : begin + gpu.work_ns;
}

cudaError_t cudaGetLastError(void) { /* takes it away, where it is not the context's */
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
cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b) {
    return *can = a != b, cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    (void)flags;
    gpu.pairs++;
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
    /* known to somebody: what a stuck device keeps is no leak */
    for (int i = 0; i < SLABS && *out; i++)
        if (!gpu.slab[i]) {
            gpu.slab[i] = *out;
            break;
        }
    gpu.memory++;
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *memory) {
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
    if (is_taken_down(s, &node, &error)) return error;
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

/* A handle holds the address, as if the peer's slab were mapped where it is. */
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

/* Streams and events. */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) {
    ENTER();
    (void)priority;
    if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *s = calloc(1, sizeof **s);
    return gpu.streams++, cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
    return cudaStreamCreateWithPriority(s, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    return free(s), gpu.streams--, gpu.fault;
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
    ENTER_UNSAFE();
    return s->busy_until > gpu_now() ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    ENTER();
    *e = calloc(1, sizeof **e);
    (*e)->timed = !(flags & cudaEventDisableTiming);
    return gpu.events++, cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e) {
    return cudaEventCreateWithFlags(e, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    return free(e), gpu.events--, gpu.fault;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    ENTER();
    /* an edge inside the graph: not wanted here */
    if (s->taken_down) return s->broken = 1, cudaErrorStreamCaptureUnsupported;
    e->at = s->busy_until > gpu_now() ? s->busy_until : gpu_now();
    return e->recorded = 1, cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags) {
    struct node node = {.event = e};
    cudaError_t error;
    if (flags != cudaEventRecordExternal) return cudaEventRecord(e, s);
    ENTER();
    return is_taken_down(s, &node, &error) ? error : cudaErrorIllegalState;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    ENTER_UNSAFE();
    return e->recorded && e->at > gpu_now() ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
    ENTER();
    (void)flags;
    if (e->recorded && e->at > s->busy_until) s->busy_until = e->at;
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    ENTER();
    if (!from->recorded || !to->recorded || !from->timed || !to->timed)
        return cudaErrorInvalidResourceHandle;
    if (from->at > gpu_now() || to->at > gpu_now()) return cudaErrorNotReady;
    return *ms = (float)((double)(to->at - from->at) / 1e6), cudaSuccess;
}

/* What the files of kernels bring: an op is the host's reference, in its place on the stream. */
cudaError_t cuda_write_launch(cudaStream_t s, void *to, const void *value, size_t bytes) {
    return cudaMemcpyAsync(to, value, bytes, cudaMemcpyHostToDevice, s);
}
cudaError_t cuda_write_load(void) {
    return enter();
}
int cuda_load_kernels(struct cuda_device *device) {
    CUDA_CHECK(enter(), "loading kernels", device->head.name);
    return OK;
}
int cuda_math_open(struct cuda_stream *s) {
    CUDA_CHECK(enter(), "math", s->head.device->name);
    if (!s->workspace) return fail(ERR_FAILED, "math without a workspace");
    s->math = (struct cuda_math *)&gpu;
    return gpu.math++, OK;
}
void cuda_math_close(struct cuda_stream *s) {
    if (s->math) gpu.math--;
    s->math = NULL;
}
int cuda_launch_op(struct cuda_stream *s, enum op op, const struct op_args *args) {
    struct node node = {.op = op, .args = *args};
    cudaError_t error = enter();
    CUDA_STREAM_CHECK(s, error, op_name(op));
    if (is_taken_down(s->stream, &node, &error)) {
        CUDA_STREAM_CHECK(s, error, op_name(op));
        return OK;
    }
    host_reference_kernels[op](args);
    work(s->stream);
    return OK;
}

/* Graphs. */
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
    ENTER();
    if (mode != cudaStreamCaptureModeThreadLocal || s->taken_down || gpu.capture)
        return cudaErrorIllegalState;
    s->taken_down = calloc(1, sizeof *s->taken_down);
    gpu.capture = s;
    return gpu.graphs++, cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph) {
    int broken = s->broken;
    if (!s->taken_down) return cudaErrorIllegalState;
    *graph = broken ? NULL : s->taken_down;
    if (broken) free(s->taken_down), gpu.graphs--;
    s->taken_down = NULL, s->broken = 0, gpu.capture = NULL;
    return broken ? cudaErrorStreamCaptureInvalidated : enter();
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                 unsigned long long flags) {
    ENTER();
    (void)flags;
    *out = calloc(1, sizeof **out);
    (*out)->graph = *graph;
    return gpu.graphs++, cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t s) {
    ENTER();
    return (void)s, exec->uploaded++, cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
    ENTER();
    if (!exec->uploaded) return cudaErrorInvalidValue; /* allowed, but slow the first time */
    for (int i = 0; i < exec->graph.count; i++) {
        struct node *n = &exec->graph.node[i];
        if (n->event)
            cudaEventRecord(n->event, s);
        else if (n->to)
            cudaMemcpyAsync(n->to, n->from, n->bytes, cudaMemcpyDefault, s);
        else
            host_reference_kernels[n->op](&n->args), work(s);
    }
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return free(graph), gpu.graphs--, gpu.fault;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    return free(exec), gpu.graphs--, gpu.fault;
}

/* Devices on it. */
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
