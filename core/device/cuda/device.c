/* Opens a GPU: finds it, takes a slab of its memory, loads the kernels, makes the streams. The file
 * also has the table that the rest of Duet sees (device/table.h).
 *
 * A device is not a GPU. A job with N devices on a machine with G GPUs puts device i on GPU i mod
 * G, so several devices may share one GPU. Each has its own slab and streams; all slabs and streams
 * of a process share the GPU's one context. If no GPU is found, the error names the reason in one
 * line: no driver, a driver too old for this program, no GPU, or a GPU too old for its kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/advice.h"
#include "device/cuda/cuda.h"
#include "device/cuda/library.h"

enum { OLDEST_MAJOR = 8 }; /* the kernels are built for compute capability 8.0 and up: mk/cuda.mk */

/* The runtime gives one code for "no driver" and "driver too old"; its version tells them apart. */
static int driver_missing(void) {
    int driver = 0, runtime = 0;
    if (cudaDriverGetVersion(&driver) || driver == 0)
        return fail(ERR_USAGE,
                    "device cuda: no NVIDIA driver on this machine: install one, or " ADVICE_CPU);
    cudaRuntimeGetVersion(&runtime);
    return fail(ERR_USAGE,
                "device cuda: the driver is for CUDA %d.%d, this program for %d.%d: install a "
                "newer driver, build with an older toolkit, or " ADVICE_CPU,
                driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

static int probe(int *count) {
    cuda_ask_for_queues();
    cudaError_t error = cudaGetDeviceCount(count);
    if (error != cudaSuccess) {
        cudaGetLastError();
        *count = 0;
    }
    if (error == cudaErrorInsufficientDriver) return driver_missing();
    if (error == cudaErrorNoDevice || (error == cudaSuccess && *count == 0)) {
        *count = 0;
        return fail(ERR_USAGE,
                    "device cuda: no GPU found (CUDA_VISIBLE_DEVICES may hide it): " ADVICE_CPU);
    }
    if (error != cudaSuccess)
        return fail(ERR_USAGE, "device cuda: %s: %s: " CUDA_ADVICE, cudaGetErrorName(error),
                    cudaGetErrorString(error));
    return OK;
}

static int describe_gpu(struct cuda_device *d) {
    struct cudaDeviceProp p;
    CUDA_CHECK(cudaGetDeviceProperties(&p, d->gpu), "properties of the GPU", d->head.name);
    d->major = p.major;
    d->minor = p.minor;
    d->multiprocessors = d->head.cores = p.multiProcessorCount;
    memcpy(d->uuid, p.uuid.bytes, sizeof d->uuid);
    snprintf(d->gpu_name, sizeof d->gpu_name, "%.63s", p.name);
    if (d->major < OLDEST_MAJOR)
        return fail(ERR_USAGE,
                    "device %s: %s has compute capability %d.%d: this program's kernels need "
                    "%d.0: " ADVICE_CPU,
                    d->head.name, d->gpu_name, d->major, d->minor, OLDEST_MAJOR);
    return OK;
}

static void choose_gpu(struct cuda_device *d) {
    const struct device_config *c = &d->head.config;
    int devices = c->locals ? c->locals : c->devices, index = c->locals ? c->local : c->index;
    if (devices <= index) devices = index + 1;
    d->gpu = index % d->gpus;
    d->sharers = (devices - d->gpu + d->gpus - 1) / d->gpus;
}

static int load_kernels(struct cuda_device *d) {
    CUDA_CHECK(cuda_write_load(), "loading kernels", d->head.name);
    return cuda_load_kernels(d);
}

/* ---- begin and end ---- */

static int start(struct device *device) {
    struct cuda_device *d = (struct cuda_device *)device;
    void *workspace;
    pthread_mutex_init(&d->service_lock, NULL);
    pthread_mutex_init(&d->watch_lock, NULL);
    CHECK(probe(&d->gpus));
    choose_gpu(d);
    CHECK(cuda_enter(d));
    CHECK(describe_gpu(d));
    CUDA_CHECK(cudaStreamCreateWithFlags(&d->service, cudaStreamNonBlocking), "a stream",
               device->name);
    cuda_code_say(d);
    CHECK(load_kernels(d));
    CHECK(cuda_memory_open(d));
    device->layout = LAYOUT_PLAIN;
    device->compute = &d->compute.head;
    device->comm = &d->comm.head;
    device->copy = &d->copy.head;
    CHECK(cuda_stream_open(&d->compute, device, LANE_COMPUTE));
    CHECK(cuda_stream_open(&d->comm, device, LANE_COMM));
    CHECK(cuda_stream_open(&d->copy, device, LANE_COPY));
    CHECK(device_alloc(device, &workspace, CUDA_WORKSPACE_BYTES, MEM_WORKSPACE));
    d->compute.workspace = workspace;
    return cuda_math_open(&d->compute);
}

/* A stream that did not drain in time may still use its slab and the peers' memory that it has
 * mapped, and freeing these would wait for the GPU without a deadline. They stay until the process
 * ends. */
static void stop(struct device *device) {
    struct cuda_device *d = (struct cuda_device *)device;
    if (d->service) {
        /* If the context is broken all calls below fail, and only host memory is freed. */
        cudaSetDevice(d->gpu);
        int drained = cuda_stream_close(&d->copy) && !d->p2p.stuck;
        drained &= cuda_stream_close(&d->comm);
        drained &= cuda_stream_close(&d->compute);
        cuda_unimport_all(d, drained);
        cuda_memory_close(d, drained);
        cudaStreamDestroy(d->service);
    }
    pthread_mutex_destroy(&d->service_lock);
    pthread_mutex_destroy(&d->watch_lock);
}

static const struct device_ops table = {
    .name = "cuda",
    .device_bytes = sizeof(struct cuda_device),
    .probe = probe,
    .libraries = cuda_blas_describe,
    .start = start,
    .stop = stop,
    .spoil = cuda_memory_spoil,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .sync = cuda_sync,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_sync = cuda_event_sync,
    .event_done = cuda_event_done,
    .launch = cuda_launch,
    .copy = cuda_copy,
    .write = cuda_write,
    .export_memory = cuda_export,
    .import_memory = cuda_import,
    .unimport_memory = cuda_unimport,
    .reaches = cuda_reaches,
    .meet = cuda_meet,
    .p2p_fault = cuda_p2p_fault,
    .is_stuck = cuda_is_stuck,
};
const struct device_ops *const cuda_device_ops = &table;
