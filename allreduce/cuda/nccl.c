/* An executor that uses NCCL's own collectives, in place, in float32, on the communication stream.
 *
 * set-up rank 0 makes a unique id, all ranks get it by comm_gather, on several machines by MPI, and
 * all call ncclCommInitRankConfig
 *     a call    data *= scale (a kernel of Duet's), then ncclAllReduce, ncclAllGather,
 *               ncclReduceScatter or ncclBroadcast
 *     end       ncclCommFinalize, ncclCommDestroy; after a failure of the job ncclCommAbort
 *
 * One of Duet's kernels scales before the call, instead of NCCL's PreMulSum: each product must be
 * rounded before it is added (allreduce.h), and NCCL may fuse the two. The cost is one pass over
 * the data. So over 2 ranks the bits are those of every other algorithm, because a + b equals b +
 * a. Over more ranks NCCL chooses the order, and no bits are promised.
 *
 * No call here waits without a deadline. The communicator is non-blocking. Slow calls return
 * ncclInProgress, and ncclCommGetAsyncError is polled, with a look at the job in between. Each wait
 * of the device checks for later errors. NCCL's documentation says that abort ends kernels that
 * wait for a peer, but not how long abort itself takes, so it runs in its own thread. */
#include "allreduce/cuda/nccl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/advice.h"
#include "allreduce/cuda/under_way.h"
#include "allreduce/cuda/executor.h"
#include "allreduce/cuda/nccl_library.h"
#include "base/clock.h"
#include "base/thread.h"

/* NCCL's blocks for each rank on a GPU that ranks share: the blocks of all ranks must be resident
 * together. */
enum { SHARED_CTAS = 2 };
static const char A_CALL[] = "a call of NCCL";
static const int64_t PAUSE_NS = 100000;      /* between two queries to NCCL */
static const int64_t GRACE_NS = 500000000;   /* lets the job name the cause of NCCL's error */
static const size_t PIECE = (size_t)1 << 30; /* elements per call; tensor dimensions are int */

struct executor {
    struct cuda_calls calls; /* first */
    struct nccl_table nccl;
    ncclComm_t comm;   /* NULL: not made yet, or being aborted */
    int64_t failed_ns; /* when NCCL first reported an error; 0: it has not */
    pthread_t abort_thread;
    ncclComm_t aborting; /* the communicator that the thread aborts; NULL: no thread was started */
    int aborted;         /* 1: the thread is done; atomic */
};

/* ---- failures ---- */

/* "allreduce bucket 1 step 7", of the call that was enqueued last. */
static void name_call(const struct cuda_calls *c, char *text, size_t size) {
    const struct cuda_call *call = c->next ? &c->call[(c->next - 1) % CUDA_CALLS] : NULL;
    int sums = !call || call->what == COLLECTIVE_ALL_REDUCE;
    int used = snprintf(text, size, "%s", sums ? "allreduce" : collective_name(call->what));
    if (call && call->bucket >= 0)
        used += snprintf(text + used, size - (size_t)used, sums ? " bucket %d" : " unit %d",
                         call->bucket);
    if (call && call->step >= 0)
        snprintf(text + used, size - (size_t)used, " step %ld", call->step);
}

static int fail_by_nccl(struct executor *e, ncclResult_t result) {
    char what[64], last[256] = "";
    name_call(&e->calls, what, sizeof what);
    const char *more = e->comm ? e->nccl.ncclGetLastError(e->comm) : NULL;
    if (more && *more) snprintf(last, sizeof last, " (%.200s)", more);
    for (char *c = last; *c; c++)
        if (*c == '\n') *c = ' ';
    fail(ERR_FAILED, "%s on %s: NCCL: %s%s: NCCL_DEBUG=WARN says more; or " ADVICE_AUTO, what,
         e->calls.device->head.name, e->nccl.ncclGetErrorString(result), last);
    return cuda_calls_fail(&e->calls, ERR_FAILED);
}

/* The state of the communicator: ncclInProgress, ncclSuccess, or its error. */
static ncclResult_t state_of(struct executor *e) {
    ncclResult_t state = ncclSuccess, asked = e->nccl.ncclCommGetAsyncError(e->comm, &state);
    return asked == ncclSuccess ? state : asked;
}

/* Waits until the communicator has finished its last call, which returned `result`. `what` names it
 * in errors: "NCCL's set-up". */
static int settle(struct executor *e, ncclResult_t result, const char *what) {
    struct comm *comm = e->calls.ranks->comm;
    const struct device_config *config = &e->calls.device->head.config;
    struct comm_wait_reason reason = {
        .collective = "allreduce", .bucket = -1, .step = -1, .peer = -1};
    int64_t deadline = deadline_after(comm ? comm_timeout_s(comm) : config->timeout_s);
    while (result == ncclInProgress) {
        struct timespec pause = {0, PAUSE_NS};
        nanosleep(&pause, NULL);
        result = state_of(e);
        if (comm) CHECK(comm_check(comm));
        if (config->interrupted) CHECK(config->interrupted(config->interrupt_context));
        if (result != ncclInProgress || now_ns() < deadline) continue;
        if (comm) return comm_distant_late(comm, &reason, what);
        return fail(ERR_TIMEOUT, "allreduce (%s): did not finish within %g s", what,
                    config->timeout_s);
    }
    return result == ncclSuccess ? OK : fail_by_nccl(e, result);
}

