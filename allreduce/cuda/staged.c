/* If GPUs cannot reach each other's memory (no peer access), a call is staged in host memory that
 * all ranks share.
 *
 *     stream    copies the call's data to this rank's pinned piece
 *               runs the rank's plan on the host, over the pieces of all ranks (host_execute)
 *               copies the result back to the GPU
 *
 * The plan is the one that every other executor runs, and the host's moves keep its order of
 * adding, so the bits are the same. The pieces take the place of DATA and SCRATCH: element i of a
 * registered buffer is element i of each rank's piece. The three rules of plan.h hold as they do
 * for emulated devices: when a rank leaves a call, no peer accesses its piece in this call any
 * more, so neither its copy back nor the next call's copy in can collide with a peer.
 *
 * The plan runs in a function that CUDA calls when the stream reaches it (cudaLaunchHostFunc). It
 * waits for flags like a rank of emulated devices, with the deadline, the abort word and the same
 * messages. This file keeps its error, which the waits of the device find; the stream itself
 * continues. Ranks may also share a GPU, since no kernel waits for another rank. */
#include "allreduce/cuda/executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allreduce/cuda/under_way.h"
#include "allreduce/cuda/region.h"
#include "allreduce/host/executor.h"
#include "device/cuda/flag.h"

/* A registered buffer and its copies in host memory. */
struct staged_buffer {
    const float *data;         /* this rank's, in device memory */
    struct region region;      /* every rank's piece, `count` elements */
    float *piece[MAX_DEVICES]; /* the pieces as elements */
    struct staged_buffer *next;
};

/* The argument of the function on the stream. */
struct staged_call {
    struct executor *executor;
    struct executor_call call;
};

struct executor {
    struct cuda_calls calls; /* first */
    struct host_ranks ranks; /* all ranks' flags and scratch, in host memory */
    struct region slab;      /* of each rank: flags, then two halves of scratch */
    struct staged_buffer *buffers;
    struct staged_call call[CUDA_CALLS]; /* call number k is at k % CUDA_CALLS */
    int released;                        /* 1: waits end at once, unfulfilled; atomic */
    int code;                            /* the first failure of a plan, OK if none; atomic */
    char text[CUDA_ERROR_TEXT];          /* its message, written before code */
};

/* ---- the plan, on the stream ---- */

static int wait_flag(void *context, struct comm_flag *flag, uint64_t epoch,
                     const struct comm_wait_reason *reason) {
    struct executor *e = context;
    CHECK(comm_wait_flag(e->calls.ranks->comm, flag, epoch, reason));
    if (!__atomic_load_n(&e->released, __ATOMIC_ACQUIRE)) return OK;
    return fail(ERR_FAILED, "allreduce on %s: released", e->calls.device->head.name);
}

/* After a failure, later calls of the stream do nothing. */
static void CUDART_CB run_plan(void *argument) {
    struct staged_call *c = argument;
    struct executor *e = c->executor;
    if (__atomic_load_n(&e->code, __ATOMIC_ACQUIRE) ||
        __atomic_load_n(&e->released, __ATOMIC_ACQUIRE))
        return;
    int code = host_execute(&e->ranks, &c->call);
    if (!code) return;
    snprintf(e->text, sizeof e->text, "%s", error_message());
    __atomic_store_n(&e->code, code, __ATOMIC_RELEASE);
}

/* ---- failures ---- */

static int look_at_plan(struct cuda_calls *c, int waiting) {
    struct executor *e = executor_of(c);
    int code = __atomic_load_n(&e->code, __ATOMIC_ACQUIRE);
    (void)waiting;
    return code ? fail(code, "%s", e->text) : OK;
}

/* A post to this rank's own flags wakes the wait that it is in. */
static void release_flags(struct cuda_calls *c) {
    struct executor *e = executor_of(c);
    struct comm_flag *own = e->ranks.flags[c->ranks->rank];
    __atomic_store_n(&e->released, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < PLAN_FLAG_KINDS * c->ranks->n; i++)
        comm_post_flag(&own[i], CUDA_FLAG_RELEASED);
}

static const struct cuda_calls_ops calls_ops = {.look = look_at_plan, .release = release_flags};

/* ---- life ---- */

static void free_buffer(struct staged_buffer *buffer) {
    region_close(&buffer->region);
    free(buffer);
}

