/* Enqueues calls. The plan for a count is built once and kept. A call passes it to the executor,
 * with the next unused epochs and the other half of scratch. */
#include <stdio.h>
#include <stdlib.h>

#include "allreduce/state.h"
#include "base/error.h"
#include "trace/ledger.h"

enum allreduce_algorithm allreduce_algorithm_for(const struct allreduce *ar, size_t count,
                                                 char *text, size_t text_bytes) {
    char size[32];
    if (ar->config.algorithm == ALLREDUCE_AUTO && ar->ops->itself == ALLREDUCE_DIRECT) {
        if (text) snprintf(text, text_bytes, "direct over MPI: the machines share no memory");
        return ALLREDUCE_DIRECT;
    }
    if (ar->config.algorithm == ALLREDUCE_AUTO && !ar->ops->runs_plans) {
        if (text)
            snprintf(text, text_bytes, "nccl for %s over %d ranks (%s)",
                     format_bytes(count * sizeof(float), size, sizeof size), ar->ranks.n,
                     ar->link.name);
        return ALLREDUCE_NCCL;
    }
    if (ar->config.algorithm == ALLREDUCE_AUTO)
        return allreduce_choose(ar->ranks.n, count, ar->config.any_order, &ar->link, text,
                                text_bytes);
    if (text)
        snprintf(text, text_bytes, "%s: asked for by name",
                 allreduce_algorithm_name(ar->config.algorithm));
    return ar->config.algorithm;
}

/* ---- plans ---- */

static int build_steps(struct allreduce *ar, struct kept_plan *kept) {
    int n = ar->ranks.n, rank = ar->ranks.rank;
    if (kept->what == COLLECTIVE_ALL_GATHER)
        return plan_build_all_gather(&kept->plan, n, rank, kept->count / kept->block, kept->block);
    if (kept->what == COLLECTIVE_REDUCE_SCATTER)
        return plan_build_reduce_scatter(&kept->plan, n, rank, kept->block);
    if (kept->what == COLLECTIVE_BROADCAST)
        return plan_build_broadcast(&kept->plan, n, rank, kept->count);
    return plan_build(&kept->plan, allreduce_algorithm_for(ar, kept->count, NULL, 0), n, rank,
                      kept->count, &ar->config.plan);
}

/* The devices that the rank's own steps load from and store to, itself included. */
static struct span_ends ends_of(const struct allreduce *ar, const struct plan *plan) {
    int n = plan->n, me = plan->rank;
    uint64_t loads = rank_bit(me), stores = rank_bit(me);
    struct span_ends ends = {.kind = SPAN_COLLECTIVE};
    for (int i = 0; i < plan->step_count; i++) {
        loads |= plan_step_loads(&plan->steps[i], n, me);
        stores |= plan_step_stores(&plan->steps[i], me);
    }
    for (int r = 0; r < n; r++) {
        if (loads >> r & 1) ends.sources |= rank_bit(ar->ranks.link[r]);
        if (stores >> r & 1) ends.destinations |= rank_bit(ar->ranks.link[r]);
    }
    return ends;
}

static int build_plan(struct allreduce *ar, struct kept_plan *kept) {
    if (!ar->ops->runs_plans) return OK;
    CHECK(build_steps(ar, kept));
    kept->moved = plan_traffic(&kept->plan, NULL);
    kept->ends = ends_of(ar, &kept->plan);
    int code = ar->ops->keep_plan ? ar->ops->keep_plan(ar->executor, &kept->plan, &kept->kept) : OK;
    if (code) plan_free(&kept->plan);
    return code;
}

static int find_plan(struct allreduce *ar, enum collective what, size_t count, size_t block,
                     struct kept_plan **out) {
    for (*out = ar->plans; *out; *out = (*out)->next)
        if ((*out)->what == what && (*out)->count == count && (*out)->block == block) return OK;
    struct kept_plan *kept = calloc(1, sizeof *kept);
    if (!kept) return fail(ERR_MEMORY, "allreduce: out of host memory for a plan: free some");
    kept->what = what;
    kept->count = count;
    kept->block = block;
    int code = build_plan(ar, kept);
    if (code) {
        free(kept);
        return code;
    }
    kept->next = ar->plans;
    ar->plans = kept;
    *out = kept;
    return OK;
}

void drop_plans(struct allreduce *ar) {
    while (ar->plans) {
        struct kept_plan *next = ar->plans->next;
        if (ar->plans->kept) ar->ops->drop_plan(ar->executor, ar->plans->kept);
        plan_free(&ar->plans->plan);
        free(ar->plans);
        ar->plans = next;
    }
}

/* ---- a call ---- */

/* The common part of the collectives. */
struct request {
    enum collective what;
    size_t count, block;
    float scale;
    int bucket;
    long step;
    const char *name; /* the name of its span */
};

