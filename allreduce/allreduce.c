/* Memory shared between ranks, plans kept, calls put on a stream. */
#include "allreduce/allreduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allreduce/host_executor.h"
#include "base/error.h"

/* One piece of device memory of each rank, as this rank reaches it: its own pointer, and n-1 mappings. */
struct shared {
    float *of[MAX_DEVICES];
};

struct registration {
    struct shared memory;
    size_t count;
    struct registration *next;
};

/* Plans are kept for good: a training run sees a handful of counts, and a steady step allocates nothing. */
struct kept_plan {
    struct plan plan;
    uint64_t moved; /* bytes over links by this rank's steps, for the span */
    struct kept_plan *next;
};

struct allreduce {
    struct allreduce_config config;
    struct allreduce_link link; /* rank 0's, so that all ranks choose alike */
    struct comm *comm;
    struct device *device;
    struct stream *stream; /* the one that calls were put on; NULL before the first */
    struct host_ranks ranks;
    struct shared slab; /* flags, then two halves of scratch */
    struct registration *registrations;
    struct kept_plan *plans;
    uint64_t base;  /* of the next call's epochs */
    uint64_t calls; /* that were not empty: its parity chooses the half of scratch */
};

struct allreduce_config allreduce_config_default(void) {
    struct allreduce_config config = {.algorithm = ALLREDUCE_AUTO, .plan = plan_config_default()};
    return config;
}

/* ---- memory of all ranks ---- */

/* What a rank tells the others about a piece of its memory. */
struct offer {
    struct memory_handle handle;
    uint64_t size; /* must agree on all ranks */
    struct allreduce_config config;
    struct allreduce_link link;
};

static void unshare(struct allreduce *ar, struct shared *memory) {
    for (int r = 0; r < ar->ranks.n; r++) {
        if (r != ar->ranks.rank && memory->of[r]) device_unimport(ar->device, memory->of[r]);
        memory->of[r] = NULL;
    }
}

static int same_config(const struct allreduce_config *a, const struct allreduce_config *b) {
    return a->algorithm == b->algorithm && a->any_order == b->any_order && a->plan.align == b->plan.align &&
           a->plan.slice == b->plan.slice && a->plan.pipeline_from == b->plan.pipeline_from &&
           a->plan.slices == b->plan.slices && a->plan.scratch == b->plan.scratch;
}

static int import_all(struct allreduce *ar, const struct offer *offers, const int *fds,
                      struct shared *memory) {
    int me = ar->ranks.rank;
    for (int r = 0; r < ar->ranks.n; r++) {
        ar->ranks.device[r] = offers[r].handle.device;
        if (!same_config(&offers[r].config, &offers[me].config))
            return fail(
                ERR_USAGE,
                "allreduce: rank %d is set to %s, rank %d to %s (or another slice): give all ranks the same",
                me, allreduce_algorithm_name(offers[me].config.algorithm), r,
                allreduce_algorithm_name(offers[r].config.algorithm));
        if (offers[r].size != offers[me].size)
            return fail(
                ERR_USAGE,
                "allreduce: rank %d shares %llu elements, rank %d %llu: register the same on all ranks", me,
                (unsigned long long)offers[me].size, r, (unsigned long long)offers[r].size);
        void *mapped = memory->of[me];
        if (r != me) CHECK(device_import(ar->device, &offers[r].handle, fds[r], &mapped));
        memory->of[r] = mapped;
    }
    ar->link = offers[0].link;
    return OK;
}

/* Collective: each rank offers `own`, all map all. On failure nothing is mapped. */
static int share(struct allreduce *ar, float *own, size_t size, struct shared *memory) {
    int n = ar->ranks.n, me = ar->ranks.rank, fd = -1, fds[MAX_DEVICES], code = OK;
    struct offer mine, *offers = calloc((size_t)n, sizeof *offers);
    if (!offers)
        return fail(ERR_MEMORY, "allreduce: no host memory for the handles of %d ranks: free some", n);
    for (int r = 0; r < n; r++)
        fds[r] = -1;
    memset(memory, 0, sizeof *memory);
    memory->of[me] = own;
    memset(&mine, 0, sizeof mine); /* its pads travel too */
    mine.size = size;
    mine.config = ar->config;
    mine.link = ar->link;
    CHECK_GOTO(device_export(ar->device, own, &mine.handle, &fd), code, out);
    CHECK_GOTO(comm_exchange(ar->comm, &mine, sizeof mine, fd, offers, fds), code, out);
    code = import_all(ar, offers, fds, memory);
out:
    for (int r = 0; r < n; r++)
        if (fds[r] >= 0) close(fds[r]);
    free(offers);
    if (code) unshare(ar, memory);
    return code;
}

