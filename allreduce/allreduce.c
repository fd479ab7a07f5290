/* Memory shared between ranks, plans kept, calls put on a stream. How a call runs: executor.h. */
#include "allreduce/allreduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allreduce/executor.h"
#include "base/error.h"

/* One piece of device memory of each rank, as this rank reaches it: its own pointer, and n-1
 * mappings. */
struct shared {
    float *of[MAX_DEVICES];
};

struct registration {
    struct shared memory;
    size_t count;
    struct registration *next;
};

/* Plans are kept for good: a training run sees a handful of counts, and a steady step allocates
 * nothing. */
struct kept_plan {
    struct plan plan;
    void *kept;     /* the executor's own form of it */
    uint64_t moved; /* bytes over links by this rank's steps, for the span */
    struct kept_plan *next;
};

struct allreduce {
    struct allreduce_config config;
    struct allreduce_link link; /* rank 0's, so that all ranks choose alike */
    struct comm *comm;
    struct device *device;
    struct stream *stream; /* the one that calls were put on; NULL before the first */
    const struct executor_kind *kind;
    const struct executor_ops *ops; /* NULL until all ranks' memory is known */
    struct executor *executor;      /* NULL before its open */
    struct executor_ranks ranks;
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
    return a->algorithm == b->algorithm && a->any_order == b->any_order &&
           a->plan.align == b->plan.align && a->plan.slice == b->plan.slice &&
           a->plan.pipeline_from == b->plan.pipeline_from && a->plan.slices == b->plan.slices &&
           a->plan.scratch == b->plan.scratch;
}

static int check_offers(const struct allreduce *ar, const struct offer *offers) {
    int me = ar->ranks.rank;
    for (int r = 0; r < ar->ranks.n; r++) {
        if (!same_config(&offers[r].config, &offers[me].config))
            return fail(ERR_USAGE,
                        "allreduce: rank %d is set to %s, rank %d to %s (or another slice): give "
                        "all ranks the same",
                        me, allreduce_algorithm_name(offers[me].config.algorithm), r,
                        allreduce_algorithm_name(offers[r].config.algorithm));
        if (offers[r].size != offers[me].size)
            return fail(ERR_USAGE,
                        "allreduce: rank %d shares %llu elements, rank %d %llu: register the same "
                        "on all ranks",
                        me, (unsigned long long)offers[me].size, r,
                        (unsigned long long)offers[r].size);
    }
    return OK;
}

/* Once, when it is known whose memory lies where: the executor, and the figures `auto` goes by.
 * All ranks see the same offers and so take the same. offers NULL: a world of one. */
static int choose_executor(struct allreduce *ar, const struct offer *offers) {
    if (ar->ops) return OK;
    struct executor_question question = {.device = ar->device,
                                         .algorithm = ar->config.algorithm,
                                         .n = ar->ranks.n,
                                         .rank = ar->ranks.rank};
    for (int r = 0; offers && r < ar->ranks.n; r++)
        question.handle[r] = &offers[r].handle;
    if (offers) ar->link = offers[0].link;
    return ar->kind->choose(&question, &ar->ops, &ar->link);
}

static int import_all(struct allreduce *ar, const struct offer *offers, const int *fds,
                      struct shared *memory) {
    int me = ar->ranks.rank;
    for (int r = 0; r < ar->ranks.n; r++) {
        void *mapped = memory->of[me];
        /* a library reaches its peers by itself */
        if (r != me && !ar->ops->runs_plans)
            mapped = NULL;
        else if (r != me)
            CHECK(device_import(ar->device, &offers[r].handle, fds[r], &mapped));
        memory->of[r] = mapped;
        ar->ranks.link[r] = offers[r].handle.device;
    }
    return OK;
}

/* Collective: each rank offers `own`, all map all. On failure nothing is mapped. */
static int share(struct allreduce *ar, float *own, size_t size, struct shared *memory) {
    int n = ar->ranks.n, me = ar->ranks.rank, fd = -1, fds[MAX_DEVICES], code = OK;
    struct offer mine, *offers = calloc((size_t)n, sizeof *offers);
    if (!offers)
        return fail(ERR_MEMORY, "allreduce: no host memory for the handles of %d ranks: free some",
                    n);
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
    CHECK_GOTO(check_offers(ar, offers), code, out);
    CHECK_GOTO(choose_executor(ar, offers), code, out);
    code = import_all(ar, offers, fds, memory);
out:
    for (int r = 0; r < n; r++)
        if (fds[r] >= 0) close(fds[r]);
    free(offers);
    if (code) unshare(ar, memory);
    return code;
}

