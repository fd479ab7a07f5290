/* A fake NCCL with four collectives of floats over processes on one machine. It behaves as NCCL's
 * documentation says, and checks its calls: see fake.h.
 *
 * The unique id is the path of rank 0's memfd, which all ranks map, so nothing remains when they
 * end. A call is a kernel on the caller's stream that moves its data through that file, piece by
 * piece. It waits there for its peers like NCCL's kernels, without a deadline, until its
 * communicator is aborted. It adds in the order of a ring, not in fold order. */
#include <errno.h>
#include <fcntl.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/stand_ins/fake_cuda_libraries/fake.h"

struct fake_log fake_log;

enum { RANKS = 16, PIECE = 4096, ALIVE = 0x6e63636c, POLLS = 3, QUEUE = 64 };

struct meeting { /* what is in the file; zero at first */
    atomic_int joined;
    atomic_uint arrived; /* at all barriers so far */
    struct {
        unsigned char uuid[16];
        char host[64];
    } gpu[RANKS];
    float piece[RANKS][PIECE];
};

struct ncclComm {
    int alive, rank, ranks, blocks; /* blocks: the most on one GPU */
    struct meeting *m;
    atomic_int aborted, running; /* kernels */
    int polls;                   /* polls until the request is done */
    ncclResult_t error;
    int finalized;
    struct collective *pending; /* the first call: it reaches the stream only once it is polled */
    cudaStream_t stream;
    unsigned barriers, calls;
};

enum what { SUM, GATHER, SCATTER, BROADCAST }; /* as fake_log.calls counts them */
struct collective {                            /* the kernel's parameter */
    struct ncclComm *comm;
    enum what what;
    float *data; /* the whole data, on each rank */
    size_t count, block;
    int root;
};

/* FAKE_NCCL_FAIL is "init@1", "call:3@0" or "async:2": what fails, at which of its times (counted
 * from 0), on which rank (left out: on all). */
static int fails(const char *what, int rank, unsigned number) {
    const char *list = getenv("FAKE_NCCL_FAIL");
    char word[32];
    unsigned at = 0;
    int whom = -1;
    if (!list || sscanf(list, "%31[a-z]:%u@%d", word, &at, &whom) < 2) {
        at = 0;
        if (!list || sscanf(list, "%31[a-z]@%d", word, &whom) < 1) return 0;
    }
    return !strcmp(word, what) && at == number && (whom < 0 || whom == rank);
}

static int bad(ncclComm_t comm, const char *function) {
    return !comm || comm->alive != ALIVE
               ? fake_forbidden("nccl", "%s: no such communicator", function)
               : 0;
}

ncclResult_t ncclGetVersion(int *version) {
    const char *other = getenv("FAKE_NCCL_VERSION");
    *version = other ? atoi(other) : NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclInvalidUsage  ? "invalid usage"
           : result == ncclRemoteError ? "remote process exited"
                                       : "internal error";
}

const char *ncclGetLastError(ncclComm_t comm) {
    return comm && comm->error == ncclInvalidUsage ? "Duplicate GPU\ndetected" : "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    memset(id, 0, sizeof *id);
    if (fails("id", 0, 0)) return ncclSystemError;
    int fd = memfd_create("fake-nccl", MFD_CLOEXEC); /* open until the process ends */
    if (fd < 0 || ftruncate(fd, sizeof(struct meeting))) return ncclSystemError;
    snprintf(id->internal, sizeof id->internal, "/proc/%d/fd/%d", (int)getpid(), fd);
    return ncclSuccess;
}

/* ---- set-up ---- */

static int shares_a_gpu(const struct ncclComm *c) {
    for (int a = 0; a < c->ranks; a++)
        for (int b = 0; b < a; b++)
            if (!memcmp(&c->m->gpu[a], &c->m->gpu[b], sizeof c->m->gpu[a])) return 1;
    return 0;
}

