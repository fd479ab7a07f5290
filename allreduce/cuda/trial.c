/* Before ranks access each other's device memory, each tests the path to every other GPU with 4 KiB
 * in both directions (device/cuda/p2p.c says why). All ranks do this together:
 *
 *     exchange      the GPU of each rank, and the paths that it has not tested yet
 *     each rank     a block of its slab: own | loaded | copied | inbox of rank 0, 1, ... | spare
 *     exchange      addresses of the blocks, whose contents are final
 *     each rank     loads and copies `own` of every peer, stores its own into its inbox there
 *     exchange      the results; all stores are done
 *     each rank     checks its inboxes
 *     exchange      the results
 *
 * A pair of GPUs works if every transfer was correct on both. If no rank has anything to try, the
 * trial ends after the first line. A rank whose trial hangs ends the job. */
#include "allreduce/cuda/trial.h"

#include <stdio.h>
#include <string.h>

#include "device/cuda/p2p.h"

enum { LOADED = 1, COPIED, INBOXES };

static const size_t PIECE = CUDA_P2P_COUNT * sizeof(float);

/* P2P access to other ranks' GPUs; bit r stands for rank r's. */
struct ways {
    uint64_t open;    /* the driver advertises it, and no trial has failed */
    uint64_t untried; /* this rank has not tried it */
};

/* The outcome of a rank's trials; bit p stands for rank p's memory. */
struct came {
    uint64_t right;   /* the rank read the right bytes */
    uint64_t refused; /* the driver does not open the memory, so it does not advertise P2P */
};

struct meeting {
    struct comm *comm;
    struct cuda_device *device;
    int n, rank;
    float *block, *host;
    cudaStream_t stream;
    unsigned char uuid[MAX_DEVICES][GPU_UUID_BYTES];
    struct ways ways[MAX_DEVICES];
    uint64_t tries; /* bit r: P2P with rank r's GPU is being tried, by both ranks */
    struct memory_handle handle[MAX_DEVICES];
    struct came came[MAX_DEVICES];
    uint64_t stored[MAX_DEVICES]; /* rank r's bit p: rank p's stores to it were right */
};

static float *piece(float *block, int number) {
    return block + (size_t)number * CUDA_P2P_COUNT;
}

static struct cuda_p2p_trial trial_of(const struct meeting *m) {
    return (struct cuda_p2p_trial){.stream = m->stream,
                                   .loaded = piece(m->block, LOADED),
                                   .copied = piece(m->block, COPIED),
                                   .own = m->block,
                                   .own_seed = (unsigned)m->rank,
                                   .host = m->host};
}

/* ---- whom to try ---- */

static int exchange_gpus(struct meeting *m) {
    unsigned char own[GPU_UUID_BYTES];
    memcpy(own, m->device->uuid, sizeof own);
    return comm_gather(m->comm, own, sizeof own, m->uuid);
}

static struct ways own_ways(const struct meeting *m) {
    struct ways ways = {0, 0};
    for (int r = 0; r < m->n; r++) {
        uint64_t bit = (uint64_t)1 << r;
        if (!memcmp(m->uuid[r], m->uuid[m->rank], GPU_UUID_BYTES)) continue;
        if (cuda_reaches_gpu(m->device, m->uuid[r])) ways.open |= bit;
        if (cuda_p2p_known(m->device, m->uuid[r]) < 0) ways.untried |= bit;
    }
    return ways;
}

/* A path is tried if both sides may use it and one has not tried it. All ranks know all paths. */
static int is_tried(const struct meeting *m, int a, int b) {
    const struct ways *to = &m->ways[a], *back = &m->ways[b];
    return to->open >> b & back->open >> a & (to->untried >> b | back->untried >> a) & 1;
}

/* *any: 1 if any path in the job must be tried. */
static int choose_ways(struct meeting *m, int *any) {
    struct ways own = own_ways(m);
    CHECK(comm_gather(m->comm, &own, sizeof own, m->ways));
    *any = 0;
    for (int a = 0; a < m->n; a++)
        for (int b = 0; b < m->n; b++) {
            if (!is_tried(m, a, b)) continue;
            if (a == m->rank) m->tries |= (uint64_t)1 << b;
            *any = 1;
        }
    return OK;
}

/* ---- the trial ---- */

static int fill_block(struct meeting *m) {
    struct cuda_p2p_trial t = trial_of(m);
    CHECK(cuda_p2p_put(m->device, &t, m->block, t.own_seed));
    for (int r = 0; r < m->n; r++)
        CHECK(cuda_p2p_put(m->device, &t, piece(m->block, INBOXES + r), CUDA_P2P_NOBODY));
    return OK;
}

