/* The structs and functions of GPUs, private to the folders named cuda. Read device/table.h first:
 * a GPU is one more table of the functions named there.
 *
 * The files, from the bottom up; each calls only files above it in this list:
 *
 *     error.c          where a CUDA error becomes a message
 *     environment.c    variables and settings that change what CUDA does
 *     watch.c          executors that may end a wait, as their work depends on other ranks
 *     poll.c           waits that poll the GPU until a deadline
 *     memory.c         the slab of device memory; pinned host memory
 *     p2p.c            a trial of the paths between GPUs
 *     ipc.c            memory of other processes and other GPUs
 *     nvtx.c           phases for a profiler
 *     spans.c          the time of each piece of work
 *     kernels/         Duet's own kernels
 *     library*.c       cuBLAS, if a run requests it
 *     kernels/ops.cu   the kernel of each op, Duet's own or a library's
 *     stream.c         kernels, copies, small writes and syncs on a stream
 *     event.c          events
 *     flag.c           flags that a stream posts and waits for, for allreduce/cuda
 *     device.c         opens and closes a GPU, and has the table
 *
 * Code that calls the CUDA runtime is C11, and kernels are CUDA C++. Both include this header, so
 * every function in it has C linkage. Only the runtime API is linked, statically. So a program
 * built with CUDA starts on a machine without a driver, and reports that when a GPU is requested.
 *
 * Threads: one thread at a time uses a stream (device.h). CUDA's current device is a setting of
 * each thread, so each function that calls the runtime first makes its device current
 * (cuda_use). */
#ifndef DEVICE_CUDA_CUDA_H
#define DEVICE_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#include "base/error.h"
#include "device/event_clock.h"
#include "device/table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Scratch memory of the compute stream's kernels, part of the slab and charged to workspace. It has
 * one size for every shape and machine, because the choice of an algorithm, and so the bits, may
 * depend on its size. */
#define CUDA_WORKSPACE_BYTES ((size_t)64 << 20)

enum { CUDA_ERROR_TEXT = 512, CUDA_ANCHOR_TRIES = 4 };

/* ---- structs ---- */

/* The span of one piece of work, open until its end event has been reached (spans.c). */
struct cuda_pending {
    cudaEvent_t start, end;
    struct span facts;
};

struct cuda_spans {
    struct event_clock clock;             /* maps the GPU's time to the clock of base/clock.h */
    cudaEvent_t anchor;                   /* the event at the time clock.anchor_ns */
    cudaEvent_t tries[CUDA_ANCHOR_TRIES]; /* spare events; one of them becomes the anchor */
    struct cuda_pending *pending;         /* ring; entry i is at i % capacity */
    size_t capacity;                      /* capacity of the ring, in entries */
    uint64_t begun, harvested;            /* entries begun so far, and read back so far */
};

/* The last piece of work given to a stream, for errors that appear later. The name is a copy,
 * because the caller's string may be gone by then. */
struct cuda_work {
    char name[sizeof((struct span *)0)->name]; /* cut to fit; "" before any work */
    int32_t step;                              /* -1: outside of steps */
};

struct cuda_math; /* the handle of cuBLAS: library.h */

struct cuda_stream {
    struct stream head;
    cudaStream_t stream;    /* non-blocking: the legacy default stream does not order it */
    struct cuda_math *math; /* for a compute stream that uses libraries; else NULL */
    void *workspace;        /* CUDA_WORKSPACE_BYTES on the compute stream, else NULL */
    struct cuda_spans spans;
    struct cuda_work last;  /* the work enqueued last */
    uint64_t range;         /* NVTX: the open range, 0 if none */
    enum phase range_phase; /* NVTX: the phase of the open range */
    int error;              /* the first error of the stream, which stays; OK if none */
    char error_text[CUDA_ERROR_TEXT];
};

