/* The GPU's own structs: private to device/cuda*.{c,cu} and to executors in files named *cuda*.
 * Read it after table.h. The half that talks to the CUDA runtime is C11 (cuda_*.c), kernels are
 * CUDA C++ (cuda_*.cu), so this header is both, and every function in it has C linkage.
 *
 * Only the runtime API is linked, and statically: a program built with CUDA starts on a machine
 * that has no driver, and says so when a GPU is asked for.
 *
 * Threads: a stream is used by one thread at a time (device.h). Each function that calls the
 * runtime makes its device current first (cuda_use), since that is the calling thread's own
 * setting. */
#ifndef DEVICE_CUDA_H
#define DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "base/error.h"
#include "device/arena.h"
#include "device/event_clock.h"
#include "device/table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Scratch of the compute stream, one size for every shape and machine, since the choice of an
 * algorithm (and with it the bits) may depend on how much there is. Part of the slab, charged to
 * workspace. */
#define CUDA_WORKSPACE_BYTES ((size_t)64 << 20)

/* A call of the runtime outside of a stream: ERR_FAILED (ERR_MEMORY where the GPU is full) and
 * one line "what: name of the CUDA error". For a stream use CUDA_STREAM_CHECK. */
int cuda_fail(cudaError_t error, const char *what, const char *device_name);
#define CUDA_CHECK(call, what, device_name)                                                   \
    do {                                                                                      \
        cudaError_t cuda_error_ = (call);                                                     \
        if (cuda_error_ != cudaSuccess) return cuda_fail(cuda_error_, (what), (device_name)); \
    } while (0)

/* One open interval on a stream, between two events of the pool: cuda/spans.c. */
struct cuda_pending {
    cudaEvent_t start, end;
    struct span facts;
};
enum { CUDA_ANCHOR_TRIES = 4 };
struct cuda_spans {
    struct event_clock clock; /* from the GPU's axis to base/clock.h's */
    cudaEvent_t anchor;       /* the point of the GPU's axis that clock.anchor_ns names */
    cudaEvent_t tries[CUDA_ANCHOR_TRIES];
    struct cuda_pending *pending; /* ring; entry i lies at i % capacity */
    size_t capacity;
    uint64_t begun, harvested;
};

/* The piece of work that a stream was given last, for errors that show later. The name is a copy,
 * because the caller's text may be gone by then. */
struct cuda_work {
    char name[sizeof((struct span *)0)->name]; /* cut to fit; "": nothing yet */
    int32_t step;                              /* -1: outside of steps */
};
enum { CUDA_WORK_TEXT = 64 };
/* "fill of step 7", "fill", "nothing" */
const char *cuda_work_text(const struct cuda_work *work, char text[CUDA_WORK_TEXT]);

/* A recording: the graph's instance, and the events that each launch of it records. */
struct cuda_recording {
    struct recording head;
    cudaGraphExec_t instance;
    struct event **events; /* not owned */
    int event_count;
    double flops;
    struct cuda_work before; /* what the stream ran last: a fault of it may show while recording */
};

struct cuda_math; /* cuda/library.h: handles of libraries */

enum { CUDA_ERROR_TEXT = 512 };

struct cuda_stream {
    struct stream head;
    cudaStream_t stream; /* non-blocking: never ordered by the legacy default stream */
    /* libraries, on a compute stream that was asked to use them; else NULL */
    struct cuda_math *math;
    void *workspace; /* CUDA_WORKSPACE_BYTES on the compute stream, NULL on comm */
    struct cuda_spans spans;
    /* it is being captured into a graph (cuda/graph.c): no spans, no queries then */
    int capturing;
    struct cuda_recording *recording; /* into which; the recorded events are kept in it */
    struct cuda_work last;            /* what was enqueued last, captured or not */
    struct cuda_work recorded;        /* what was captured last; name "": nothing yet */
    uint64_t range;                   /* NVTX: the open range, 0 if none, */
    enum phase range_phase;           /* and its phase */
    int error;                        /* sticky: the first error of the stream, with its text */
    char error_text[CUDA_ERROR_TEXT];
};