static ncclResult_t check_gpus(const struct ncclComm *c) {
    int version;
    const char *allowed = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    ncclGetVersion(&version);
    if (!shares_a_gpu(c)) return ncclSuccess;
    /* The blocks of all ranks on a GPU must be resident together. */
    int fits = c->blocks > 0 && c->blocks * c->ranks <= 32;
    if (version >= 23000 && allowed && !strcmp(allowed, "1") && fits) return ncclSuccess;
    fake_forbidden("nccl", "ranks on one GPU");
    return ncclInvalidUsage;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    struct cudaDeviceProp p;
    int gpu, fd = open(id.internal, O_RDWR);
    *out = NULL;
    if (ranks > RANKS || rank < 0 || rank >= ranks || config->size != sizeof *config ||
        config->magic != 0xcafebeef || config->blocking != 0) {
        fake_forbidden("nccl",
                       "rank %d of %d, or a configuration that is blocking or was not initialised",
                       rank, ranks);
        return ncclInvalidArgument;
    }
    if (fd < 0 || fails("init", rank, 0)) return ncclSystemError;
    /* NCCL believes the driver about P2P unless this variable is set. */
    const char *p2p = getenv("NCCL_P2P_DISABLE");
    if (ranks > 1 && getenv("EMULATED_P2P") && (!p2p || strcmp(p2p, "1") != 0)) {
        fake_forbidden("nccl", "P2P that does not work: NCCL hangs");
        return ncclSystemError;
    }
    struct ncclComm *c = calloc(1, sizeof *c);
    c->m = mmap(NULL, sizeof *c->m, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (c->m == MAP_FAILED || cudaGetDevice(&gpu) || cudaGetDeviceProperties(&p, gpu))
        return ncclUnhandledCudaError;
    c->alive = ALIVE, c->rank = rank, c->ranks = ranks, c->blocks = config->maxCTAs,
    c->polls = POLLS;
    memcpy(c->m->gpu[rank].uuid, p.uuid.bytes, sizeof c->m->gpu[rank].uuid);
    gethostname(c->m->gpu[rank].host, sizeof c->m->gpu[rank].host - 1);
    atomic_fetch_add(&c->m->joined, 1);
    fake_log.handles++;
    *out = c;
    return ncclInProgress;
}

/* ---- a call ---- */

static int wait_for_all(struct ncclComm *c) {
    unsigned want = ++c->barriers * (unsigned)c->ranks;
    atomic_fetch_add(&c->m->arrived, 1);
    while (atomic_load(&c->m->arrived) < want) {
        if (atomic_load(&c->aborted)) return 0;
        usleep(50);
    }
    return 1;
}

/* Element i of the data, of which a piece of each rank is at hand, from `at` on. */
static void take(const struct collective *a, size_t at, size_t i) {
    struct ncclComm *c = a->comm;
    int owner = a->block ? (int)((at + i) / a->block) : 0;
    /* The sum of a chunk begins with the rank after its owner. */
    int first = (int)((at + i) / 16 + 1) % c->ranks;
    float sum = c->m->piece[first][i];
    for (int k = 1; k < c->ranks; k++)
        sum += c->m->piece[(first + k) % c->ranks][i];
    if (a->what == GATHER) sum = c->m->piece[owner][i];
    if (a->what == BROADCAST) sum = c->m->piece[a->root][i];
    if (a->what != SCATTER || owner == c->rank) a->data[at + i] = sum;
}

static void run_collective(const void *param) {
    const struct collective *a = param;
    struct ncclComm *c = a->comm;
    for (size_t at = 0; at < a->count; at += PIECE) {
        size_t length = a->count - at < PIECE ? a->count - at : PIECE;
        memcpy(c->m->piece[c->rank], a->data + at, length * sizeof(float));
        if (!wait_for_all(c)) break;
        for (size_t i = 0; i < length; i++)
            take(a, at, i);
        if (!wait_for_all(c)) break;
    }
    atomic_fetch_sub(&c->running, 1);
}
FAKE_KERNEL(collective_kernel, struct collective, run_collective);

static ncclResult_t put_on_stream(struct ncclComm *c, const struct collective *a) {
    atomic_fetch_add(&c->running, 1);
    if (fake_launch(&collective_kernel, a, c->stream) == cudaSuccess) return ncclSuccess;
    atomic_fetch_sub(&c->running, 1);
    return ncclUnhandledCudaError;
}

static ncclResult_t enqueue(struct collective a, int in_place, ncclDataType_t type,
                            cudaStream_t stream) {
    struct ncclComm *c = a.comm;
    if (c->polls || c->pending || c->finalized) {
        fake_forbidden("nccl", "a call before the last one was done");
        return ncclInvalidUsage;
    }
    if (!in_place || type != ncclFloat32) {
        fake_forbidden("nccl", "not in place, not float, or no sum");
        return ncclInvalidArgument;
    }
    if (atomic_load(&c->running) >= QUEUE)
        fake_forbidden("nccl", "%d calls under way: a launch would block", QUEUE);
    if (fails("call", c->rank, c->calls)) return c->error = ncclInternalError;
    if (fails("async", c->rank, c->calls)) c->error = ncclRemoteError;
    c->stream = stream;
    fake_log.calls[a.what]++;
    if (c->calls++) return put_on_stream(c, &a);
    c->pending = malloc(sizeof a); /* connections are made at the first call */
    *c->pending = a;
    c->polls = POLLS;
    return ncclInProgress;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t c, cudaStream_t stream) {
    if (bad(c, "allreduce")) return ncclInvalidArgument;
    struct collective a = {c, SUM, to, count, 0, 0};
    return enqueue(a, from == to && op == ncclSum, type, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t c, cudaStream_t stream) {
    if (bad(c, "all-gather")) return ncclInvalidArgument;
    struct collective a = {c, GATHER, to, count * (size_t)c->ranks, count, 0};
    return enqueue(a, from == a.data + (size_t)c->rank * count, type, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t c, cudaStream_t stream) {
    if (bad(c, "reduce-scatter")) return ncclInvalidArgument;
    struct collective a = {c, SCATTER, (float *)from, count * (size_t)c->ranks, count, 0};
    return enqueue(a, to == a.data + (size_t)c->rank * count && op == ncclSum, type, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t c, cudaStream_t stream) {
    if (bad(c, "broadcast")) return ncclInvalidArgument;
    struct collective a = {c, BROADCAST, to, count, 0, root};
    return enqueue(a, from == to && root >= 0 && root < c->ranks, type, stream);
}

/* ---- polled by the caller ---- */

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state) {
    if (bad(c, "get async error")) return ncclInvalidArgument;
    *state = c->error;
    if (c->error || !c->polls) return ncclSuccess;
    *state = ncclInProgress;
    if (atomic_load(&c->m->joined) < c->ranks || --c->polls) {
        if (!c->polls) c->polls = 1;
        return ncclSuccess;
    }
    if (c->pending) {
        c->error = put_on_stream(c, c->pending);
        free(c->pending);
        c->pending = NULL;
    } else if (!c->finalized) {
        c->error = check_gpus(c);
    }
    *state = c->error;
    return ncclSuccess;
}

/* ---- the end ---- */

static void leave(struct ncclComm *c) {
    munmap(c->m, sizeof *c->m);
    free(c->pending);
    c->alive = 0;
    free(c);
    fake_log.handles--;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
    if (bad(c, "finalize")) return ncclInvalidArgument;
    if (c->polls || atomic_load(&c->running))
        fake_forbidden("nccl", "finalize while a call is under way");
    c->finalized = 1;
    c->polls = POLLS;
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
    if (bad(c, "destroy")) return ncclInvalidArgument;
    if (!c->finalized || c->polls) fake_forbidden("nccl", "destroy before finalize was done");
    leave(c);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c) {
    if (bad(c, "abort")) return ncclInvalidArgument;
    atomic_store(&c->aborted, 1);
    while (atomic_load(&c->running))
        usleep(50);
    leave(c);
    return ncclSuccess;
}