/* The GPUs that this GPU has tried to reach, and the results. */
struct cuda_p2p {
    struct {
        unsigned char uuid[16];
        int works; /* 0: the driver advertises P2P, but it moves no bytes */
    } known[MAX_DEVICES];
    int count;
    int stuck;       /* 1: a trial has not ended, and may never end */
    char fault[400]; /* as device_p2p_fault */
};

struct cuda_device {
    struct device head;
    int gpu;     /* CUDA's number for the GPU; several devices may share it */
    int gpus;    /* GPUs of this machine */
    int sharers; /* devices of this job that share the GPU */
    int major, minor, multiprocessors;
    unsigned char uuid[16];
    char gpu_name[64];
    void *slab; /* one cudaMalloc of a multiple of 2 MiB, which IPC exports */
    struct cuda_stream compute, comm, copy;
    cudaStream_t service; /* NaN fills and clock anchors; under service_lock */
    pthread_mutex_t service_lock;
    int overdue;                 /* 1: a wait has passed its deadline (poll.c); atomic */
    uint64_t peers_asked;        /* bit g: peer access to GPU g was tried; under service_lock */
    uint64_t peers;              /* bit g: GPU g's memory can be reached; under service_lock */
    struct cuda_p2p p2p;         /* p2p.c */
    struct cuda_import *imports; /* ipc.c; under service_lock */
    struct cuda_watch *watches;  /* watch.c; under watch_lock */
    pthread_mutex_t watch_lock;
    /* The driver's functions that post flags and wait for them (flag.c); NULL: not looked up. */
    void *post_flag, *wait_flag;
    void *batch_flags; /* several flags in one call; NULL: one by one */
};

/* ---- code.c ---- */

/* Prints one line on stderr if the driver has to compile the kernels for the device's GPU. If
 * devices of a job share a GPU, only the first prints it. */
void cuda_code_say(const struct cuda_device *device);

/* ---- error.c ---- */

/* Reports a failed call outside of any stream: fail()s with ERR_FAILED (ERR_MEMORY if the GPU is
 * full) and one line "what on device: name of the CUDA error: its meaning". */
int cuda_fail(cudaError_t error, const char *what, const char *device_name);
#define CUDA_CHECK(call, what, device_name)                                                   \
    do {                                                                                      \
        cudaError_t cuda_error_ = (call);                                                     \
        if (cuda_error_ != cudaSuccess) return cuda_fail(cuda_error_, (what), (device_name)); \
    } while (0)

/* Reports a failed call on a stream. `error` becomes the stream's error, unless it has one, with
 * the message "what failed, on which device, after what, in which step". Returns the stream's
 * error. A refusal that is not a CUDA error (a shape, a layout) uses only fail() and leaves the
 * stream unchanged. */
int cuda_stream_fail(struct cuda_stream *stream, cudaError_t error, const char *what);
#define CUDA_STREAM_CHECK(stream, call, what)                                                   \
    do {                                                                                        \
        cudaError_t cuda_error_ = (call);                                                       \
        if (cuda_error_ != cudaSuccess) return cuda_stream_fail((stream), cuda_error_, (what)); \
    } while (0)

/* fail()s once more with the stream's error; OK if it has none. */
int cuda_stream_error(const struct cuda_stream *stream);

/* Reports a fault that the sync of an event sees first. The fault is in `behind`, the work before
 * the event's record, or earlier. */
int cuda_sync_fail(const struct device *device, cudaError_t error, const struct cuda_work *behind);

static inline int cuda_use(const struct device *device) {
    CUDA_CHECK(cudaSetDevice(((const struct cuda_device *)device)->gpu), "choosing the GPU",
               device->name);
    return OK;
}

/* ---- environment.c ---- */

#define CUDA_QUEUES_VARIABLE "CUDA_DEVICE_MAX_CONNECTIONS"
#define CUDA_QUEUES "32" /* the most that CUDA allows */
#define CUDA_QUEUES_MPS "8"
/* Before the first call of CUDA in this process: requests CUDA_QUEUES, or CUDA_QUEUES_MPS if the
 * daemon of MPS runs, unless the environment requests enough. */