/* Only rank 0's own scratch (naive) and everyone's (oneshot) is ever used; direct, ring and tree need
 * none. */
static size_t scratch_half(const struct allreduce_config *config) {
    int none = config->algorithm == ALLREDUCE_DIRECT || config->algorithm == ALLREDUCE_RING ||
               config->algorithm == ALLREDUCE_TREE;
    return none ? 0 : config->plan.scratch;
}

static int take_slab(struct allreduce *ar) {
    struct host_ranks *ranks = &ar->ranks;
    size_t flags = host_flags_bytes(ranks->n);
    ranks->half = scratch_half(&ar->config);
    void *own;
    CHECK(device_alloc(ar->device, &own, flags + 2 * ranks->half * sizeof(float), MEM_COMM));
    memset(own, 0, flags); /* an emulated device: its memory is memory. Peers learn of it only after this. */
    int code = share(ar, own, ranks->half, &ar->slab);
    if (code) {
        device_free(ar->device, own);
        memset(&ar->slab, 0, sizeof ar->slab);
        return code;
    }
    for (int r = 0; r < ranks->n; r++) {
        ranks->flags[r] = (struct comm_flag *)(void *)ar->slab.of[r];
        ranks->scratch[r] = ar->slab.of[r] + flags / sizeof(float);
    }
    return OK;
}

int allreduce_init(struct allreduce **out, struct comm *comm, struct device *device,
                   const struct allreduce_config *config) {
    *out = NULL;
    if (device_config(device)->kind == DEVICE_CUDA)
        return fail(ERR_FAILED,
                    "allreduce on %s: this build runs it on emulated devices only: use --device cpu",
                    device_name(device));
    struct allreduce *ar = calloc(1, sizeof *ar);
    if (!ar) return fail(ERR_MEMORY, "allreduce: no host memory: free some");
    ar->config = config ? *config : allreduce_config_default();
    ar->comm = comm;
    ar->device = device;
    ar->ranks.comm = comm;
    ar->ranks.n = comm ? comm_world_size(comm) : 1;
    ar->ranks.rank = comm ? comm_rank(comm) : 0;
    ar->ranks.traffic = device_traffic_mutable(device);
    ar->link = allreduce_link_host(ar->ranks.n);
    int code = ar->ranks.n > 1 ? take_slab(ar) : OK;
    if (code)
        allreduce_free(ar);
    else
        *out = ar;
    return code;
}

int allreduce_register(struct allreduce *ar, float *data, size_t count) {
    struct registration *added = calloc(1, sizeof *added);
    if (!added) return fail(ERR_MEMORY, "allreduce: no host memory to register a buffer: free some");
    added->count = count;
    added->memory.of[ar->ranks.rank] = data;
    int code = ar->ranks.n > 1 ? share(ar, data, count, &added->memory) : OK;
    if (code) {
        free(added);
        return code;
    }
    added->next = ar->registrations;
    ar->registrations = added;
    return OK;
}

/* ---- the end ---- */

/* A mapping may go only when its rank has left its last call, memory only when no mapping is left: stream
 * sync, barrier, unmap, barrier, then the owner may free. The first barrier is for the peers' sake (they
 * may still be storing into what is unmapped with CUDA's IPC), the second for the owner's. A job that has
 * failed skips both: its ranks touch nothing any more, each wait having ended with an error, and the dead
 * cannot come. */
static int leave(struct allreduce *ar, const char *what) {
    if (ar->stream) CHECK(stream_sync(ar->stream));
    if (ar->ranks.n == 1) return OK;
    CHECK(comm_check(ar->comm));
    return comm_barrier(ar->comm, what);
}

int allreduce_unregister(struct allreduce *ar, float *data) {
    struct registration **link = &ar->registrations;
    while (*link && (*link)->memory.of[ar->ranks.rank] != data)
        link = &(*link)->next;
    struct registration *gone = *link;
    if (!gone)
        return fail(ERR_FAILED,
                    "allreduce: %p is not registered: register it first, or give its first element",
                    (void *)data);
    int code = leave(ar, "end of a shared buffer");
    *link = gone->next;
    unshare(ar, &gone->memory);
    free(gone);
    if (!code && ar->ranks.n > 1) code = comm_barrier(ar->comm, "end of a shared buffer");
    return code;
}

