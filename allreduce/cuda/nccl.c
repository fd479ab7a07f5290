/* NCCL's own allreduce as an executor: in place, float32, on the communication stream.
 *
 *     set-up    rank 0 makes a unique id, all learn it by comm_exchange, all call ncclCommInitRankConfig
 *     a call    data *= scale (Duet's kernel), then ncclAllReduce
 *     end       ncclCommFinalize, ncclCommDestroy; after a failure of the job ncclCommAbort
 *
 * The scale is a kernel of Duet's in front and not NCCL's PreMulSum: each product has to be
 * rounded before it is added (allreduce.h), and NCCL's kernels may fuse the two. It costs a read
 * and a write of the data. So over 2 ranks the bits are those of every other algorithm, as a + b
 * is b + a; over more NCCL chooses the order, and nothing is promised.
 *
 * No call here waits without a deadline. The communicator is non-blocking: whatever takes time
 * returns ncclInProgress, and ncclCommGetAsyncError is asked again and again, with a look at the
 * job in between. What goes wrong later is asked for by each wait of the device (struct
 * cuda_watch). Abort is documented to end kernels that wait for a peer, but not how long it
 * takes itself: it has a thread of its own. */
#include "allreduce/cuda/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allreduce/cuda/nccl_state.h"
#include "base/clock.h"
#include "device/gpu_handle.h"

#define LIBRARY_TABLE struct nccl_table
static const struct library_function functions[] = {NCCL_FUNCTIONS(LIBRARY_ROW)};

/* SHARED_CTAS: blocks of NCCL's on a GPU that ranks share, since all of them must be resident
 * together. */
enum { SHARED_CTAS = 2, SHARES_GPUS_FROM = 23000 };
static const int64_t PAUSE_NS = 100000; /* between two questions */

/* ---- the library ---- */

static const struct library_place place = {
    .title = "NCCL",
    .variable = "DUET_NCCL",
    .file = NCCL_FILE, /* by the Makefile */
    .name = "libnccl.so." LIBRARY_NUMBER(NCCL_MAJOR),
    .instead = "use --allreduce auto",
};

static int load(struct nccl_table *nccl, int *version) {
    int found;
    CHECK(library_load(&place, functions, sizeof functions / sizeof *functions, nccl, &found));
    *version = 0;
    nccl->ncclGetVersion(version);
    if (*version / 10000 == NCCL_MAJOR) return OK;
    return fail(ERR_USAGE,
                "%s: the library found is of version code %d: this program was built for %d.x: set "
                "%s to one of "
                "that version, or %s",
                place.title, *version, NCCL_MAJOR, place.variable, place.instead);
}