/* Only rank 0's own scratch (naive) and everyone's (oneshot) is ever used; the others need none. */
static size_t scratch_half(const struct allreduce *ar) {
    enum allreduce_algorithm a = ar->config.algorithm;
    int some = a == ALLREDUCE_AUTO || a == ALLREDUCE_NAIVE || a == ALLREDUCE_ONESHOT;
    size_t pad = ar->kind->scratch_pad;
    return !some ? 0
           : pad ? (ar->config.plan.scratch + 2 * pad - 1) / pad * pad
                 : ar->config.plan.scratch;
}

/* The flags are zero before a peer learns where they are. */
static int take_slab(struct allreduce *ar) {
    struct executor_ranks *ranks = &ar->ranks;
    size_t flags = ar->kind->flags_bytes(ranks->n);
    ranks->half = scratch_half(ar);
    void *own;
    CHECK(device_alloc(ar->device, &own, flags + 2 * ranks->half * sizeof(float), MEM_COMM));
    int code = ar->kind->clear(ar->device, own, flags);
    if (!code) code = share(ar, own, ranks->half, &ar->slab);
    if (code) {
        device_free(ar->device, own);
        memset(&ar->slab, 0, sizeof ar->slab);
        return code;
    }
    for (int r = 0; r < ranks->n; r++) {
        ranks->flags[r] = ar->slab.of[r];
        ranks->scratch[r] = ar->slab.of[r] + flags / sizeof(float);
    }
    return OK;
}

int allreduce_register(struct allreduce *ar, float *data, size_t count) {
    struct registration *added = calloc(1, sizeof *added);
    if (!added)
        return fail(ERR_MEMORY, "allreduce: no host memory to register a buffer: free some");
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

/* A mapping may go only when its rank has left its last call, memory only when no mapping is
 * left: stream sync, barrier, unmap, barrier, then the owner may free. The first barrier is for
 * the peers' sake (they may still be storing into what is unmapped with CUDA's IPC), the second
 * for the owner's. A job that has failed skips both: its ranks touch nothing any more, each wait
 * having ended with an error or been let go, and the dead cannot come. */
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
    /* the job has failed: calls may be under way, allreduce_free lets them go first */
    if (code) return code;
    *link = gone->next;
    unshare(ar, &gone->memory);
    free(gone);
    return ar->ranks.n > 1 ? comm_barrier(ar->comm, "end of a shared buffer") : OK;
}

int allreduce_release(struct allreduce *ar) {
    return !ar || !ar->executor || !ar->ops->release || ar->ops->release(ar->executor);
}

static void drop_plans(struct allreduce *ar) {
    while (ar->plans) {
        struct kept_plan *next = ar->plans->next;
        if (ar->plans->kept) ar->ops->drop_plan(ar->executor, ar->plans->kept);
        plan_free(&ar->plans->plan);
        free(ar->plans);
        ar->plans = next;
    }
}

/* `together`: all ranks are here. `idle`: nothing of this object is under way on a stream any
 * more; else what it may reach stays as it is, for the end of the process to take. */
static void give_back(struct allreduce *ar, int together, int idle) {
    void *own = ar->slab.of[ar->ranks.rank];
    drop_plans(ar);
    if (ar->executor) ar->ops->close(ar->executor);
    while (ar->registrations) {
        struct registration *next = ar->registrations->next;
        if (idle) unshare(ar, &ar->registrations->memory);
        free(ar->registrations);
        ar->registrations = next;
    }
    if (idle) unshare(ar, &ar->slab);
    if (together) /* on failure there is nobody left to be careful for */
        comm_barrier(ar->comm, "end of allreduce");
    if (idle) device_free(ar->device, own);
    free(ar);
}

void allreduce_free(struct allreduce *ar) {
    if (!ar) return;
    int code = leave(ar, "end of allreduce");
    give_back(ar, !code && ar->ranks.n > 1, code ? allreduce_release(ar) : 1);
}

/* ---- the beginning ---- */

static int init(struct allreduce *ar) {
    if (!ar->kind)
        return fail(ERR_USAGE, "allreduce on %s: not built in: use --device cpu",
                    device_name(ar->device));
    CHECK(ar->ranks.n > 1 ? take_slab(ar) : choose_executor(ar, NULL));
    return ar->ops->open(&ar->executor, &ar->ranks);
}