void cuda_ask_for_queues(void);
/* 1 if the daemon of MPS runs, so processes that share a GPU run at once and not in turns. */
int cuda_mps_is_there(void);
/* Advice if the driver refuses. */
#define CUDA_ADVICE "docs/cuda.md says under \"Environment\" what to do, or " ADVICE_CPU
/* Like cuda_use, but for the first time: creates the context. */
int cuda_enter(struct cuda_device *device);

/* ---- watch.c ---- */

/* An executor whose work on a stream may wait for another rank. Neither function waits, and
 * neither calls a function of a stream. */
struct cuda_watch {
    /* Returns OK, or a failure with its message, which ends the wait or sync that called. `waiting`
     * is 1 during a long wait, and 0 at the end of a sync. */
    int (*look)(struct cuda_watch *watch, int waiting);
    /* Releases work that waits for another rank, after the job has failed. */
    void (*release)(struct cuda_watch *watch);
    struct cuda_watch *next;
};
void cuda_watch_add(struct cuda_device *device, struct cuda_watch *watch);
void cuda_watch_remove(struct cuda_device *device, struct cuda_watch *watch);
int cuda_watch_look(const struct device *device, int waiting); /* up to the first error */
/* Releases all watches, since one's work may be queued behind another's on the same stream. */
void cuda_watch_release(struct cuda_device *device);

/* ---- poll.c ---- */

/* Polls an event, or a stream if the event is NULL, until it is done or has failed, or until the
 * device's timeout_s is over. *state says which (cudaErrorNotReady: not done in time). Returns OK,
 * or the code of config.interrupted or of a watch that ended the wait. */
int cuda_poll(const struct device *device, cudaEvent_t event, cudaStream_t stream,
              cudaError_t *state);

/* 1 once the stream has no unfinished work; 0 if that takes longer than a wait may. */
int cuda_drain(struct cuda_stream *stream);

/* ---- memory.c ---- */

int cuda_memory_open(struct cuda_device *device);
/* With drained 0 the slab stays until the process ends, since a kernel may still use it. */
void cuda_memory_close(struct cuda_device *device, int drained);
void cuda_memory_spoil(struct device *device, void *memory, size_t bytes);
int cuda_host_alloc(struct device *device, void **out, size_t bytes);
void cuda_host_free(struct device *device, void *memory);

/* ---- p2p.c; the rest is in p2p.h ---- */

/* 1: the environment disables P2P with NCCL's variable NCCL_P2P_DISABLE. */
int cuda_p2p_disabled(void);
/* The result of a trial with the GPU that has that UUID, 1 or 0; -1: not tried yet. */
int cuda_p2p_known(const struct cuda_device *device, const unsigned char uuid[16]);

/* Opens access from `device`, which is current, to the memory of GPU number `gpu`, if the machine
 * allows it. 1: kernels and copies reach it, as they always do on the device's own GPU. 0: kernels
 * cannot, and the driver copies through host memory. It asks CUDA once per GPU. */
int cuda_reach(struct cuda_device *device, int gpu);
int cuda_meet(struct device *device, struct device *peer);
const char *cuda_p2p_fault(const struct device *device);
int cuda_is_stuck(const struct device *device);

/* ---- ipc.c ---- */

int cuda_export(struct device *device, struct memory_handle *handle, int *fd);
int cuda_import(struct device *device, const struct memory_handle *handle, int fd, void **out);
void cuda_unimport(struct device *device, void *memory);
int cuda_reaches(struct device *device, const struct memory_handle *handle);
int cuda_reaches_gpu(const struct cuda_device *device, const unsigned char uuid[16]);
void cuda_unimport_all(struct cuda_device *device, int drained);

/* ---- nvtx.c ---- */

