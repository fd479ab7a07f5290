/* Makes the plans of a call: one for each part of a long call, all but the last alike. Plans are
 * kept for the next call of their kind. This file also makes a call's announcement to its peers. */
#include <stdio.h>
#include <stdlib.h>

#include "allreduce/select.h"
#include "base/error.h"
#include "base/text/text.h"
#include "group/state.h"

enum { KEPT_PLANS = 128 };

/* ---- plans ---- */

static int same_request(const struct window_request *a, const struct window_request *b) {
    return a->what == b->what && a->algorithm == b->algorithm && a->root == b->root &&
           a->peer == b->peer && a->count == b->count && a->stride == b->stride &&
           a->window == b->window && a->first == b->first;
}

/* Unused plans are dropped for new ones, the least recently used first. */
static void drop_old_plans(struct group *g) {
    int seen = 0;
    for (struct group_plan **p = &g->plans; *p;) {
        struct group_plan *plan = *p;
        if (++seen <= KEPT_PLANS / 2 || plan->users) {
            p = &plan->next;
            continue;
        }
        *p = plan->next;
        plan_free(&plan->plan);
        free(plan);
        g->plan_count--;
    }
}

int take_plan(struct group *g, const struct window_request *request, struct group_plan **out) {
    for (struct group_plan **p = &g->plans; *p; p = &(*p)->next) {
        struct group_plan *found = *p;
        if (!same_request(&found->request, request)) continue;
        *p = found->next; /* moves it to the front */
        found->next = g->plans;
        g->plans = *out = found;
        found->users++;
        return OK;
    }
    struct group_plan *made = calloc(1, sizeof *made);
    if (!made) return fail(ERR_MEMORY, "process group: out of host memory for a plan: free some");
    made->request = *request;
    int code = plan_build_window(&made->plan, request);
    if (code) {
        free(made);
        return code;
    }
    made->users = 1;
    made->next = g->plans;
    g->plans = *out = made;
    if (++g->plan_count > KEPT_PLANS) drop_old_plans(g);
    return OK;
}

struct window_request request_of(const struct group *g, const struct group_call *call) {
    size_t bytes = dtype_bytes(call->how.type);
    struct window_request q = {.what = call->what,
                               .n = g->n,
                               .rank = g->rank,
                               .root = call->root,
                               .count = call->count,
                               .stride = call->count,
                               .window = g->memory.sizes.window / bytes,
                               .config = plan_config_default()};
    q.config.align = 64 / bytes; /* a cache line */
    q.config.slice = g->memory.sizes.window / 4 / bytes;
    q.config.scratch = g->memory.sizes.half / bytes;
    if (call->what == COLLECTIVE_SEND) {
        q.window = group_mailbox_bytes(&g->memory.sizes) / bytes;
        q.head = MAILBOX_HEAD / bytes;
        q.root = call->receive ? call->peer : g->rank;
        q.peer = call->receive ? g->rank : call->peer;
    }
    return q;
}

/* The plans and the number of parts. */
int plan_parts(struct work *work) {
    struct group *g = work->group;
    struct window_request q = request_of(g, &work->call);
    size_t count = work->call.count;
    if (work->call.what == COLLECTIVE_SEND) q.first = work->base % MAILBOX_PIECES;
    work->longest = window_longest(&q);
    work->parts = count > work->longest ? (count + work->longest - 1) / work->longest : 1;
    for (int full = 0; full < (work->parts > 1 ? 2 : 1); full++) {
        q.count = full ? work->longest : count - (work->parts - 1) * work->longest;
        if (work->call.what == COLLECTIVE_ALL_REDUCE)
            q.algorithm = allreduce_choose(g->n, q.count, 0, &g->link, NULL, 0);
        CHECK(take_plan(g, &q, full ? &work->full : &work->last));
    }
    return OK;
}

/* ---- running ---- */

/* The tensors of all ranks share the caches: a copy to an output that would be evicted before it is
 * read need not pass through them. */
static int exceeds_caches(const struct group *g, const struct group_call *call) {
    struct window_request q = request_of(g, call);
    return window_touched(&q) >= g->caches / dtype_bytes(call->how.type);
}

int run_parts(struct runner *runner, struct work *work) {
    const struct group *g = work->group;
    const struct group_call *call = &work->call;
    size_t bytes = dtype_bytes(call->how.type);
    int past_caches = call->what != COLLECTIVE_SEND && exceeds_caches(g, call);
    CHECK(check_job(runner));
    struct executor_call *part = &runner->part;
    uint64_t epochs = work->full ? work->full->plan.epochs : 0;
    part->count = call->count;
    part->scale = call->average ? 1.0 / g->n : 1;
    part->how = call->how;
    part->past_caches = past_caches;
    part->signature = call->count;
    part->more = (uint64_t)call->tag << 32 | call->how.type;
    for (size_t i = 0; i < work->parts; i++) {
        size_t at = i * work->longest * bytes;
        part->plan = i + 1 < work->parts ? &work->full->plan : &work->last->plan;
        part->base = work->base + i * epochs;
        part->half = call->what == COLLECTIVE_SEND ? 0 : (int)((work->calls + i) % 2);
        part->input = call->input ? (const char *)call->input + at : NULL;
        part->output = call->output ? (char *)call->output + at : NULL;
        CHECK(host_execute(&runner->ranks, part));
    }
    return OK;
}

/* ---- the announcement to the peers ---- */

void tell(const struct group_call *call, struct comm_call *told, char what[TOLD_TEXT]) {
    int sums = call->what == COLLECTIVE_ALL_REDUCE || call->what == COLLECTIVE_REDUCE ||
               call->what == COLLECTIVE_REDUCE_SCATTER;
    int rooted = call->what == COLLECTIVE_BROADCAST || call->what == COLLECTIVE_REDUCE ||
                 call->what == COLLECTIVE_GATHER || call->what == COLLECTIVE_SCATTER;
    *what = 0;
    if (call->what != COLLECTIVE_BARRIER)
        text_append(what, TOLD_TEXT, "%s", dtype_name(call->how.type));
    if (sums)
        text_append(what, TOLD_TEXT, " %s",
                    call->average ? "average" : element_op_name(call->how.op));
    if (rooted) text_append(what, TOLD_TEXT, ", root %d", call->root);
    if (is_uneven(call)) text_append(what, TOLD_TEXT, ", uneven");
    *told = (struct comm_call){.collective = window_name(call->what),
                               .bucket = -1,
                               .step = -1,
                               .count = is_uneven(call) ? 0 : call->count,
                               .what = what};
}
