/* Streams of a GPU with their kernels, copies and small writes. The GPU is asynchronous by itself;
 * this file adds a deadline for syncs, errors that name the work (error.c) and spans (spans.c).
 *
 * The first error of a stream stays. Every later call on the stream returns its message and
 * enqueues nothing. */
#include <stdio.h>
#include <string.h>

#include "base/advice.h"
#include "base/clock.h"
#include "device/cuda/cuda.h"

int cuda_begin(struct cuda_stream *s, const char *name, uint64_t bytes, double flops) {
    CHECK(cuda_stream_error(s));
    CUDA_STREAM_CHECK(s, cudaSetDevice(((struct cuda_device *)s->head.device)->gpu), name);
    snprintf(s->last.name, sizeof s->last.name, "%s", name);
    s->last.step = s->head.step;
    cuda_nvtx_phase(s);
    return cuda_span_begin(s, name, bytes, flops, 0);
}

int cuda_end(struct cuda_stream *s) {
    return cuda_span_end(s);
}

int cuda_launch(struct stream *stream, enum op op, const struct op_args *args) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    CHECK(cuda_begin(s, op_name_of(op, args), 0, s->head.spans.on ? op_flops(op, args) : 0));
    CHECK(cuda_launch_op(s, op, args));
    return cuda_end(s);
}

/* A NULL device is the host. Between two GPUs the runtime takes the direct path if cuda_reach
 * opened one; otherwise it goes through host memory. */
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

/* 1: host memory that the runtime has not pinned. The runtime stages a copy of such memory itself
 * and waits, without a deadline, until the stream gets there; and the stream may be waiting for a
 * peer that is dead. */
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
    if ((!from && is_pageable(source)) || (!to && is_pageable(destination)))
        CHECK(cuda_sync(stream));
    CHECK(cuda_begin(s, name, source_end != end ? bytes : 0, 0));
    CUDA_STREAM_CHECK(s,
                      enqueue_copy(s, (struct cuda_device *)to, destination,
                                   (struct cuda_device *)from, source, bytes),
                      name);
    if (source_end != end) traffic_add(&stream->device->traffic, source_end, end, bytes);
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
    if (state == cudaErrorNotReady)
        return fail(
            ERR_TIMEOUT,
            "sync of stream %s of %s: did not finish within %g s: a peer may be stuck; see the "
            "first error, or " ADVICE_TIMEOUT,
            lane_name(stream->lane), device->name, device->config.timeout_s);
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
    /* Communication has priority, since other ranks wait for this rank's gradients. */
    int least = 0, greatest = 0;
    CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream priorities",
               device->name);
    CUDA_CHECK(cudaStreamCreateWithPriority(&s->stream, cudaStreamNonBlocking,
                                            lane == LANE_COMM ? greatest : least),
               "a stream", device->name);
    return cuda_spans_open(s);
}

int cuda_stream_close(struct cuda_stream *s) {
    int drained = 1;
    if (s->stream) {
        drained = cuda_drain(s);
        cuda_nvtx_end(s);
        /* closing a library waits for the GPU, with no deadline */
        if (drained) cuda_math_close(s);
        cuda_spans_close(s);
        cudaStreamDestroy(s->stream);
        s->stream = NULL;
    }
    span_log_free(&s->head.spans);
    return drained;
}
