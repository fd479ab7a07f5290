/* Stream capture and graphs. While a stream captures, its items go to a list and are not run; a
 * launch of the graph enqueues copies of them, all on one stream.
 *
 * A second stream may take part: it waits for an event of the first, and the first waits for one
 * of it before the end. What it is given meanwhile may run at any time between the two. Here it
 * runs as late as it may, behind everything of the first stream up to the place where the two meet:
 * whoever overwrites too early what the branch reads has other bits.
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
    struct CUstream_st *origin, *branch; /* branch NULL: no second stream has taken part */
    struct CUgraph_st late;              /* the branch's items since the two streams met */
    int unjoined;                        /* 1: the branch has yet to be waited for */
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
    empty(&c->late);
}

cudaError_t capture_add(struct CUstream_st *s, struct item *item) {
    struct capture *c = s->capture;
    struct CUgraph_st *to = s == c->branch ? &c->late : c->graph;
    if (s == c->branch) c->unjoined = 1;
    if (!c->invalid && append(to, item)) return cudaSuccess;
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

/* ---- a second stream ---- */

void capture_mark(struct CUstream_st *s, cudaEvent_t event) {
    event->captured_on = s;
    event->captured_at = s->capture->late.count;
    atomic_store(&event->captured_in, s->capture);
}

static cudaError_t branch_off(struct capture *c, struct CUstream_st *s) {
    if (c->branch && c->branch != s) {
        fprintf(stderr, "emulated CUDA: a third stream in a capture: two are emulated\n");
        return cudaErrorNotSupported;
    }
    c->branch = s;
    s->capture = c;
    c->unjoined = 1;
    return cudaSuccess;
}

/* The first stream waits for the first `count` items of the branch. */
static cudaError_t meet(struct capture *c, size_t count) {
    struct CUgraph_st *late = &c->late;
    for (size_t i = 0; i < count; i++)
        if (!append(c->graph, late->items[i])) return cudaErrorMemoryAllocation;
    late->count -= count;
    if (late->count) memmove(late->items, late->items + count, late->count * sizeof *late->items);
    c->unjoined = late->count > 0;
    return cudaSuccess;
}

/* The event is of a capture under way, or of one that has ended, which nobody may wait for. */
cudaError_t capture_wait(struct CUstream_st *s, cudaEvent_t event) {
    struct CUstream_st *from = event->captured_on;
    struct capture *c = from->capture;
    if (!c || c != event->captured_in) return cudaErrorCapturedEvent;
    if (c->invalid) return cudaErrorStreamCaptureInvalidated;
    if (s->capture && s->capture != c) return capture_refuse(s, cudaErrorStreamCaptureMerge);
    if (!s->capture) return branch_off(c, s);
    if (s != c->origin || from != c->branch) return cudaSuccess;
    return meet(c, event->captured_at < c->late.count ? event->captured_at : c->late.count);
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
    c->origin = s;
    c->thread = &emulated_self;
    if (mode != cudaStreamCaptureModeRelaxed) emulated_self.capture = s;
    s->capture = c;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *out) {
    ENTER(enter_uncounted());
    struct CUstream_st *s = stream_of(handle);
    if (!s || !out) return give(cudaErrorInvalidResourceHandle);
    struct capture *c = s->capture;
    *out = NULL;
    if (!c) return give(cudaErrorIllegalState);
    if (s == c->branch) return give(capture_refuse(s, cudaErrorStreamCaptureUnmatched));
    if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != &emulated_self) {
        invalidate(c);
        return give(cudaErrorStreamCaptureWrongThread);
    }
    if (emulated_self.capture == s) emulated_self.capture = NULL;
    s->capture = NULL;
    if (c->branch) c->branch->capture = NULL;
    cudaError_t error = c->invalid    ? cudaErrorStreamCaptureInvalidated
                        : c->unjoined ? cudaErrorStreamCaptureUnjoined
                                      : cudaSuccess;
    if (error != cudaSuccess) {
        invalidate(c);
        free(c->graph);
    } else {
        *out = c->graph;
        free(c->late.items);
    }
    free(c);
    return give(error);
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
        item->kind == ITEM_RECORD || item->kind == ITEM_WAIT ? &item->u.event.event->state : NULL;
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