void cuda_nvtx_phase(struct cuda_stream *stream); /* begins a range if the stream's phase is new */
void cuda_nvtx_end(struct cuda_stream *stream);

/* ---- spans.c ---- */

int cuda_spans_open(struct cuda_stream *stream);
void cuda_spans_close(struct cuda_stream *stream);
/* Begin and end bracket the calls that enqueue one piece of work; see cuda_begin. With waiting 1
 * the span is a wait, which is kept only if it blocked. */
int cuda_span_begin(struct cuda_stream *stream, const char *name, uint64_t bytes, double flops,
                    int waiting);
int cuda_span_end(struct cuda_stream *stream);
/* Moves every span whose work is done into head.spans, oldest first, without waiting. After a sync
 * that is every span. */
int cuda_spans_harvest(struct cuda_stream *stream);
int cuda_spans_anchor(struct cuda_stream *stream); /* takes a new anchor from the host's clock */

/* ---- library_math.c and kernels/ops.cu ---- */

/* Enqueues the kernels of one op on stream->stream. The device layer has checked the shapes, made
 * the device current and opened the span. It neither allocates nor waits, and may be called while
 * the stream is captured. */
int cuda_launch_op(struct cuda_stream *stream, enum op op, const struct op_args *args);

/* Loads every kernel of the ops (with cudaFuncGetAttributes), once per device at open. Otherwise
 * its first launch would load a kernel and wait until the GPU has drained, which may be forever
 * behind a kernel that spins on another rank's flag. CUDA_MODULE_LOADING=EAGER would load them too,
 * but with every kernel of cuBLAS in each process. That takes seconds, and gigabytes with several
 * ranks on one GPU. */
int cuda_load_kernels(struct cuda_device *device);

/* Sets stream->math to library handles bound to stream->stream, if config.math requests them. close
 * also cleans up after a failed open. It may wait for the GPU without a deadline, so it is not
 * called for a stuck stream. */
int cuda_math_open(struct cuda_stream *stream);
void cuda_math_close(struct cuda_stream *stream);

/* kernels/write.cu: launches the kernel behind cuda_write. `value`, at most 256 bytes, is the
 * kernel's argument. */
cudaError_t cuda_write_launch(cudaStream_t stream, void *destination, const void *value,
                              size_t bytes);
cudaError_t cuda_write_load(void);

/* ---- stream.c ---- */

int cuda_stream_open(struct cuda_stream *stream, struct device *device, enum lane lane);
/* Waits for queued work and frees everything; a zeroed or half-built stream is fine. Returns 0 if
 * the stream is still busy after every deadline; the memory that it may use must then stay. */
int cuda_stream_close(struct cuda_stream *stream);

/* Code that enqueues work calls begin before its first call and end after its last.
 *     CHECK(cuda_begin(stream, "copy peer", bytes, 0));
 *     CUDA_STREAM_CHECK(stream, cudaMemcpyAsync(...), "copy peer");
 *     return cuda_end(stream);
 * `name` is copied. begin makes the device current and returns the stream's error. If spans are on,
 * both measure. Executors in other folders use them for their kernels. */
int cuda_begin(struct cuda_stream *stream, const char *name, uint64_t bytes, double flops);
int cuda_end(struct cuda_stream *stream);

int cuda_sync(struct stream *stream);
int cuda_copy(struct stream *stream, struct device *to, void *destination, struct device *from,
              const void *source, size_t bytes);
int cuda_write(struct stream *stream, void *destination, const void *value, size_t bytes);
int cuda_launch(struct stream *stream, enum op op, const struct op_args *args);

/* ---- event.c ---- */

int cuda_event_create(struct device *device, struct event **out);
void cuda_event_destroy(struct event *event);
int cuda_event_record(struct event *event, struct stream *stream);
int cuda_event_wait(struct stream *stream, struct event *event);
int cuda_event_sync(struct event *event);
int cuda_event_done(struct event *event);

#ifdef __cplusplus
}
#endif
#endif
