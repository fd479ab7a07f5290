/* Memory that the ranks share. Each rank offers a piece of its device memory, learns the offers of
 * all others in one exchange, and maps them. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allreduce/state.h"
#include "base/error.h"

/* A rank's description of a piece of its memory for the others. */
struct offer {
    struct memory_handle handle;
    uint64_t size;                  /* elements; must agree on all ranks */
    struct allreduce_config config; /* must agree on all ranks */
    struct allreduce_link link;     /* rank 0's applies to all */
};

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

int choose_executor(struct allreduce *ar, const struct memory_handle *const *handles) {
    if (ar->ops) return OK;
    struct executor_question question = {
        .device = ar->device,
        .algorithm = ar->config.algorithm,
        .any_order = ar->config.any_order,
        .n = ar->ranks.n,
        .rank = ar->ranks.rank,
        .comm = ar->comm,
    };
    for (int r = 0; handles && r < ar->ranks.n; r++)
        question.handle[r] = handles[r];
    return ar->kind->choose(&question, &ar->ops, &ar->link);
}

/* All ranks see the same offers and rank 0's figures, so they choose the same executor. */
static int choose_by_offers(struct allreduce *ar, const struct offer *offers) {
    const struct memory_handle *handles[MAX_DEVICES];
    for (int r = 0; r < ar->ranks.n; r++)
        handles[r] = &offers[r].handle;
    if (!ar->ops) ar->link = offers[0].link;
    return choose_executor(ar, handles);
}

/* Nothing is mapped if the executor does not touch the peers' device memory. */
static int import_all(struct allreduce *ar, const struct offer *offers, const int *fds,
                      struct shared *memory) {
    for (int r = 0; r < ar->ranks.n; r++) {
        /* a dry rank simulates its peers (comm_imagine): their offers are copies of its own */
        ar->ranks.link[r] =
            device_is_dry(ar->device) || comm_is_spread(ar->comm) ? r : offers[r].handle.device;
        if (r == ar->ranks.rank || !ar->ops->maps_peers) continue;
        void *mapped;
        CHECK(device_import(ar->device, &offers[r].handle, fds[r], &mapped));
        memory->of[r] = mapped;
    }
    return OK;
}

/* Collective: each rank offers own[0..size), and all ranks map all offers into `memory`. On
 * failure nothing is mapped. */
static int share(struct allreduce *ar, float *own, size_t size, struct shared *memory) {
    int n = ar->ranks.n, fd = -1, fds[MAX_DEVICES], code = OK;
    struct offer mine, *offers = calloc((size_t)n, sizeof *offers);
    if (!offers)
        return fail(ERR_MEMORY,
                    "allreduce: out of host memory for the handles of %d ranks: free some", n);
    for (int r = 0; r < n; r++)
        fds[r] = -1;
    memset(memory, 0, sizeof *memory);
    memory->of[ar->ranks.rank] = own;
    memset(&mine, 0, sizeof mine); /* padding bytes are sent too */
    mine.size = size;
    mine.config = ar->config;
    mine.link = ar->link;
    if (!comm_is_spread(ar->comm))
        CHECK_GOTO(device_export(ar->device, own, &mine.handle, &fd), code, out);
    CHECK_GOTO(comm_gather(ar->comm, &mine, sizeof mine, offers), code, out);
    CHECK_GOTO(comm_pass_descriptors(ar->comm, fd, fds), code, out);
    CHECK_GOTO(check_offers(ar, offers), code, out);
    CHECK_GOTO(choose_by_offers(ar, offers), code, out);
    code = import_all(ar, offers, fds, memory);
out:
    for (int r = 0; r < n; r++)
        if (fds[r] >= 0) close(fds[r]);
    free(offers);
    if (code) unmap_peers(ar, memory);
    return code;
}

void unmap_peers(struct allreduce *ar, struct shared *memory) {
    for (int r = 0; r < ar->ranks.n; r++) {
        if (r != ar->ranks.rank && memory->of[r]) device_unimport(ar->device, memory->of[r]);
        memory->of[r] = NULL;
    }
}

/* ---- the slab ---- */

/* Elements in one half of scratch. */
static size_t scratch_half(const struct allreduce *ar) {
    if (!allreduce_uses_scratch(ar->config.algorithm) || comm_is_spread(ar->comm)) return 0;
    size_t pad = ar->kind->scratch_pad, half = ar->config.plan.scratch;
    return pad ? (half + 2 * pad - 1) / pad * pad : half;
}

/* A peer learns where the flags are only after they have been cleared. */
int take_slab(struct allreduce *ar) {
    struct executor_ranks *ranks = &ar->ranks;
    size_t flags = ar->kind->flags_bytes(ranks->n);
    if (ar->kind->meet && !comm_is_spread(ar->comm)) CHECK(ar->kind->meet(ar->comm, ar->device));
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
        if (!ar->slab.of[r]) continue;
        ranks->flags[r] = ar->slab.of[r];
        ranks->scratch[r] = ar->slab.of[r] + flags / sizeof(float);
    }
    return OK;
}

/* ---- registered buffers ---- */

int allreduce_register(struct allreduce *ar, float *data, size_t count) {
    struct registration *added = calloc(1, sizeof *added);
    if (!added)
        return fail(ERR_MEMORY, "allreduce: out of host memory to register a buffer: free some");
    added->count = count;
    added->memory.of[ar->ranks.rank] = data;
    int code = ar->ranks.n > 1 ? share(ar, data, count, &added->memory) : OK;
    if (!code && ar->ops->add_buffer) code = ar->ops->add_buffer(ar->executor, data, count);
    if (code) {
        unmap_peers(ar, &added->memory);
        free(added);
        return code;
    }
    added->next = ar->registrations;
    ar->registrations = added;
    return OK;
}

const struct registration *find_registration(const struct allreduce *ar, const float *data,
                                             size_t count, size_t *offset) {
    for (const struct registration *r = ar->registrations; r; r = r->next) {
        uintptr_t from = (uintptr_t)r->memory.of[ar->ranks.rank], at = (uintptr_t)data;
        if (at < from || (at - from) % sizeof(float)) continue;
        *offset = (at - from) / sizeof(float);
        if (*offset <= r->count && count <= r->count - *offset) return r;
    }
    return NULL;
}