struct cuda_device {
    struct device head;
    int gpu;           /* CUDA's number; several devices may have the same */
    int gpus, sharers; /* GPUs here; devices of this job on this very GPU */
    int major, minor, multiprocessors;
    unsigned char uuid[16];
    char gpu_name[64];
    void *slab; /* one cudaMalloc, whole multiples of 2 MiB: what IPC exports */
    struct arena arena;
    struct cuda_stream compute, comm;
    cudaStream_t service; /* NaN fills and clock anchors, under service_lock */
    pthread_mutex_t service_lock;
    /* a wait has seen its deadline pass: the next ones are short; atomic */
    int overdue;
    /* bit g: peer access to GPU g was tried; is there; under service_lock */
    uint64_t peers_asked, peers;
    struct cuda_import *imports; /* cuda/ipc.c; under service_lock */
    struct cuda_watch *watches;  /* cuda/watch.c; under watch_lock */
    pthread_mutex_t watch_lock;
    /* the driver's functions (cuda/value.c); NULL: not asked for yet */
    void *value_write, *value_wait;
};

static inline int cuda_use(const struct device *device) {
    CUDA_CHECK(cudaSetDevice(((const struct cuda_device *)device)->gpu), "choosing the GPU",
               device->name);
    return OK;
}

/* Streams (cuda/stream.c). cuda_stream_fail makes `error` the stream's first error, if it has
 * none yet, with the text "what failed, on which device, behind what, in which step"; returns
 * the stream's error. A refusal that is no CUDA error (a shape, a layout) is returned by fail()
 * alone and leaves the stream as it was. */
int cuda_stream_fail(struct cuda_stream *stream, cudaError_t error, const char *what);
/* fail()s again with the text; OK if none */
int cuda_stream_error(const struct cuda_stream *stream);
#define CUDA_STREAM_CHECK(stream, call, what)                                                   \
    do {                                                                                        \
        cudaError_t cuda_error_ = (call);                                                       \
        if (cuda_error_ != cudaSuccess) return cuda_stream_fail((stream), cuda_error_, (what)); \
    } while (0)

/* Recordings (cuda/graph.c). keep_event: a captured record of an event is the recording's. fail:
 * the error of a call while capturing, which is the recording's and not the stream's. abandon:
 * ends a capture that nobody wants. */
int cuda_record_begin(struct stream *stream);
int cuda_record_end(struct stream *stream, struct recording **out);
int cuda_replay(struct stream *stream, struct recording *recording, const char *span_name);
void cuda_recording_free(struct recording *recording);
int cuda_record_keep_event(struct cuda_stream *stream, struct event *event);
int cuda_record_fail(struct cuda_stream *stream, cudaError_t error, const char *what);
void cuda_record_abandon(struct cuda_stream *stream);

/* What enqueues work brackets it: begin before, end after the last call; both do nothing with
 * spans off.
 *     CHECK(cuda_begin(stream, "copy peer", bytes, 0));
 *     CUDA_STREAM_CHECK(stream, cudaMemcpyAsync(...), "copy peer");
 *     return cuda_end(stream);
 * `name` is copied. begin makes the device current and returns the stream's error.
 * Executors in other folders (allreduce, scatter_gather) use the same two for their kernels. */
int cuda_begin(struct cuda_stream *stream, const char *name, uint64_t bytes, double flops);
int cuda_end(struct cuda_stream *stream);

/* 1 once nothing of the stream is under way; 0 if that takes longer than a wait may, or the job
 * is being ended. */
int cuda_drain(struct cuda_stream *stream);

int cuda_stream_open(struct cuda_stream *stream, struct device *device, enum lane lane);
/* Waits for what is queued and gives all back; zeroed or half-built is fine. 0: the stream still
 * works, past every deadline: the memory it may reach has to stay. */
int cuda_stream_close(struct cuda_stream *stream);

/* Operations: cuda_ops*.cu. The device layer has checked the shapes, made the device current and
 * opened the span; cuda_launch_op enqueues the kernels of one op on stream->stream and looks at
 * cudaGetLastError once behind them. It allocates nothing, waits for nothing, and may be called
 * while the stream is captured.
 *
 * cuda_math_open: handles of libraries bound to stream->stream, where config.math asks for them;
 * sets stream->math. close takes what a failed open has left, and may wait for the GPU without a
 * deadline: not for a stuck one.
 *
 * cuda_load_kernels: cudaFuncGetAttributes on every kernel of the ops, once per device at open.
 * A kernel that is not loaded is loaded by its first launch, which waits for the GPU to drain;
 * behind a kernel that spins on another rank's flag that may be forever.
 * CUDA_MODULE_LOADING=EAGER would do it too, but loads every kernel of cuBLAS and cuDNN into
 * each process: seconds, and gigabytes with several ranks on one GPU. */
