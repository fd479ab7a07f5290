/* Tests peer-to-peer access (P2P): whether bytes really go from one GPU's memory to the other's.
 *
 * A driver may advertise P2P that does not work. An IOMMU, or access control of PCIe switches
 * (ACS), may send the bytes elsewhere; a patched driver may advertise what the GPU cannot do. Loads
 * then return other bytes, stores vanish, or the GPU waits for ever. So before any work depends on
 * P2P, 4 KiB are moved in each direction with a kernel's loads and stores, and with a copy engine.
 * A GPU that fails is treated as out of reach, and everything goes through host memory. Only a
 * trial that hangs ends the job, since nothing can remove a hanging kernel from a GPU. */
#include "device/cuda/p2p.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/cuda/kernels/sum_launch.h"

/* A trial takes some 20 us; behind other processes' work on a shared GPU it may take longer. */
static const double TRIAL_S = 5;

static const size_t BYTES = CUDA_P2P_COUNT * sizeof(float);

#define REASON                                                                                    \
    "often because of an IOMMU, PCIe access control (ACS) or a patched driver: switch the IOMMU " \
    "off, or boot with iommu=pt"

int cuda_p2p_disabled(void) {
    const char *value = getenv("NCCL_P2P_DISABLE");
    return value && *value && strcmp(value, "0") != 0;
}

/* ---- the way to another GPU ---- */

int cuda_reach(struct cuda_device *d, int gpu) {
    if (gpu == d->gpu) return 1;
    if (gpu >= 64 || cuda_p2p_disabled()) return 0;
    uint64_t bit = (uint64_t)1 << gpu;
    pthread_mutex_lock(&d->service_lock);
    if (!(d->peers_asked & bit)) {
        int possible = 0;
        d->peers_asked |= bit;
        cudaError_t error = cudaDeviceCanAccessPeer(&possible, d->gpu, gpu);
        if (error == cudaSuccess && possible) error = cudaDeviceEnablePeerAccess(gpu, 0);
        /* Counts as success: another device on this GPU has already enabled peer access. */
        if (possible && (error == cudaSuccess || error == cudaErrorPeerAccessAlreadyEnabled))
            d->peers |= bit;
        cudaGetLastError();
    }
    int reached = (d->peers & bit) != 0;
    pthread_mutex_unlock(&d->service_lock);
    return reached;
}

/* Closes the way to GPU number `gpu` for good. */
static void unreach(struct cuda_device *d, int gpu) {
    uint64_t bit = (uint64_t)1 << gpu;
    pthread_mutex_lock(&d->service_lock);
    if (d->peers & bit && cudaDeviceDisablePeerAccess(gpu)) cudaGetLastError();
    d->peers &= ~bit;
    pthread_mutex_unlock(&d->service_lock);
}

/* ---- what is known ---- */

int cuda_p2p_known(const struct cuda_device *d, const unsigned char uuid[16]) {
    for (int i = 0; i < d->p2p.count; i++)
        if (!memcmp(d->p2p.known[i].uuid, uuid, sizeof d->p2p.known[i].uuid))
            return d->p2p.known[i].works;
    return -1;
}

void cuda_p2p_learn(struct cuda_device *d, const unsigned char uuid[16], int works) {
    struct cuda_p2p *p = &d->p2p;
    for (int i = 0; i < p->count; i++)
        if (!memcmp(p->known[i].uuid, uuid, sizeof p->known[i].uuid)) {
            p->known[i].works &= works; /* one failure is enough */
            return;
        }
    if (p->count == MAX_DEVICES) return;
    memcpy(p->known[p->count].uuid, uuid, sizeof p->known[p->count].uuid);
    p->known[p->count++].works = works;
}

void cuda_p2p_blame(struct cuda_device *d, const char *who) {
    if (*d->p2p.fault) return;
    snprintf(d->p2p.fault, sizeof d->p2p.fault,
             "P2P between the GPUs of %s is advertised by the driver but moves no bytes (4 KiB "
             "arrived wrong), " REASON "; until then Duet goes through host memory",
             who);
}

const char *cuda_p2p_fault(const struct device *device) {
    return ((const struct cuda_device *)device)->p2p.fault;
}