/* A process that does not see the peer's GPU (CUDA_VISIBLE_DEVICES) cannot ask whether it is within
 * reach before it opens the memory. */
static int try_peer(struct meeting *m, int peer, struct came *came) {
    struct device *device = &m->device->head;
    struct cuda_p2p_trial t = trial_of(m);
    char who[64];
    void *memory;
    int works = 0;
    snprintf(who, sizeof who, "ranks %d and %d", m->rank, peer);
    int code = device_import(device, &m->handle[peer], -1, &memory);
    if (code && !cuda_p2p_known(m->device, m->uuid[peer])) {
        came->refused |= (uint64_t)1 << peer;
        return OK;
    }
    CHECK(code);
    t.theirs = memory;
    t.their_seed = (unsigned)peer;
    t.inbox = piece(memory, INBOXES + m->rank);
    code = cuda_p2p_try(m->device, &t, who, &works);
    if (!m->device->p2p.stuck) device_unimport(device, memory);
    came->right |= (uint64_t)works << peer;
    return code;
}

static int try_all(struct meeting *m, struct came *came) {
    for (int r = 0; r < m->n; r++)
        if (m->tries >> r & 1) CHECK(try_peer(m, r, came));
    return OK;
}

static int look_into_inboxes(struct meeting *m, uint64_t *stored) {
    struct cuda_p2p_trial t = trial_of(m);
    for (int r = 0; r < m->n; r++) {
        int equal = 0;
        if (!(m->tries >> r & 1)) continue;
        CHECK(cuda_p2p_holds(m->device, &t, piece(m->block, INBOXES + r), (unsigned)r, &equal));
        *stored |= (uint64_t)equal << r;
    }
    return OK;
}

/* All ranks judge all paths, so all report the same fault. */
static void learn(struct meeting *m) {
    for (int a = 0; a < m->n; a++)
        for (int b = a + 1; b < m->n; b++) {
            char who[64];
            const struct came *to = &m->came[a], *back = &m->came[b];
            int works =
                to->right >> b & back->right >> a & m->stored[a] >> b & m->stored[b] >> a & 1;
            if (!is_tried(m, a, b)) continue;
            snprintf(who, sizeof who, "ranks %d and %d", a, b);
            if (a == m->rank) cuda_p2p_learn(m->device, m->uuid[b], works);
            if (b == m->rank) cuda_p2p_learn(m->device, m->uuid[a], works);
            if (!works && !((to->refused >> b | back->refused >> a) & 1))
                cuda_p2p_blame(m->device, who);
        }
}

static int run(struct meeting *m) {
    struct came came = {0, 0};
    uint64_t stored = 0;
    CHECK(try_all(m, &came));
    CHECK(comm_gather(m->comm, &came, sizeof came, m->came));
    CHECK(look_into_inboxes(m, &stored));
    CHECK(comm_gather(m->comm, &stored, sizeof stored, m->stored));
    learn(m);
    return OK;
}

/* ---- the meeting ---- */

static int open_parts(struct meeting *m) {
    struct device *device = &m->device->head;
    void *block, *host;
    CHECK(device_alloc(device, &block, (size_t)(INBOXES + m->n + 1) * PIECE, MEM_COMM));
    m->block = block;
    CHECK(device_host_alloc(device, &host, PIECE));
    m->host = host;
    return cuda_p2p_open(m->device, &m->stream);
}

static void close_parts(struct meeting *m) {
    cuda_p2p_close(m->device, m->stream);
    if (m->device->p2p.stuck) return; /* freeing would block on the stuck GPU */
    device_host_free(&m->device->head, m->host);
    device_free(&m->device->head, m->block);
}

static int meet(struct meeting *m) {
    struct memory_handle own;
    int fd, any;
    CHECK(exchange_gpus(m));
    CHECK(choose_ways(m, &any));
    if (!any) return OK;
    CHECK(open_parts(m));
    CHECK(fill_block(m));
    CHECK(device_export(&m->device->head, m->block, &own, &fd));
    CHECK(comm_gather(m->comm, &own, sizeof own, m->handle));
    return run(m);
}

int cuda_meet_ranks(struct comm *comm, struct device *device) {
    struct meeting m = {.comm = comm,
                        .device = (struct cuda_device *)device,
                        .n = comm_world_size(comm),
                        .rank = comm_rank(comm)};
    int code = meet(&m);
    close_parts(&m);
    return code;
}
