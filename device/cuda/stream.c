/* Streams of a GPU, and what they carry: kernels, copies, small writes. The GPU is asynchronous
 * by itself; what is added here are deadlines, errors with a name, and spans.
 *
 * A kernel that faults says so at some later call, and from then on at every call of the process
 * on that GPU. The first stream to see it keeps it, with what it enqueued last; every later call
 * on the stream returns that line. Waiting never sleeps inside the runtime, which knows no
 * deadline: it asks, again and again. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "device/cuda/cuda.h"

/* so long a wait asks without a pause, as steps are short; */
static const int64_t EAGER_NS = 1000000;
/* then with this one, for its core may be another rank's */
static const long PAUSE_NS = 20000;
/* what a stream has to end in when its job is being ended */
static const double DRAIN_S = 1;

/* `interruptible`: the device whose config.interrupted is asked, or NULL. */
static int poll_for(double timeout_s, const struct device *interruptible, cudaEvent_t event,
                    cudaStream_t stream, cudaError_t *state) {
    int64_t begun = now_ns(), deadline = deadline_after(timeout_s);
    for (;;) {
        *state = event ? cudaEventQuery(event) : cudaStreamQuery(stream);
        /* CUDA keeps it as an error: who asks behind a launch would find it */
        if (*state == cudaErrorNotReady) cudaGetLastError();
        int64_t now = now_ns();
        if (*state != cudaErrorNotReady || now >= deadline) return OK;
        if (now - begun < EAGER_NS) {
            sched_yield();
            continue;
        }
        if (interruptible) CHECK(cuda_watch_look(interruptible, 1));
        if (interruptible) CHECK(device_interrupted(interruptible));
        struct timespec pause = {0, PAUSE_NS};
        nanosleep(&pause, NULL);
    }
}

/* A GPU that was not done in time gets a moment at each later wait, not the whole time anew: the
 * way to a process's end has many of them. */
int cuda_poll(const struct device *device, cudaEvent_t event, cudaStream_t stream,
              cudaError_t *state) {
    struct cuda_device *d = (struct cuda_device *)device;
    int overdue = __atomic_load_n(&d->overdue, __ATOMIC_RELAXED);
    double timeout_s = device->config.timeout_s;
    CHECK(poll_for(overdue && timeout_s > DRAIN_S ? DRAIN_S : timeout_s, device, event, stream,
                   state));
    __atomic_store_n(&d->overdue, *state == cudaErrorNotReady, __ATOMIC_RELAXED);
    return OK;
}

int cuda_stream_error(const struct cuda_stream *s) {
    return s->error ? fail(s->error, "%s", s->error_text) : OK;
}

const char *cuda_work_text(const struct cuda_work *work, char text[CUDA_WORK_TEXT]) {
    if (!work->name[0]) return "nothing";
    snprintf(text, CUDA_WORK_TEXT, work->step < 0 ? "%s" : "%s of step %d", work->name,
             (int)work->step);
    return text;
}

int cuda_stream_fail(struct cuda_stream *s, cudaError_t error, const char *what) {
    cudaGetLastError();
    if (s->error) return cuda_stream_error(s);
    if (s->capturing) return cuda_record_fail(s, error, what);
    char last[CUDA_WORK_TEXT];
    snprintf(s->error_text, sizeof s->error_text,
             "%s on %s: %s: %s: last begun on stream %s: %s; CUDA_LAUNCH_BLOCKING=1 names the "
             "very one",
             what, s->head.device->name, cudaGetErrorName(error), cudaGetErrorString(error),
             lane_name(s->head.lane), cuda_work_text(&s->last, last));
    s->error = error == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_FAILED;
    return cuda_stream_error(s);
}

int cuda_begin(struct cuda_stream *s, const char *name, uint64_t bytes, double flops) {
    CHECK(cuda_stream_error(s));
    CUDA_STREAM_CHECK(s, cudaSetDevice(((struct cuda_device *)s->head.device)->gpu), name);
    snprintf(s->last.name, sizeof s->last.name, "%s", name);
    s->last.step = s->head.step;
    cuda_nvtx_phase(s);
    if (s->capturing) s->recording->flops += flops;
    return cuda_span_begin(s, name, bytes, flops, 0);
}

int cuda_end(struct cuda_stream *s) {
    if (s->capturing) s->recorded = s->last;
    return cuda_span_end(s);
}

static int any_n16(const struct tensor *t, int count) {
    for (int i = 0; i < count; i++)
        if (t[i].data && t[i].layout == LAYOUT_N16) return 1;
    return 0;
}

int cuda_launch(struct stream *stream, enum op op, const struct op_args *args) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    if (any_n16(args->in, 3) || any_n16(args->out, 2))
        return fail(ERR_FAILED, "%s on %s: an operand in N16: a GPU's tensors are plain",
                    op_name(op), stream->device->name);
    CHECK(cuda_begin(s, op_name(op), 0, s->head.spans.on ? op_flops(op, args) : 0));
    CHECK(cuda_launch_op(s, op, args));
    return cuda_end(s);
}

/* A NULL device is the host. Between two GPUs the runtime takes the direct path if cuda_reach
 * opened one, and goes through host memory where it could not. */
static cudaError_t enqueue_copy(struct cuda_stream *s, struct cuda_device *to, void *destination,
                                struct cuda_device *from, const void *source, size_t bytes) {
    if (!from)
        return cudaMemcpyAsync(destination, source, bytes, cudaMemcpyHostToDevice, s->stream);
    if (!to) return cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToHost, s->stream);
    if (to->gpu == from->gpu)
        return cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToDevice, s->stream);
    struct cuda_device *own = (struct cuda_device *)s->head.device;
    if (to->gpu != own->gpu) cuda_reach(own, to->gpu);
    if (from->gpu != own->gpu) cuda_reach(own, from->gpu);
    return cudaMemcpyPeerAsync(destination, to->gpu, source, from->gpu, bytes, s->stream);
}