int cuda_is_stuck(const struct device *device) {
    return ((const struct cuda_device *)device)->p2p.stuck;
}

/* ---- a trial ---- */

int cuda_p2p_open(struct cuda_device *d, cudaStream_t *stream) {
    CHECK(cuda_use(&d->head));
    CHECK(cuda_sum_load(d));
    CUDA_CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "a stream", d->head.name);
    return OK;
}

void cuda_p2p_close(struct cuda_device *d, cudaStream_t stream) {
    if (stream && !d->p2p.stuck && cudaStreamDestroy(stream)) cudaGetLastError();
}

/* Integers below 2^24, which a product with 1 does not change. None of them is zero. */
static void write_pattern(float *host, unsigned seed) {
    uint32_t x = 0x9e3779b9u * (seed + 1);
    for (int i = 0; i < CUDA_P2P_COUNT; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        host[i] = (float)(x >> 8 | 1);
    }
}

/* who NULL: the copy did not leave the GPU `name`. */
static int stuck(const char *name, const char *who, double seconds) {
    if (!who)
        return fail(ERR_FAILED,
                    "a copy of 4 KiB between %s and the host has not ended after %g s: its GPU is "
                    "kept busy by another program, or broken: see nvidia-smi",
                    name, seconds);
    return fail(ERR_FAILED,
                "P2P between the GPUs of %s is advertised by the driver and hangs: 4 KiB have not "
                "arrived after %g s, " REASON ", or set NCCL_P2P_DISABLE=1: Duet then goes through "
                "host memory",
                who, seconds);
}

/* Waits for the stream, whose last call returned `error`. who NULL: no other GPU is involved. */
static int finish(struct cuda_device *d, cudaStream_t stream, cudaError_t error, const char *who) {
    double seconds = d->head.config.timeout_s < TRIAL_S ? d->head.config.timeout_s : TRIAL_S;
    int64_t deadline = deadline_after(seconds);
    if (error == cudaSuccess) error = cudaStreamQuery(stream);
    while (error == cudaErrorNotReady) {
        cudaGetLastError();
        if (now_ns() >= deadline) return stuck(d->head.name, who, seconds);
        d->p2p.stuck = 1; /* until the trial ends, or for good if the job ends first */
        CHECK(device_interrupted(&d->head));
        sched_yield();
        error = cudaStreamQuery(stream);
    }
    d->p2p.stuck = 0;
    CUDA_CHECK(error, who ? "a trial of P2P: an IOMMU may be in the way" : "a copy of 4 KiB",
               d->head.name);
    return OK;
}

int cuda_p2p_put(struct cuda_device *d, const struct cuda_p2p_trial *t, float *memory,
                 unsigned seed) {
    write_pattern(t->host, seed);
    CHECK(cuda_use(&d->head));
    return finish(d, t->stream,
                  cudaMemcpyAsync(memory, t->host, BYTES, cudaMemcpyHostToDevice, t->stream), NULL);
}

int cuda_p2p_holds(struct cuda_device *d, const struct cuda_p2p_trial *t, const float *memory,
                   unsigned seed, int *equal) {
    float want[CUDA_P2P_COUNT];
    write_pattern(want, seed);
    memset(t->host, 0, BYTES);
    CHECK(cuda_use(&d->head));
    CHECK(finish(d, t->stream,
                 cudaMemcpyAsync(t->host, memory, BYTES, cudaMemcpyDeviceToHost, t->stream), NULL));
    *equal = !memcmp(t->host, want, BYTES);
    return OK;
}

/* A copy by a kernel: the sum of one term. */
static int move(struct cuda_device *d, cudaStream_t stream, float *to, const float *from) {
    struct cuda_stream s = {.head = {.device = &d->head, .lane = LANE_COMM}, .stream = stream};
    struct sum sum;
    memset(&sum, 0, sizeof sum);
    sum.source[0] = from, sum.dest[0] = to;
    sum.sources = sum.dests = 1;
    sum.length = CUDA_P2P_COUNT;
    sum.first_scale = sum.scale = 1;
    return cuda_sum(&s, &sum, "a trial of P2P");
}