static const char *version_text(int version, char text[24]) {
    snprintf(text, 24, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return text;
}

void cuda_nccl_describe(char *text, size_t bytes) {
    struct nccl_table nccl;
    int version;
    char number[24];
    if (load(&nccl, &version))
        snprintf(text, bytes, "%s", error_message());
    else
        snprintf(text, bytes, "NCCL %s", version_text(version, number));
}

static int shares(const struct executor_question *q, int *a, int *b) {
    for (*a = 1; *a < q->n; ++*a)
        for (*b = 0; *b < *a; ++*b)
            if (gpu_handles_share(q->handle[*a], q->handle[*b])) return 1;
    return 0;
}

int cuda_nccl_check(const struct executor_question *q) {
    struct nccl_table nccl;
    int version, a, b;
    char number[24];
    CHECK(load(&nccl, &version));
    if (!shares(q, &a, &b)) return OK;
    if (version < SHARES_GPUS_FROM)
        return fail(ERR_USAGE,
                    "allreduce nccl: ranks %d and %d share a GPU, which NCCL %s refuses "
                    "(\"Duplicate GPU detected\"): "
                    "use --allreduce auto, a GPU for each rank, or NCCL 2.30 or newer",
                    b, a, version_text(version, number));
    /* of the process: read by NCCL when the communicator is made */
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    return OK;
}

/* ---- failures ---- */

/* "allreduce bucket 1 step 7", of the call that was enqueued last. */
static void name_call(const struct executor *e, char *text, size_t size) {
    const struct nccl_call *c = e->next ? &e->call[(e->next - 1) % NCCL_CALLS] : NULL;
    int used = snprintf(text, size, "allreduce");
    if (c && c->bucket >= 0)
        used += snprintf(text + used, size - (size_t)used, " bucket %d", c->bucket);
    if (c && c->step >= 0) snprintf(text + used, size - (size_t)used, " step %ld", c->step);
}

/* The stream keeps it: later calls on it say the same. */
int nccl_keep(struct executor *e, int code) {
    if (e->stream && !e->stream->error) {
        snprintf(e->stream->error_text, sizeof e->stream->error_text, "%s", error_message());
        e->stream->error = code;
    }
    return code;
}

int nccl_fail(struct executor *e, ncclResult_t result) {
    char what[64], last[256] = "";
    name_call(e, what, sizeof what);
    const char *more = e->comm ? e->nccl.ncclGetLastError(e->comm) : NULL;
    if (more && *more) snprintf(last, sizeof last, " (%.200s)", more);
    for (char *c = last; *c; c++)
        if (*c == '\n') *c = ' ';
    fail(ERR_FAILED, "%s on %s: NCCL: %s%s: NCCL_DEBUG=WARN says more; or use --allreduce auto",
         what, e->device->head.name, e->nccl.ncclGetErrorString(result), last);
    return nccl_keep(e, ERR_FAILED);
}

ncclResult_t nccl_state(struct executor *e) {
    ncclResult_t state = ncclSuccess, asked = e->nccl.ncclCommGetAsyncError(e->comm, &state);
    return asked == ncclSuccess ? state : asked;
}

/* Until the communicator has done what it was told last. `what` for the error: "NCCL's set-up". */
int nccl_settle(struct executor *e, ncclResult_t result, const char *what) {
    struct comm *comm = e->ranks->comm;
    const struct device_config *config = &e->device->head.config;
    struct comm_wait_reason reason = {"allreduce", -1, -1, -1};
    int64_t deadline = deadline_after(comm ? comm_timeout_s(comm) : config->timeout_s);
    while (result == ncclInProgress) {
        struct timespec pause = {0, PAUSE_NS};
        nanosleep(&pause, NULL);
        result = nccl_state(e);
        if (comm) CHECK(comm_check(comm));
        if (config->interrupted) CHECK(config->interrupted(config->interrupt_context));
        if (result != ncclInProgress || now_ns() < deadline) continue;
        if (comm) return comm_distant_late(comm, &reason, what);
        return fail(ERR_TIMEOUT, "allreduce (%s): not done after %g s", what, config->timeout_s);
    }
    return result == ncclSuccess ? OK : nccl_fail(e, result);
}

/* ---- life ---- */

static int make_events(struct executor *e) {
    for (int i = 0; i < NCCL_CALLS; i++) {
        CUDA_CHECK(cudaEventCreateWithFlags(&e->call[i].begun, cudaEventDisableTiming), "an event",
                   e->device->head.name);
        CUDA_CHECK(cudaEventCreateWithFlags(&e->call[i].ended, cudaEventDisableTiming), "an event",
                   e->device->head.name);
    }
    return OK;
}

/* Rank 0's id, for all. One that fails here ends the job, and so those that wait in the
 * exchange. */
static int agree_on_id(struct executor *e, ncclUniqueId *id) {
    const struct executor_ranks *r = e->ranks;
    memset(id, 0, sizeof *id);
    if (r->rank == 0) {
        ncclResult_t made = e->nccl.ncclGetUniqueId(id);
        if (made != ncclSuccess) return nccl_fail(e, made);
    }
    if (!r->comm) return OK;
    ncclUniqueId all[MAX_DEVICES];
    CHECK(comm_exchange(r->comm, id, sizeof *id, -1, all, NULL));
    *id = all[0];
    return OK;
}

static int set_up(struct executor *e) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    int version;
    CHECK(cuda_use(&e->device->head));
    CHECK(load(&e->nccl, &version));
    CHECK(make_events(e));
    CHECK(agree_on_id(e, &id));
    config.blocking = 0;
    if (e->device->sharers > 1) config.maxCTAs = SHARED_CTAS;
    ncclResult_t result =
        e->nccl.ncclCommInitRankConfig(&e->comm, e->ranks->n, id, e->ranks->rank, &config);
    CHECK(nccl_settle(e, result == ncclSuccess ? ncclInProgress : result, "NCCL's set-up"));
    nccl_watch(e);
    return OK;
}

/* All ranks are here, as their streams have run empty: see leave in allreduce.c. */
static void finish(struct executor *e) {
    if (e->comm && nccl_settle(e, e->nccl.ncclCommFinalize(e->comm), "NCCL's end"))
        nccl_start_abort(e);
    if (e->comm) e->nccl.ncclCommDestroy(e->comm);
    e->comm = NULL;
}

static void nccl_close(struct executor *e) {
    if (!e) return;
    if (e->watch.look) cuda_watch_remove(e->device, &e->watch);
    finish(e);
    if (e->aborting && nccl_runs_empty(e)) {
        pthread_join(e->abort_thread, NULL);
    } else if (e->aborting) {
        pthread_detach(e->abort_thread);
        return; /* it still works on this: the end of the process takes both */
    }
    for (int i = 0; i < NCCL_CALLS; i++) {
        if (e->call[i].begun) cudaEventDestroy(e->call[i].begun);
        if (e->call[i].ended) cudaEventDestroy(e->call[i].ended);
    }
    free(e);
}

static int nccl_open(struct executor **out, const struct executor_ranks *ranks) {
    struct executor *e = calloc(1, sizeof *e);
    if (!e) return fail(ERR_MEMORY, "allreduce: no host memory: free some");
    e->ranks = ranks;
    e->device = (struct cuda_device *)ranks->device;
    int code = set_up(e);
    if (!code) {
        *out = e;
        return OK;
    }
    char text[CUDA_ERROR_TEXT];
    snprintf(text, sizeof text, "%s", error_message());
    nccl_start_abort(e);
    nccl_close(e);
    return fail(code, "%s", text);
}

const struct executor_ops cuda_nccl_ops = {.name = "nccl",
                                           .open = nccl_open,
                                           .enqueue = nccl_enqueue,
                                           .release = nccl_release,
                                           .close = nccl_close};
