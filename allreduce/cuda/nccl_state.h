/* Inside allreduce/, where nccl.h is: the executor of cuda/nccl.c (the library, set-up and end)
 * and cuda/nccl_calls.c (a call, looking after those under way, abort). */
#ifndef ALLREDUCE_CUDA_NCCL_STATE_H
#define ALLREDUCE_CUDA_NCCL_STATE_H

#include <nccl.h>
#include <pthread.h>

#include "allreduce/cuda/nccl.h"
#include "device/cuda/library.h"

#define NCCL_FUNCTIONS(X)     \
    X(ncclGetVersion)         \
    X(ncclGetErrorString)     \
    X(ncclGetLastError)       \
    X(ncclGetUniqueId)        \
    X(ncclCommInitRankConfig) \
    X(ncclCommGetAsyncError)  \
    X(ncclCommFinalize) X(ncclCommDestroy) X(ncclCommAbort) X(ncclAllReduce)

struct nccl_table {
    NCCL_FUNCTIONS(LIBRARY_MEMBER)
};

/* So many calls may be under way before the host waits: a launch into a full queue would block
 * inside the driver. */
enum { NCCL_CALLS = 64 };

struct nccl_call {
    cudaEvent_t begun, ended;
    /* both are recorded: until then they are those of the call that had this place before */
    int complete;
    int bucket;
    long step;
};

struct executor {
    const struct executor_ranks *ranks;
    struct cuda_device *device;
    struct cuda_stream *stream; /* the one that calls were put on; NULL before the first */
    struct nccl_table nccl;
    ncclComm_t comm;                   /* NULL: none yet, or it is being aborted */
    struct nccl_call call[NCCL_CALLS]; /* number k at k % NCCL_CALLS */
    uint64_t oldest, next;             /* under way: oldest .. next - 1 */
    struct cuda_watch watch;
    struct comm_distant_wait wait; /* about call number `waiting`, if that is not 0 */
    uint64_t waiting;              /* counted from 1 */
    /* since when NCCL has said that something is wrong; 0: it has not */
    int64_t failed_ns;
    pthread_t abort_thread;
    ncclComm_t aborting; /* the thread's; it has been started if this is not NULL */
    int aborted;         /* its end; atomic */
    int stuck;           /* the stream did not run empty: nothing it may reach is given back */
};

/* ---- cuda/nccl.c ---- */

/* The failure of an NCCL function, or `code` with the thread's text: the stream keeps either, so
 * that later calls on it say the same. Return the code. */
int nccl_fail(struct executor *e, ncclResult_t result);
int nccl_keep(struct executor *e, int code);

/* What the communicator is at: ncclInProgress, ncclSuccess, or what went wrong. */
ncclResult_t nccl_state(struct executor *e);

/* Waits until the communicator has done what it was told last, which returned `result`. `what`
 * for the error: "NCCL's set-up". */
int nccl_settle(struct executor *e, ncclResult_t result, const char *what);

/* ---- cuda/nccl_calls.c ---- */

int nccl_enqueue(struct executor *e, struct stream *stream, const struct executor_call *call,
                 const char *span_name);
void nccl_watch(struct executor *e); /* from now on waits of the device look after this */
void nccl_start_abort(struct executor *e);
/* the stream, and the thread of an abort: within a second or two */
int nccl_runs_empty(const struct executor *e);
int nccl_release(struct executor *e);

#endif