int cuda_p2p_try(struct cuda_device *d, const struct cuda_p2p_trial *t, const char *who,
                 int *works) {
    int loaded = 0, copied = 0;
    CHECK(cuda_p2p_put(d, t, t->loaded, CUDA_P2P_NOBODY));
    CHECK(cuda_p2p_put(d, t, t->copied, CUDA_P2P_NOBODY));
    CHECK(move(d, t->stream, t->loaded, t->theirs));
    CHECK(move(d, t->stream, t->inbox, t->own));
    CHECK(finish(d, t->stream,
                 cudaMemcpyAsync(t->copied, t->theirs, BYTES, cudaMemcpyDefault, t->stream), who));
    CHECK(cuda_p2p_holds(d, t, t->loaded, t->their_seed, &loaded));
    CHECK(cuda_p2p_holds(d, t, t->copied, t->their_seed, &copied));
    *works = loaded && copied;
    return OK;
}

/* ---- two devices of one process ---- */

/* A trial takes 3 pieces of the device's own memory, and 2 of the peer's plus a spare one, since
 * stray bytes may arrive close by. */
enum { OWN_PIECES = 3, PEER_PIECES = 3 };

static int try_pair(struct cuda_device *d, struct cuda_device *p, const char *who, float *own,
                    float *theirs, float *host, int *works) {
    cudaStream_t stream[2] = {NULL, NULL};
    int arrived = 0, code = cuda_p2p_open(d, &stream[0]);
    if (!code) code = cuda_p2p_open(p, &stream[1]);
    struct cuda_p2p_trial t = {.stream = stream[0],
                               .own = own,
                               .own_seed = 0,
                               .loaded = own + CUDA_P2P_COUNT,
                               .copied = own + 2 * CUDA_P2P_COUNT,
                               .theirs = theirs,
                               .their_seed = 1,
                               .inbox = theirs + CUDA_P2P_COUNT,
                               .host = host},
                          at_peer = {.stream = stream[1], .host = host};
    if (!code) code = cuda_p2p_put(d, &t, own, t.own_seed);
    if (!code) code = cuda_p2p_put(p, &at_peer, theirs, t.their_seed);
    if (!code) code = cuda_p2p_put(p, &at_peer, t.inbox, CUDA_P2P_NOBODY);
    if (!code) code = cuda_p2p_try(d, &t, who, works);
    if (!code) code = cuda_p2p_holds(p, &at_peer, t.inbox, t.own_seed, &arrived);
    *works &= arrived;
    cuda_p2p_close(d, stream[0]);
    if (d->p2p.stuck) p->p2p.stuck = 1; /* memory that the trial may touch is not freed */
    cuda_p2p_close(p, stream[1]);
    return code;
}

static int try_with_memory(struct cuda_device *d, struct cuda_device *p, const char *who,
                           int *works) {
    void *own = NULL, *theirs = NULL, *host = NULL;
    int code = device_alloc(&d->head, &own, OWN_PIECES * BYTES, MEM_COMM);
    if (!code) code = device_alloc(&p->head, &theirs, PEER_PIECES * BYTES, MEM_COMM);
    if (!code) code = device_host_alloc(&d->head, &host, BYTES);
    if (!code) code = try_pair(d, p, who, own, theirs, host, works);
    if (d->p2p.stuck) return code; /* freeing would block on the stuck GPU */
    device_host_free(&d->head, host);
    device_free(&p->head, theirs);
    device_free(&d->head, own);
    return code;
}

int cuda_meet(struct device *device, struct device *peer) {
    struct cuda_device *d = (struct cuda_device *)device, *p = (struct cuda_device *)peer;
    char who[64];
    int works = 0;
    CHECK(cuda_use(device));
    if (p->gpu == d->gpu || !cuda_reach(d, p->gpu)) return OK;
    if (cuda_p2p_known(d, p->uuid) > 0) return OK;
    snprintf(who, sizeof who, "%s and %s", device->name, peer->name);
    CHECK(try_with_memory(d, p, who, &works));
    cuda_p2p_learn(d, p->uuid, works);
    if (works) return OK;
    cuda_p2p_blame(d, who);
    CHECK(cuda_use(device));
    unreach(d, p->gpu);
    return OK;
}
