/* Stream capture and graphs. While a stream captures, its items go to a list and are not run; a
 * launch of the graph enqueues copies of them. One stream at a time is captured, so a graph is a
 * straight line.
 *
 * A thread that captures in thread-local (or global) mode is refused every call that might wait or
 * that the capture does not see (allocations, syncs, queries). A refusal invalidates the capture:
 * nothing more is recorded, and its end gives cudaErrorStreamCaptureInvalidated and no graph. */
#include "tests/stand_ins/cuda_emulation/emulation.h"

#include <stdio.h>

struct CUgraph_st {
    struct item **items;
    size_t count, capacity;
};

struct CUgraphExec_st {
    struct CUgraph_st items;
    struct gpu *gpu;
    cudaEvent_t last; /* two launches of one graph never overlap, on whatever streams */
};

struct capture {
    enum cudaStreamCaptureMode mode;
    struct emulated_thread *thread; /* the thread that began it */
    int invalid;
    struct CUgraph_st *graph;
};

static int append(struct CUgraph_st *g, struct item *item) {
    if (g->count == g->capacity) {
        size_t capacity = g->capacity ? 2 * g->capacity : 64;
        struct item **items = realloc(g->items, capacity * sizeof *items);
        if (!items) return 0;
        g->items = items;
        g->capacity = capacity;
    }
    g->items[g->count++] = item;
    return 1;
}

static void empty(struct CUgraph_st *g) {
    for (size_t i = 0; i < g->count; i++)
        free(g->items[i]);
    free(g->items);
    memset(g, 0, sizeof *g);
}

static void invalidate(struct capture *c) {
    c->invalid = 1;
    empty(c->graph);
}

cudaError_t capture_add(struct CUstream_st *s, struct item *item) {
    struct capture *c = s->capture;
    if (!c->invalid && append(c->graph, item)) return cudaSuccess;
    free(item);
    if (c->invalid) return cudaErrorStreamCaptureInvalidated;
    invalidate(c);
    return cudaErrorMemoryAllocation;
}

cudaError_t capture_refuse(struct CUstream_st *s, cudaError_t error) {
    struct capture *c = s->capture;
    if (!c) return error;
    if (c->invalid) return cudaErrorStreamCaptureInvalidated;
    invalidate(c);
    return error;
}

/* ---- capture ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
    ENTER(enter_gpu());
    struct CUstream_st *s = stream_of(handle);
    if (!s) return give(cudaErrorInvalidResourceHandle);
    if (s == s->gpu->legacy) return give(cudaErrorStreamCaptureUnsupported);
    if (mode > cudaStreamCaptureModeRelaxed) return give(cudaErrorInvalidValue);
    if (s->capture) return give(cudaErrorIllegalState);
    if (emulated_self.capture) {
        fprintf(stderr,
                "emulated CUDA: a second capture in one thread: one at a time is emulated\n");
        return give(cudaErrorNotSupported);
    }
    struct capture *c = calloc(1, sizeof *c);
    if (c) c->graph = calloc(1, sizeof *c->graph);
    if (!c || !c->graph) return free(c), give(cudaErrorMemoryAllocation);
    c->mode = mode;
    c->thread = &emulated_self;
    if (mode != cudaStreamCaptureModeRelaxed) emulated_self.capture = s;
    s->capture = c;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *out) {
    ENTER(enter_gpu());
    struct CUstream_st *s = stream_of(handle);
    if (!s || !out) return give(cudaErrorInvalidResourceHandle);
    struct capture *c = s->capture;
    *out = NULL;
    if (!c) return give(cudaErrorIllegalState);
    if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != &emulated_self) {
        invalidate(c);
        return give(cudaErrorStreamCaptureWrongThread);
    }
    if (emulated_self.capture == s) emulated_self.capture = NULL;
    s->capture = NULL;
    if (!c->invalid)
        *out = c->graph;
    else
        free(c->graph);
    cudaError_t error = c->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
    free(c);
    return give(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status) {
    ENTER(enter_gpu());
    struct CUstream_st *s = stream_of(handle);
    if (!s || !status) return give(cudaErrorInvalidResourceHandle);
    *status = !s->capture           ? cudaStreamCaptureStatusNone
              : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    if (!graph) return give(cudaErrorInvalidValue);
    empty(graph);
    free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    /* only their number is asked for */
    if (!graph || nodes) return give(graph ? cudaErrorNotSupported : cudaErrorInvalidValue);
    *count = graph->count;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                 unsigned long long flags) {
    ENTER(enter_gpu());
    if (!out || !graph || flags) return give(cudaErrorInvalidValue);
    cudaGraphExec_t exec = calloc(1, sizeof *exec);
    if (!exec) return give(cudaErrorMemoryAllocation);
    exec->gpu = current_gpu();
    for (size_t i = 0; i < graph->count; i++) {
        struct item *item = item_copy(graph->items[i]);
        if (item && append(&exec->items, item)) continue;
        free(item);
        empty(&exec->items);
        free(exec);
        return give(cudaErrorMemoryAllocation);
    }
    cudaError_t error = cudaEventCreateWithFlags(&exec->last, cudaEventDisableTiming);
    if (error != cudaSuccess) return empty(&exec->items), free(exec), error;
    *out = exec;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph,
                                          unsigned long long flags) {
    return cudaGraphInstantiate(out, graph, flags);
}

/* Launches that still run have copies of their own. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    if (!exec) return give(cudaErrorInvalidValue);
    cudaEventDestroy(exec->last);
    empty(&exec->items);
    free(exec);
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    ENTER(enter_gpu());
    struct CUstream_st *s = stream_of(stream);
    if (!exec || !s) return give(cudaErrorInvalidResourceHandle);
    return give(s->capture ? capture_refuse(s, cudaErrorStreamCaptureUnsupported) : cudaSuccess);
}

/* An external record is numbered now, so that a wait called after the launch waits for it. */
static struct item *again(const struct item *item) {
    struct item *copy = item_copy(item);
    if (!copy) return NULL;
    struct event_state *state =
        item->kind == ITEM_RECORD || item->kind == ITEM_WAIT ? item->u.event.event->state : NULL;
    if (item->kind == ITEM_RECORD)
        copy->u.event.number =
            atomic_fetch_add_explicit(&state->recorded, 1, memory_order_relaxed) + 1;
    if (item->kind == ITEM_WAIT)
        copy->u.event.number = atomic_load_explicit(&state->recorded, memory_order_relaxed);
    if (item->kind == ITEM_KERNEL)
        copy->fails = fault_now("launch") ? 1 : fault_now("hang") ? 2 : item->fails;
    return copy;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    ENTER(enter_gpu());
    struct CUstream_st *s = stream_of(stream);
    if (!exec || !s) return give(cudaErrorInvalidResourceHandle);
    if (s->gpu != exec->gpu) return give(cudaErrorInvalidValue);
    if (s->capture) { /* a graph inside a graph */
        fprintf(stderr, "emulated CUDA: the launch of a graph is captured: that is not emulated\n");
        return give(capture_refuse(s, cudaErrorNotSupported));
    }
    ENTER(cudaStreamWaitEvent(stream, exec->last, 0));
    for (size_t i = 0; i < exec->items.count; i++) {
        struct item *item = again(exec->items.items[i]);
        if (!item) return give(cudaErrorMemoryAllocation);
        stream_post(s, item);
    }
    return cudaEventRecord(exec->last, stream);
}