static void staged_close(struct executor *e) {
    cuda_calls_unwatch(&e->calls);
    if (e->calls.stuck) return; /* the stream may still call run_plan, so nothing is freed */
    while (e->buffers) {
        struct staged_buffer *next = e->buffers->next;
        free_buffer(e->buffers);
        e->buffers = next;
    }
    region_close(&e->slab);
    cuda_calls_close(&e->calls);
    free(e);
}

static int open_parts(struct executor *e, const struct executor_ranks *ranks) {
    size_t flags = host_flags_bytes(ranks->n);
    CHECK(cuda_calls_open(&e->calls, ranks, &calls_ops));
    CHECK(region_open(&e->slab, ranks, flags + 2 * ranks->half * sizeof(float)));
    e->ranks.all = *ranks;
    e->ranks.all.traffic = NULL; /* only the copies in staged_enqueue cross links */
    e->ranks.wait = wait_flag;
    e->ranks.wait_context = e;
    for (int r = 0; r < ranks->n; r++) {
        char *piece = e->slab.of[r];
        e->ranks.flags[r] = e->slab.of[r];
        e->ranks.all.scratch[r] = (float *)(void *)(piece + flags);
    }
    return OK;
}

static int staged_open(struct executor **out, const struct executor_ranks *ranks) {
    struct executor *e = calloc(1, sizeof *e);
    if (!e) return fail(ERR_MEMORY, "allreduce: out of host memory: free some");
    int code = open_parts(e, ranks);
    if (code) {
        staged_close(e);
        return code;
    }
    cuda_calls_watch(&e->calls);
    *out = e;
    return OK;
}

static int add_buffer(struct executor *e, float *data, size_t count) {
    struct staged_buffer *added = calloc(1, sizeof *added);
    if (!added) return fail(ERR_MEMORY, "allreduce: out of host memory: free some");
    int code = region_open(&added->region, e->calls.ranks, (count + 1) * sizeof(float));
    if (code) {
        free(added);
        return code;
    }
    for (int r = 0; r < e->calls.ranks->n; r++)
        added->piece[r] = added->region.of[r];
    added->data = data;
    added->next = e->buffers;
    e->buffers = added;
    return OK;
}

/* ---- a call ---- */

static int enqueue_parts(struct executor *e, struct cuda_stream *s, struct staged_call *c,
                         float *data) {
    int rank = e->calls.ranks->rank;
    float *piece = c->call.data[rank] + c->call.offset;
    size_t bytes = c->call.count * sizeof(float);
    CUDA_STREAM_CHECK(s, cudaMemcpyAsync(piece, data, bytes, cudaMemcpyDeviceToHost, s->stream),
                      "allreduce");
    CUDA_STREAM_CHECK(s, cudaLaunchHostFunc(s->stream, run_plan, c), "allreduce");
    CUDA_STREAM_CHECK(s, cudaMemcpyAsync(data, piece, bytes, cudaMemcpyHostToDevice, s->stream),
                      "allreduce");
    traffic_add(e->calls.ranks->traffic, e->calls.ranks->link[rank], LINK_HOST, bytes);
    traffic_add(e->calls.ranks->traffic, LINK_HOST, e->calls.ranks->link[rank], bytes);
    return OK;
}

static int staged_enqueue(struct executor *e, struct stream *stream,
                          const struct executor_call *call, const char *span_name) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    float *data = call->data[e->calls.ranks->rank];
    const struct staged_buffer *buffer = e->buffers;
    while (buffer->data != data)
        buffer = buffer->next;
    CHECK(cuda_calls_begin(&e->calls, s, call));
    struct staged_call *c = &e->call[(e->calls.next - 1) % CUDA_CALLS];
    *c = (struct staged_call){.executor = e, .call = *call};
    c->call.data = buffer->piece;
    CHECK(cuda_begin(s, span_name, 2 * call->count * sizeof(float), 0));
    CHECK(enqueue_parts(e, s, c, data + call->offset));
    CHECK(cuda_end(s));
    return cuda_calls_end(&e->calls, s);
}

const struct executor_ops cuda_staged_ops = {.name = "staged",
                                             .runs_plans = 1,
                                             .open = staged_open,
                                             .add_buffer = add_buffer,
                                             .enqueue = staged_enqueue,
                                             .release = cuda_calls_release,
                                             .close = staged_close};