int allreduce_init(struct allreduce **out, struct comm *comm, struct device *device,
                   const struct allreduce_config *config) {
    *out = NULL;
    struct allreduce *ar = calloc(1, sizeof *ar);
    if (!ar) return fail(ERR_MEMORY, "allreduce: no host memory: free some");
    ar->config = config ? *config : allreduce_config_default();
    ar->comm = comm;
    ar->device = device;
    ar->kind = executor_kind(device_config(device)->kind);
    ar->ranks = (struct executor_ranks){.n = comm ? comm_world_size(comm) : 1,
                                        .rank = comm ? comm_rank(comm) : 0,
                                        .comm = comm,
                                        .device = device,
                                        .traffic = device_traffic_mutable(device)};
    ar->ranks.link[ar->ranks.rank] = device_index(device);
    ar->link = allreduce_link_host(ar->ranks.n);
    int code = init(ar);
    if (code)
        give_back(ar, 0, 1);
    else
        *out = ar;
    return code;
}

/* ---- calls ---- */

enum allreduce_algorithm allreduce_algorithm_for(const struct allreduce *ar, size_t count,
                                                 char *text, size_t text_bytes) {
    if (ar->config.algorithm == ALLREDUCE_AUTO)
        return allreduce_choose(ar->ranks.n, count, ar->config.any_order, &ar->link, text,
                                text_bytes);
    if (text)
        snprintf(text, text_bytes, "%s: asked for by name",
                 allreduce_algorithm_name(ar->config.algorithm));
    return ar->config.algorithm;
}

const char *allreduce_executor_name(const struct allreduce *ar) {
    return ar->ops->name;
}

int allreduce_shares_device(const struct allreduce *ar) {
    return ar->ranks.n > 1 && ar->ops->shares_device;
}

static int build_plan(struct allreduce *ar, size_t count, struct kept_plan *kept) {
    kept->plan.count = count;
    if (!ar->ops->runs_plans) return OK;
    CHECK(plan_build(&kept->plan, allreduce_algorithm_for(ar, count, NULL, 0), ar->ranks.n,
                     ar->ranks.rank, count, &ar->config.plan));
    kept->moved = plan_traffic(&kept->plan, NULL);
    int code = ar->ops->keep_plan ? ar->ops->keep_plan(ar->executor, &kept->plan, &kept->kept) : OK;
    if (code) plan_free(&kept->plan);
    return code;
}

static int find_plan(struct allreduce *ar, size_t count, struct kept_plan **out) {
    for (*out = ar->plans; *out; *out = (*out)->next)
        if ((*out)->plan.count == count) return OK;
    struct kept_plan *kept = calloc(1, sizeof *kept);
    if (!kept) return fail(ERR_MEMORY, "allreduce: no host memory for a plan: free some");
    int code = build_plan(ar, count, kept);
    if (code) {
        free(kept);
        return code;
    }
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

int allreduce_enqueue(struct allreduce *ar, struct stream *stream, float *data, size_t count,
                      float scale, int bucket, long step) {
    if (count == 0) return OK;
    size_t offset = 0;
    const struct registration *registration = find_registration(ar, data, count, &offset);
    if (!registration)
        return fail(ERR_FAILED,
                    "allreduce: %zu elements at %p: not inside a registered buffer: "
                    "allreduce_register it first",
                    count, (void *)data);
    struct kept_plan *kept;
    CHECK(find_plan(ar, count, &kept));
    struct executor_call call = {.plan = ar->ops->runs_plans ? &kept->plan : NULL,
                                 .kept = kept->kept,
                                 .data = registration->memory.of,
                                 .offset = offset,
                                 .count = count,
                                 .base = ar->base,
                                 .half = (int)(ar->calls % 2),
                                 .scale = scale,
                                 .bucket = bucket,
                                 .step = step,
                                 .moved = kept->moved};
    char name[32];
    snprintf(name, sizeof name, bucket < 0 ? "allreduce" : "allreduce bucket %d", bucket);
    stream_set_phase(stream, PHASE_ALLREDUCE, (int32_t)step);
    CHECK(ar->ops->enqueue(ar->executor, stream, &call, name));
    ar->stream = stream;
    ar->base += kept->plan.epochs;
    ar->calls++;
    return OK;
}