/* ---- abort ---- */

static void *abort_communicator(void *argument) {
    struct executor *e = argument;
    cudaSetDevice(e->calls.device->gpu);
    e->nccl.ncclCommAbort(e->aborting);
    __atomic_store_n(&e->aborted, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void start_abort(struct executor *e) {
    if (!e->comm) return;
    e->aborting = e->comm;
    e->comm = NULL; /* NCCL is not called with it any more */
    if (thread_start(&e->abort_thread, abort_communicator, e)) {
        e->aborting = NULL; /* without a thread the communicator is never freed */
        e->calls.stuck = 1;
    }
}

/* ---- the calls in flight ---- */

/* NCCL reports an error but not its cause. A peer's failure reaches the job a moment later, so the
 * job is checked first. */
static int look_at_nccl(struct cuda_calls *c, int waiting) {
    struct executor *e = executor_of(c);
    ncclResult_t state = e->comm ? state_of(e) : ncclSuccess;
    if (state == ncclSuccess || state == ncclInProgress) return OK;
    if (c->ranks->comm) CHECK(comm_check(c->ranks->comm));
    if (!e->failed_ns) e->failed_ns = now_ns();
    return waiting && now_ns() - e->failed_ns < GRACE_NS ? OK : fail_by_nccl(e, state);
}

/* A call that has begun and does not end waits for a rank; NCCL does not say for which. */
static enum cuda_awaits awaited(struct cuda_calls *c, const struct cuda_call *call,
                                struct cuda_awaited *out) {
    (void)c, (void)call;
    out->peer = -1;
    return CUDA_AWAITS_PEER;
}

static void release_by_abort(struct cuda_calls *c) {
    start_abort(executor_of(c));
}

static int is_aborted(struct cuda_calls *c) {
    struct executor *e = executor_of(c);
    return !e->aborting || __atomic_load_n(&e->aborted, __ATOMIC_ACQUIRE);
}

static const struct cuda_calls_ops calls_ops = {.look = look_at_nccl,
                                                .awaited = awaited,
                                                .release = release_by_abort,
                                                .is_released = is_aborted};

/* ---- life ---- */

/* Rank 0's id, for all. A rank that fails here ends the job, and with it the peers' wait in the
 * gather. */
static int agree_on_id(struct executor *e, ncclUniqueId *id) {
    const struct executor_ranks *r = e->calls.ranks;
    memset(id, 0, sizeof *id);
    if (r->rank == 0) {
        ncclResult_t made = e->nccl.ncclGetUniqueId(id);
        if (made != ncclSuccess) return fail_by_nccl(e, made);
    }
    if (!r->comm) return OK;
    ncclUniqueId all[MAX_DEVICES];
    CHECK(comm_gather(r->comm, id, sizeof *id, all));
    *id = all[0];
    return OK;
}

static int open_parts(struct executor *e, const struct executor_ranks *ranks) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    int version;
    CHECK(cuda_calls_open(&e->calls, ranks, &calls_ops));
    CHECK(nccl_load(&e->nccl, &version));
    CHECK(agree_on_id(e, &id));
    config.blocking = 0;
    if (e->calls.device->sharers > 1) config.maxCTAs = SHARED_CTAS;
    ncclResult_t result =
        e->nccl.ncclCommInitRankConfig(&e->comm, ranks->n, id, ranks->rank, &config);
    return settle(e, result == ncclSuccess ? ncclInProgress : result, "NCCL's set-up");
}

/* All ranks are here, as their streams have run empty: see leave_together in allreduce/memory.c. */
static void finish(struct executor *e) {
    if (e->comm && settle(e, e->nccl.ncclCommFinalize(e->comm), "NCCL's end")) start_abort(e);
    if (e->comm) e->nccl.ncclCommDestroy(e->comm);
    e->comm = NULL;
}

static void nccl_close(struct executor *e) {
    cuda_calls_unwatch(&e->calls);
    finish(e);
    if (e->aborting && cuda_calls_drain(&e->calls)) {
        pthread_join(e->abort_thread, NULL);
    } else if (e->aborting) {
        pthread_detach(e->abort_thread);
        return; /* the thread still uses the executor, so both stay until the process ends */
    }
    cuda_calls_close(&e->calls);
    free(e);
}

static int nccl_open(struct executor **out, const struct executor_ranks *ranks) {
    struct executor *e = calloc(1, sizeof *e);
    if (!e) return fail(ERR_MEMORY, "allreduce: out of host memory: free some");
    int code = open_parts(e, ranks);
    if (!code) {
        cuda_calls_watch(&e->calls);
        *out = e;
        return OK;
    }
    struct failures first = {0};
    failures_add(&first, code);
    start_abort(e);
    nccl_close(e);
    return failures_end(&first);
}

/* ---- a call ---- */

static int scale(struct cuda_stream *s, float *data, size_t count, float factor) {
    for (size_t done = 0; factor != 1 && done < count; done += PIECE) {
        int length = (int)(count - done < PIECE ? count - done : PIECE);
        const struct tensor t = tensor_plain(data + done, DTYPE_F32, 1, &length);
        struct op_args args = {
            .in[0] = t, .out[0] = t, .p.activation = {ACTIVATION_SCALE, factor, 0}};
        CHECK(cuda_launch_op(s, OP_ACTIVATION_FORWARD, &args));
    }
    return OK;
}

/* NCCL does not report what it moved. So a call is charged the least that it can move: an
 * allreduce the bytes of a ring of all ranks, the others what a rank receives from each. Returns
 * the bytes. */
static uint64_t charge(const struct executor_ranks *r, const struct executor_call *call) {
    uint64_t n = (uint64_t)r->n, each = (uint64_t)call->count * sizeof(float) / n;
    if (n == 1) return 0;
    if (call->what == COLLECTIVE_ALL_REDUCE) {
        uint64_t bytes = 2 * (n - 1) * (uint64_t)call->count * sizeof(float) / n;
        traffic_add(r->traffic, r->link[r->rank], r->link[(r->rank + 1) % r->n], bytes);
        return bytes;
    }
    for (int from = 0; from < r->n; from++) {
        if (call->what == COLLECTIVE_BROADCAST) each = from ? 0 : call->count * sizeof(float);
        if (from != r->rank) traffic_add(r->traffic, r->link[from], r->link[r->rank], each);
    }
    return call->what == COLLECTIVE_BROADCAST ? (uint64_t)call->count * sizeof(float)
                                              : (n - 1) * each;
}

/* Row after row of n blocks; the owners of remaining blocks send them one by one. */
static int all_gather(struct executor *e, cudaStream_t s, float *data,
                      const struct executor_call *call) {
    size_t n = (size_t)e->calls.ranks->n, blocks = call->count / call->block, done = 0;
    for (; done + n <= blocks; done += n) {
        float *row = data + done * call->block;
        const float *own = row + (size_t)e->calls.ranks->rank * call->block;
        CHECK(settle(e, e->nccl.ncclAllGather(own, row, call->block, ncclFloat32, e->comm, s),
                     A_CALL));
    }
    for (; done < blocks; done++) {
        float *block = data + done * call->block;
        CHECK(settle(e,
                     e->nccl.ncclBroadcast(block, block, call->block, ncclFloat32, (int)(done % n),
                                           e->comm, s),
                     A_CALL));
    }
    return OK;
}

/* settle comes before the end of the call is recorded: until then NCCL's kernel may not be on the
 * stream yet. */
static int run(struct executor *e, struct cuda_stream *to, const struct executor_call *call) {
    const int rank = e->calls.ranks->rank;
    const struct nccl_table *nccl = &e->nccl;
    float *data = call->data[rank] + call->offset;
    cudaStream_t s = to->stream;
    CHECK(scale(to, data, call->count, (float)call->scale));
    if (call->what == COLLECTIVE_ALL_GATHER)
        CHECK(all_gather(e, s, data, call));
    else if (call->what == COLLECTIVE_REDUCE_SCATTER)
        CHECK(settle(e,
                     nccl->ncclReduceScatter(data, data + (size_t)rank * call->block, call->block,
                                             ncclFloat32, ncclSum, e->comm, s),
                     A_CALL));
    else if (call->what == COLLECTIVE_BROADCAST)
        CHECK(settle(e, nccl->ncclBroadcast(data, data, call->count, ncclFloat32, 0, e->comm, s),
                     A_CALL));
    else
        CHECK(settle(e,
                     nccl->ncclAllReduce(data, data, call->count, ncclFloat32, ncclSum, e->comm, s),
                     A_CALL));
    return cuda_calls_end(&e->calls, to);
}

static int nccl_enqueue(struct executor *e, struct stream *stream, const struct executor_call *call,
                        const char *span_name) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    const struct executor_ranks *ranks = e->calls.ranks;
    CHECK(cuda_calls_begin(&e->calls, s, call));
    if (!e->comm)
        return fail(ERR_FAILED, "allreduce nccl on %s: NCCL was aborted: restart the job",
                    stream->device->name);
    CHECK(cuda_begin(s, span_name, charge(ranks, call), 0));
    int code = run(e, s, call);
    if (code) return cuda_calls_fail(&e->calls, code);
    return cuda_end(s);
}

const struct executor_ops cuda_nccl_ops = {.name = "nccl",
                                           .itself = ALLREDUCE_NCCL,
                                           .open = nccl_open,
                                           .enqueue = nccl_enqueue,
                                           .release = cuda_calls_release,
                                           .close = nccl_close};
