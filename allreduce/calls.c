/* Calls: the plan for a count is built once and kept; a call hands it to the executor, with the
 * epochs that have not been used yet and the other half of scratch. */
#include <stdio.h>
#include <stdlib.h>

#include "allreduce/state.h"
#include "base/error.h"
#include "trace/ledger.h"

enum allreduce_algorithm allreduce_algorithm_for(const struct allreduce *ar, size_t count,
                                                 char *text, size_t text_bytes) {
    char size[32];
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
    struct executor_call call = {
        .plan = ar->ops->runs_plans ? &kept->plan : NULL,
        .kept = kept->kept,
        .data = registration->memory.of,
        .offset = offset,
        .count = count,
        .base = ar->base,
        .half = (int)(ar->calls % 2),
        .scale = scale,
        .bucket = bucket,
        .step = step,
        .moved = kept->moved,
    };
    char name[32];
    snprintf(name, sizeof name, bucket < 0 ? "allreduce" : "allreduce bucket %d", bucket);
    stream_set_phase(stream, PHASE_ALLREDUCE, (int32_t)step);
    CHECK(ar->ops->enqueue(ar->executor, stream, &call, name));
    ar->stream = stream;
    ar->base += kept->plan.epochs;
    ar->calls++;
    return OK;
}