int cuda_launch_op(struct cuda_stream *stream, enum op op, const struct op_args *args);
int cuda_math_open(struct cuda_stream *stream);
void cuda_math_close(struct cuda_stream *stream);
int cuda_load_kernels(struct cuda_device *device);

/* The rest of the table, file by file. */
int cuda_sync(struct stream *stream);
int cuda_copy(struct stream *stream, struct device *to, void *destination, struct device *from,
              const void *source, size_t bytes);
int cuda_copy_imported(struct stream *stream, void *destination, const void *imported,
                       int source_device, size_t bytes);
int cuda_write(struct stream *stream, void *destination, const void *value, size_t bytes);
int cuda_launch(struct stream *stream, enum op op, const struct op_args *args);
/* The kernel behind cuda_write, in kernels/write.cu: value (at most 256 bytes) travels as its
 * argument. */
cudaError_t cuda_write_launch(cudaStream_t stream, void *destination, const void *value,
                              size_t bytes);
cudaError_t cuda_write_load(void);

int cuda_event_create(struct device *device, struct event **out);
void cuda_event_destroy(struct event *event);
int cuda_event_record(struct event *event, struct stream *stream);
int cuda_event_wait(struct stream *stream, struct event *event);
int cuda_event_sync(struct event *event);
int cuda_event_done(struct event *event);
/* the first one stays */
void cuda_event_set_error(struct event *event, int code, const char *text);
/* Asks an event, or if that is NULL a stream, until it is done, has failed, or the device's
 * timeout_s is over (*state: cudaErrorNotReady). A code other than OK is that of
 * config.interrupted, which ended the wait. */
int cuda_poll(const struct device *device, cudaEvent_t event, cudaStream_t stream,
              cudaError_t *state);

/* Who has put work on a stream that may wait for another rank (cuda/watch.c). look: OK, or the
 * failure with its text, which ends the wait or sync that asked; it waits for nothing itself and
 * calls no function of a stream here. waiting 1: asked in a wait that lasts; 0: at the end of a
 * sync. let_go: the job has failed; what waits for another rank is told to go on. It waits for
 * nothing itself either. */
struct cuda_watch {
    int (*look)(struct cuda_watch *watch, int waiting);
    void (*let_go)(struct cuda_watch *watch);
    struct cuda_watch *next;
};
void cuda_watch_add(struct cuda_device *device, struct cuda_watch *watch);
void cuda_watch_remove(struct cuda_device *device, struct cuda_watch *watch);
int cuda_watch_look(const struct device *device, int waiting);
/* all of them: one behind the other may hold the same stream */
void cuda_watch_let_go(struct cuda_device *device);

/* Lets `device` reach the memory of GPU number `gpu`, where the machine allows it: 1, also for
 * its own. 0: kernels cannot, and copies between the two go through host memory, by the driver.
 * Asked once for each GPU; the device is current. */
int cuda_reach(struct cuda_device *device, int gpu);

int cuda_memory_open(struct cuda_device *device);
/* not drained: the slab stays till the process ends */
void cuda_memory_close(struct cuda_device *device, int drained);
void *cuda_memory_alloc(struct device *device, size_t bytes);
void cuda_memory_free(struct device *device, void *memory, size_t bytes);
size_t cuda_memory_largest(struct device *device);
int cuda_host_alloc(struct device *device, void **out, size_t bytes);
void cuda_host_free(struct device *device, void *memory);

int cuda_export(struct device *device, const void *memory, size_t bytes,
                struct memory_handle *handle, int *fd);
int cuda_import(struct device *device, const struct memory_handle *handle, int fd, void **out);
void cuda_unimport(struct device *device, void *memory);
void cuda_unimport_all(struct cuda_device *device, int drained);

/* Spans by events (cuda/spans.c). harvest: everything that is done, oldest first, into
 * head.spans; never waits. After a sync nothing is left. */
int cuda_spans_open(struct cuda_stream *stream);
void cuda_spans_close(struct cuda_stream *stream);
int cuda_span_begin(struct cuda_stream *stream, const char *name, uint64_t bytes, double flops,
                    int waiting);
int cuda_span_end(struct cuda_stream *stream);
int cuda_spans_harvest(struct cuda_stream *stream);
int cuda_spans_anchor(struct cuda_stream *stream); /* takes the anchor from the host's clock anew */

/* NVTX (cuda/nvtx.c): a range per phase, seen by profilers, nothing without one. */
void cuda_nvtx_phase(struct cuda_stream *stream);
void cuda_nvtx_end(struct cuda_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
