/* Calls of NCCL's allreduce: putting one on the stream, looking after those under way, and
 * abort. */
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include "allreduce/cuda/nccl_state.h"
#include "base/clock.h"

/* between two questions; for the job to name the cause */
static const int64_t PAUSE_NS = 100000, GRACE_NS = 500000000;
/* what the stream needs to end once it was aborted */
static const double DRAIN_S = 1.5;
/* elements of one tensor: its dimensions are int */
static const size_t PIECE = (size_t)1 << 30;

/* ---- abort ---- */

static void *abort_communicator(void *argument) {
    struct executor *e = argument;
    cudaSetDevice(e->device->gpu);
    e->nccl.ncclCommAbort(e->aborting);
    __atomic_store_n(&e->aborted, 1, __ATOMIC_RELEASE);
    return NULL;
}

void nccl_start_abort(struct executor *e) {
    if (!e->comm) return;
    e->aborting = e->comm;
    e->comm = NULL; /* nobody calls NCCL with it any more */
    if (pthread_create(&e->abort_thread, NULL, abort_communicator, e)) {
        e->aborting = NULL; /* no thread to be had: the end of the process is left to end it */
        e->stuck = 1;
    }
}

/* Not cuda_poll, which would ask whether to go on. A broken context counts as empty. */
int nccl_runs_empty(const struct executor *e) {
    int64_t deadline = deadline_after(DRAIN_S);
    for (;;) {
        cudaError_t state = e->stream ? cudaStreamQuery(e->stream->stream) : cudaSuccess;
        int gone = !e->aborting || __atomic_load_n(&e->aborted, __ATOMIC_ACQUIRE);
        if (state != cudaSuccess) cudaGetLastError();
        if (state != cudaErrorNotReady && gone) return 1;
        if (now_ns() >= deadline) return 0;
        struct timespec pause = {0, PAUSE_NS};
        nanosleep(&pause, NULL);
    }
}

int nccl_release(struct executor *e) {
    cuda_watch_release(e->device);
    if (!nccl_runs_empty(e)) e->stuck = 1;
    return !e->stuck;
}

/* ---- looking after what is under way ---- */

static int is_done(cudaEvent_t event) {
    cudaError_t state = cudaEventQuery(event);
    if (state != cudaSuccess) cudaGetLastError(); /* else who asks behind a launch would find it */
    return state != cudaErrorNotReady;
}

static void retire(struct executor *e) {
    while (e->oldest < e->next && e->call[e->oldest % NCCL_CALLS].complete &&
           is_done(e->call[e->oldest % NCCL_CALLS].ended))
        e->oldest++;
}

/* NCCL does not know what ended its peer; the job may, in a moment. */
static int look_at_nccl(struct executor *e, int waiting) {
    ncclResult_t state = e->comm ? nccl_state(e) : ncclSuccess;
    if (state == ncclSuccess || state == ncclInProgress) return OK;
    if (e->ranks->comm) CHECK(comm_check(e->ranks->comm));
    if (!e->failed_ns) e->failed_ns = now_ns();
    return waiting && now_ns() - e->failed_ns < GRACE_NS ? OK : nccl_fail(e, state);
}

/* A call that has begun and does not end waits for a rank, which one NCCL does not say. */
static int look_at_peers(struct executor *e) {
    struct comm *comm = e->ranks->comm;
    retire(e);
    const struct nccl_call *oldest = &e->call[e->oldest % NCCL_CALLS];
    if (e->oldest == e->next || !oldest->complete || !is_done(oldest->begun)) return OK;
    if (e->waiting != e->oldest + 1) {
        struct comm_wait_reason reason = {"allreduce", oldest->bucket, oldest->step, -1};
        comm_distant_begin(comm, &e->wait, &reason);
        e->waiting = e->oldest + 1;
    }
    return comm_distant_look(comm, &e->wait);
}

static struct executor *executor_of(struct cuda_watch *watch) {
    return (struct executor *)((char *)watch - offsetof(struct executor, watch));
}