void allreduce_free(struct allreduce *ar) {
    if (!ar) return;
    void *own = ar->slab.of[ar->ranks.rank];
    int complete = own || ar->ranks.n == 1; /* else init failed, here and on all other ranks */
    int together = complete && leave(ar, "end of allreduce") == OK && ar->ranks.n > 1;
    while (ar->registrations) {
        struct registration *next = ar->registrations->next;
        unshare(ar, &ar->registrations->memory);
        free(ar->registrations);
        ar->registrations = next;
    }
    unshare(ar, &ar->slab);
    if (together)
        comm_barrier(ar->comm, "end of allreduce"); /* on failure there is nobody left to be careful for */
    device_free(ar->device, own);
    while (ar->plans) {
        struct kept_plan *next = ar->plans->next;
        plan_free(&ar->plans->plan);
        free(ar->plans);
        ar->plans = next;
    }
    free(ar);
}

/* ---- calls ---- */

enum allreduce_algorithm allreduce_algorithm_for(const struct allreduce *ar, size_t count, char *text,
                                                 size_t text_bytes) {
    if (ar->config.algorithm == ALLREDUCE_AUTO)
        return allreduce_choose(ar->ranks.n, count, ar->config.any_order, &ar->link, text, text_bytes);
    if (text)
        snprintf(text, text_bytes, "%s: asked for by name", allreduce_algorithm_name(ar->config.algorithm));
    return ar->config.algorithm;
}

static int find_plan(struct allreduce *ar, size_t count, struct kept_plan **out) {
    for (*out = ar->plans; *out; *out = (*out)->next)
        if ((*out)->plan.count == count) return OK;
    struct kept_plan *kept = calloc(1, sizeof *kept);
    if (!kept) return fail(ERR_MEMORY, "allreduce: no host memory for a plan: free some");
    int code = plan_build(&kept->plan, allreduce_algorithm_for(ar, count, NULL, 0), ar->ranks.n,
                          ar->ranks.rank, count, &ar->config.plan);
    if (code) {
        free(kept);
        return code;
    }
    kept->moved = plan_traffic(&kept->plan, NULL);
    kept->next = ar->plans;
    ar->plans = kept;
    *out = kept;
    return OK;
}

static const struct registration *find_registration(const struct allreduce *ar, const float *data,
                                                    size_t count, size_t *offset) {
    for (const struct registration *r = ar->registrations; r; r = r->next) {
        uintptr_t from = (uintptr_t)r->memory.of[ar->ranks.rank], at = (uintptr_t)data;
        if (at < from || (at - from) % sizeof(float)) continue;
        *offset = (at - from) / sizeof(float);
        if (*offset <= r->count && count <= r->count - *offset) return r;
    }
    return NULL;
}

/* Travels by value through the stream's queue. */
struct queued {
    const struct host_ranks *ranks;
    struct host_call call;
};

static int run_queued(void *args) {
    const struct queued *queued = args;
    return host_execute(queued->ranks, &queued->call);
}

int allreduce_enqueue(struct allreduce *ar, struct stream *stream, float *data, size_t count, float scale,
                      int bucket, long step) {
    if (count == 0) return OK;
    size_t offset = 0;
    const struct registration *registration = find_registration(ar, data, count, &offset);
    if (!registration)
        return fail(
            ERR_FAILED,
            "allreduce: %zu elements at %p: not inside a registered buffer: allreduce_register it first",
            count, (void *)data);
    struct kept_plan *kept;
    CHECK(find_plan(ar, count, &kept));
    struct queued queued = {.ranks = &ar->ranks,
                            .call = {.plan = &kept->plan,
                                     .data = registration->memory.of,
                                     .offset = offset,
                                     .base = ar->base,
                                     .half = (int)(ar->calls % 2),
                                     .scale = scale,
                                     .bucket = bucket,
                                     .step = step}};
    char name[32];
    snprintf(name, sizeof name, bucket < 0 ? "allreduce" : "allreduce bucket %d", bucket);
    stream_set_phase(stream, PHASE_ALLREDUCE, (int32_t)step);
    CHECK(stream_call_host(stream, name, kept->moved, run_queued, &queued, sizeof queued));
    ar->stream = stream;
    ar->base += kept->plan.epochs;
    ar->calls++;
    return OK;
}