/* Memory the runtime does not know: it stages such a copy itself, and then waits, without a
 * deadline, until the stream has got there; which may stand behind a peer that is dead. */
static int is_pageable(const void *host) {
    struct cudaPointerAttributes a;
    if (cudaPointerGetAttributes(&a, host) == cudaSuccess)
        return a.type == cudaMemoryTypeUnregistered;
    cudaGetLastError();
    return 1;
}

int cuda_copy(struct stream *stream, struct device *to, void *destination, struct device *from,
              const void *source, size_t bytes) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    int source_end = from ? from->config.index : LINK_HOST, end = to ? to->config.index : LINK_HOST;
    const char *name = !from ? "copy to device" : !to ? "copy to host" : "copy peer";
    if (bytes == 0) return cuda_stream_error(s);
    if (!s->capturing && ((!from && is_pageable(source)) || (!to && is_pageable(destination))))
        CHECK(cuda_sync(stream));
    CHECK(cuda_begin(s, name, source_end != end ? bytes : 0, 0));
    CUDA_STREAM_CHECK(s,
                      enqueue_copy(s, (struct cuda_device *)to, destination,
                                   (struct cuda_device *)from, source, bytes),
                      name);
    if (source_end != end) traffic_add(&stream->device->traffic, source_end, end, bytes);
    return cuda_end(s);
}

/* Where the exporter's GPU is another one, opening its slab has opened the way there too
 * (cuda/ipc.c). */
int cuda_copy_imported(struct stream *stream, void *destination, const void *imported,
                       int source_device, size_t bytes) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    int own = stream->device->config.index;
    if (bytes == 0) return cuda_stream_error(s);
    CHECK(cuda_begin(s, "copy imported", source_device != own ? bytes : 0, 0));
    CUDA_STREAM_CHECK(
        s, cudaMemcpyAsync(destination, imported, bytes, cudaMemcpyDeviceToDevice, s->stream),
        "copy imported");
    if (source_device != own) traffic_add(&stream->device->traffic, source_device, own, bytes);
    return cuda_end(s);
}

int cuda_write(struct stream *stream, void *destination, const void *value, size_t bytes) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    if (bytes == 0) return cuda_stream_error(s);
    CHECK(cuda_begin(s, "write", bytes, 0));
    CUDA_STREAM_CHECK(s, cuda_write_launch(s->stream, destination, value, bytes), "write");
    traffic_add(&stream->device->traffic, LINK_HOST, stream->device->config.index, bytes);
    return cuda_end(s);
}

int cuda_sync(struct stream *stream) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    const struct device *device = stream->device;
    CUDA_STREAM_CHECK(s, cudaSetDevice(((const struct cuda_device *)device)->gpu), "sync");
    cudaError_t state;
    int interrupted = cuda_poll(device, NULL, s->stream, &state);
    cuda_nvtx_end(s);
    if (interrupted) return interrupted;
    if (state == cudaErrorNotReady) {
        cudaGetLastError();
        return fail(ERR_TIMEOUT,
                    "sync of stream %s of %s: not done after %g s: a peer may be stuck; see the "
                    "first error, or "
                    "raise --timeout",
                    lane_name(stream->lane), device->name, device->config.timeout_s);
    }
    CUDA_STREAM_CHECK(s, state, "sync");
    CHECK(cuda_watch_look(device, 0));
    CHECK(cuda_spans_harvest(s));
    if (s->head.spans.on && event_clock_is_old(&s->spans.clock, now_ns()))
        CHECK(cuda_spans_anchor(s));
    return cuda_stream_error(s);
}

int cuda_stream_open(struct cuda_stream *s, struct device *device, enum lane lane) {
    memset(s, 0, sizeof *s);
    s->head.device = device;
    s->head.lane = lane;
    s->head.step = -1;
    span_log_init(&s->head.spans, device->config.spans);
    /* Gradients on their way are worth more than the next kernel: communication goes first. */
    int least = 0, greatest = 0;
    CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream priorities",
               device->name);
    CUDA_CHECK(cudaStreamCreateWithPriority(&s->stream, cudaStreamNonBlocking,
                                            lane == LANE_COMM ? greatest : least),
               "a stream", device->name);
    return cuda_spans_open(s);
}

/* A GPU does not drop what is queued: its end is waited for, as long as any wait may last. Where
 * the job is being ended, what waits for a peer has been let go by its executor and ends at
 * once, so a little more is enough. */
int cuda_drain(struct cuda_stream *s) {
    cudaError_t state;
    if (cuda_poll(s->head.device, NULL, s->stream, &state))
        poll_for(DRAIN_S, NULL, NULL, s->stream, &state);
    /* a broken context counts as drained: nothing runs in it any more */
    return state != cudaErrorNotReady;
}

int cuda_stream_close(struct cuda_stream *s) {
    int drained = 1;
    if (s->stream) {
        cuda_record_abandon(s);
        drained = cuda_drain(s);
        cuda_nvtx_end(s);
        /* a library waits for the GPU before it goes, without a deadline */
        if (drained) cuda_math_close(s);
        cuda_spans_close(s);
        cudaStreamDestroy(s->stream);
        s->stream = NULL;
    }
    span_log_free(&s->head.spans);
    return drained;
}
