/* Recordings of a GPU: CUDA graphs by stream capture. A step of a small network is some dozens of
 * launches of 2 to 5 us each; a graph launches all of them with one call.
 *
 *     begin    cudaStreamBeginCapture: from here on the stream records calls and runs none
 *     end      cudaStreamEndCapture
 *              cudaGraphInstantiate: from here on all arguments are fixed
 *              cudaGraphUpload: does ahead of time what the first launch would have to set up
 *     replay   cudaGraphLaunch: in order with the stream, like any piece of work
 *
 * Capture is thread-local: what other threads do (another replica's, the collectives') is neither
 * recorded nor restricted. In the capturing thread CUDA forbids every call that waits or asks, and
 * such a call breaks the capture; record_refuse (device/recording.c) refuses these by name before
 * CUDA sees them.
 *
 * Bucket events. An event that is recorded while capturing is by default an edge inside the graph,
 * for which nobody outside can wait. Recorded with cudaEventRecordExternal it becomes a node that
 * records the real event at each launch. The communication stream's wait for it is enqueued behind
 * the launch of the graph, and takes that record.
 *
 * Aside. What nothing in the step waits for, the sum of the losses, is a branch of the graph: the
 * side stream takes part in the capture between an event of the compute stream and one of its own,
 * for which the compute stream waits at the end of the recording.
 *
 *     compute   ... loss of each sample --+--> gradient of the loss ... optimizer --+--> end
 *     side                                +--> sum of the losses -------------------+
 *
 * To be checked on hardware: that a wait enqueued behind cudaGraphLaunch takes the record of this
 * very launch and not of the one before; what an upload and a launch cost; how much of the GPU's
 * memory an instance holds, since that memory is the driver's and in no ledger of Duet's; that a
 * fault inside a graph is reported like one outside. */
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/cuda.h"

static void release(struct cuda_recording *r) {
    if (!r) return;
    if (r->instance) cudaGraphExecDestroy(r->instance);
    free(r->events);
    free(r);
}

/* ---- the side branch ---- */

static cudaError_t open_side(struct cuda_stream *s) {
    if (s->side) return cudaSuccess;
    cudaError_t error = cudaStreamCreateWithFlags(&s->side, cudaStreamNonBlocking);
    if (error != cudaSuccess) return s->side = NULL, error;
    error = cudaEventCreateWithFlags(&s->fork, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&s->join, cudaEventDisableTiming);
    return error;
}

static void change_places(struct cuda_stream *s) {
    cudaStream_t stream = s->stream;
    s->stream = s->side;
    s->side = stream;
    s->aside ^= 1;
}

/* An event that is recorded without a flag while capturing is an edge of the graph. */
int cuda_aside(struct stream *stream, int begin) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    if (begin && !s->aside) {
        CUDA_STREAM_CHECK(s, cudaEventRecord(s->fork, s->stream), "branch of a recording");
        CUDA_STREAM_CHECK(s, cudaStreamWaitEvent(s->side, s->fork, 0), "branch of a recording");
        s->forked = 1;
    }
    if (begin != s->aside) change_places(s);
    return OK;
}

/* The compute stream waits for the side branch. A capture that is broken says so at its end. */
static void join_side(struct cuda_stream *s) {
    if (s->aside) change_places(s);
    if (s->forked && cudaEventRecord(s->join, s->side) == cudaSuccess)
        (void)cudaStreamWaitEvent(s->stream, s->join, 0);
    s->forked = 0;
}

/* ---- recordings ---- */

int cuda_record_begin(struct stream *stream) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    CHECK(cuda_stream_error(s));
    CHECK(cuda_use(stream->device));
    struct cuda_recording *r = calloc(1, sizeof *r);
    if (!r) return fail(ERR_MEMORY, "out of host memory: a recording of %s", stream->device->name);
    r->head.ops = stream->device->ops;
    r->head.stream = stream;
    r->before = s->last;
    cudaError_t error = open_side(s);
    if (error == cudaSuccess)
        error = cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal);
    if (error != cudaSuccess) {
        release(r);
        return cuda_fail(error, "recording", stream->device->name);
    }
    s->recording = r;
    s->capturing = 1;
    s->recorded.name[0] = 0;
    return OK;
}

/* Leaves capture mode; *graph is NULL if the capture was broken, else the caller's. */
static cudaError_t end_capture(struct cuda_stream *s, cudaGraph_t *graph) {
    *graph = NULL;
    join_side(s);
    cudaError_t error = cudaStreamEndCapture(s->stream, graph);
    if (error != cudaSuccess && *graph) {
        cudaGraphDestroy(*graph);
        *graph = NULL;
    }
    return error;
}

static int instantiate(struct cuda_stream *s, struct cuda_recording *r, cudaGraph_t graph) {
    const char *name = s->head.device->name;
    cudaError_t error = cudaGraphInstantiate(&r->instance, graph, 0);
    if (error != cudaSuccess) r->instance = NULL;
    CUDA_CHECK(error, "making a graph of the recording", name);
    CUDA_CHECK(cudaGraphUpload(r->instance, s->stream), "upload of the recording", name);
    return OK;
}

int cuda_record_end(struct stream *stream, struct recording **out) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    struct cuda_recording *r = s->recording;
    cudaGraph_t graph = NULL;
    int code = cuda_use(stream->device);
    cudaError_t error = end_capture(s, &graph);
    if (error != cudaSuccess && !code) code = cuda_stream_fail(s, error, "end");
    s->capturing = 0;
    s->recording = NULL;
    if (!code && out) code = instantiate(s, r, graph);
    if (graph) cudaGraphDestroy(graph); /* the instance has its own copy */
    if (code || !out)
        release(r);
    else
        *out = &r->head;
    return code;
}

void cuda_record_abandon(struct cuda_stream *s) {
    cudaGraph_t graph;
    if (!s->capturing) return;
    if (end_capture(s, &graph) == cudaSuccess) cudaGraphDestroy(graph);
    release(s->recording);
    s->recording = NULL;
    s->capturing = 0;
}

/* A stream in error runs nothing, so the stream never reaches the recording's events: they get the
 * error, and whoever waits for them too. */
int cuda_replay(struct stream *stream, struct recording *recording, const char *span_name) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    struct cuda_recording *r = (struct cuda_recording *)recording;
    int code = cuda_begin(s, span_name, 0, r->flops);
    cudaError_t error = code ? cudaSuccess : cudaGraphLaunch(r->instance, s->stream);
    if (error != cudaSuccess) code = cuda_stream_fail(s, error, span_name);
    for (int i = 0; s->error && i < r->event_count; i++)
        cuda_event_set_error(r->events[i], s->error, s->error_text);
    return code ? code : cuda_end(s);
}

/* CUDA would defer the end of an instance that still runs. It is waited for here, so that the
 * caller may free next what the recording reads. */
void cuda_recording_free(struct recording *recording) {
    struct cuda_recording *r = (struct cuda_recording *)recording;
    struct cuda_stream *s = (struct cuda_stream *)recording->stream;
    cudaError_t state;
    if (cudaSetDevice(((struct cuda_device *)s->head.device)->gpu) == cudaSuccess && !s->capturing)
        (void)cuda_poll(s->head.device, NULL, s->stream, &state);
    release(r);
}