static int announce_call(struct allreduce *ar, size_t offset, const struct request *q) {
    if (ar->ranks.n == 1) return OK;
    int sum = q->what == COLLECTIVE_ALL_REDUCE;
    enum allreduce_algorithm algorithm = allreduce_algorithm_for(ar, q->count, NULL, 0);
    const char *names[COLLECTIVE_COUNT] = {[COLLECTIVE_ALL_REDUCE] = "ALLREDUCE",
                                           [COLLECTIVE_BROADCAST] = "BROADCAST",
                                           [COLLECTIVE_ALL_GATHER] = "ALLGATHER",
                                           [COLLECTIVE_REDUCE_SCATTER] = "REDUCE_SCATTER"};
    struct comm_call call = {.collective = names[q->what],
                             .bucket = q->bucket,
                             .step = q->step,
                             .count = q->count,
                             .offset = offset,
                             .what = sum ? allreduce_algorithm_name(algorithm) : NULL,
                             .group = ar->config.group};
    return comm_announce(ar->comm, &call);
}

static int enqueue(struct allreduce *ar, struct stream *stream, float *data,
                   const struct request *q) {
    size_t offset = 0;
    if (q->count == 0) return OK;
    const struct registration *registration = find_registration(ar, data, q->count, &offset);
    if (!registration)
        return fail(ERR_FAILED,
                    "%s: %zu elements at %p: not inside a registered buffer: "
                    "allreduce_register it first",
                    q->name, q->count, (void *)data);
    struct kept_plan *kept;
    CHECK(find_plan(ar, q->what, q->count, q->block, &kept));
    CHECK(announce_call(ar, offset, q));
    struct executor_call call = {
        .plan = ar->ops->runs_plans ? &kept->plan : NULL,
        .kept = kept->kept,
        .data = registration->memory.of,
        .offset = offset,
        .count = q->count,
        .base = ar->base,
        .half = (int)(ar->calls % 2),
        .scale = q->scale,
        .bucket = q->bucket,
        .step = q->step,
        .moved = kept->moved,
        .what = q->what,
        .block = q->block,
    };
    stream_set_ends(stream, &kept->ends);
    int code = ar->ops->enqueue(ar->executor, stream, &call, q->name);
    stream_set_ends(stream, NULL);
    CHECK(code);
    ar->stream = stream;
    ar->base += kept->plan.epochs;
    if (q->what != COLLECTIVE_BROADCAST) ar->calls++; /* see plans/copies.c */
    return OK;
}

int allreduce_enqueue(struct allreduce *ar, struct stream *stream, float *data, size_t count,
                      float scale, int bucket, long step) {
    char name[32];
    snprintf(name, sizeof name, bucket < 0 ? "allreduce" : "allreduce bucket %d", bucket);
    struct request q = {.what = COLLECTIVE_ALL_REDUCE,
                        .count = count,
                        .scale = scale,
                        .bucket = bucket,
                        .step = step,
                        .name = name};
    if (count) stream_set_phase(stream, PHASE_ALLREDUCE, (int32_t)step);
    return enqueue(ar, stream, data, &q);
}

/* For n blocks or more, one or more for each rank. */
static int enqueue_blocks(struct allreduce *ar, struct stream *stream, float *data,
                          struct request *q, const char *word) {
    char name[32];
    snprintf(name, sizeof name, q->bucket < 0 ? "%s" : "%s unit %d", word, q->bucket);
    q->name = name;
    return ar->ranks.n > 1 ? enqueue(ar, stream, data, q) : OK;
}

int all_gather_enqueue(struct allreduce *ar, struct stream *stream, float *data, size_t blocks,
                       size_t block, int unit, long step) {
    struct request q = {COLLECTIVE_ALL_GATHER, blocks * block, block, 1, unit, step, NULL};
    return enqueue_blocks(ar, stream, data, &q, "all-gather");
}

int reduce_scatter_enqueue(struct allreduce *ar, struct stream *stream, float *data, size_t block,
                           float scale, int unit, long step) {
    size_t count = (size_t)ar->ranks.n * block;
    struct request q = {COLLECTIVE_REDUCE_SCATTER, count, block, scale, unit, step, NULL};
    return enqueue_blocks(ar, stream, data, &q, "reduce-scatter");
}

int broadcast_enqueue(struct allreduce *ar, struct stream *stream, float *data, size_t count,
                      long step) {
    struct request q = {.what = COLLECTIVE_BROADCAST,
                        .count = count,
                        .scale = 1,
                        .bucket = -1,
                        .step = step,
                        .name = "broadcast"};
    return ar->ranks.n > 1 ? enqueue(ar, stream, data, &q) : OK;
}