static int look(struct cuda_watch *watch, int waiting) {
    struct executor *e = executor_of(watch);
    int code = look_at_nccl(e, waiting);
    if (!code && waiting && e->ranks->comm) code = look_at_peers(e);
    return code ? nccl_keep(e, code) : OK;
}

static void release_watch(struct cuda_watch *watch) {
    nccl_start_abort(executor_of(watch));
}

void nccl_watch(struct executor *e) {
    e->watch.look = look;
    e->watch.release = release_watch;
    cuda_watch_add(e->device, &e->watch);
}

/* ---- a call ---- */

/* Room for one more call. */
static int wait_for_oldest(struct executor *e) {
    cudaError_t state;
    retire(e);
    if (e->next - e->oldest < NCCL_CALLS) return OK;
    uint64_t oldest = e->oldest;
    CHECK(cuda_poll(&e->device->head, e->call[oldest % NCCL_CALLS].ended, NULL, &state));
    if (state == cudaErrorNotReady)
        return fail(ERR_TIMEOUT,
                    "allreduce on %s: a call is not done after %g s: the GPU may be stuck",
                    e->device->head.name, e->device->head.config.timeout_s);
    if (e->oldest == oldest) e->oldest++; /* else a look inside the poll has retired it */
    return OK;
}

static int scale(struct cuda_stream *s, float *data, size_t count, float factor) {
    for (size_t done = 0; factor != 1 && done < count; done += PIECE) {
        int length = (int)(count - done < PIECE ? count - done : PIECE);
        struct op_args args = {.out[0] = tensor_plain(data + done, DTYPE_F32, 1, &length),
                               .p.fill.value = factor};
        CHECK(cuda_launch_op(s, OP_SCALE, &args));
    }
    return OK;
}

/* NCCL does not say what went where: charged is what a ring of all ranks moves, the least there
 * is. */
static uint64_t charge(const struct executor_ranks *r, size_t count) {
    uint64_t n = (uint64_t)r->n, bytes = 2 * (n - 1) * (uint64_t)count * sizeof(float) / n;
    if (n > 1 && r->traffic)
        traffic_add(r->traffic, r->link[r->rank], r->link[(r->rank + 1) % r->n], bytes);
    return n > 1 ? bytes : 0;
}

static int run(struct executor *e, struct cuda_stream *s, struct nccl_call *c, float *data,
               size_t count, float factor) {
    CUDA_STREAM_CHECK(s, cudaEventRecord(c->begun, s->stream), "allreduce");
    CHECK(scale(s, data, count, factor));
    ncclResult_t result =
        e->nccl.ncclAllReduce(data, data, count, ncclFloat32, ncclSum, e->comm, s->stream);
    /* before: the kernel may not be on the stream yet */
    CHECK(nccl_settle(e, result, "a call of NCCL"));
    CUDA_STREAM_CHECK(s, cudaEventRecord(c->ended, s->stream), "allreduce");
    c->complete = 1;
    return OK;
}

int nccl_enqueue(struct executor *e, struct stream *stream, const struct executor_call *call,
                 const char *span_name) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    if (s->capturing)
        return fail(ERR_FAILED, "allreduce nccl on %s: not inside a recording",
                    stream->device->name);
    e->stream = s;
    if (e->ranks->comm) CHECK(comm_check(e->ranks->comm));
    CHECK(cuda_watch_look(stream->device, 0));
    if (!e->comm)
        return fail(ERR_FAILED, "allreduce nccl on %s: NCCL was aborted: start anew",
                    stream->device->name);
    CHECK(wait_for_oldest(e));
    struct nccl_call *c = &e->call[e->next++ % NCCL_CALLS];
    c->complete = 0;
    c->bucket = call->bucket, c->step = call->step;
    CHECK(cuda_begin(s, span_name, charge(e->ranks, call->count), 0));
    int code = run(e, s, c, call->data[e->ranks->rank] + call->offset, call->count, call->scale);
    if (code) return nccl_keep(e, code);
    return cuda_end(s);
}
