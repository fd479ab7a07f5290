/* DataParallel's collectives as plans, to draw them like the others. They do not run: what runs is
 * scatter_gather/, where the leading device enqueues copies and additions and events order them
 * (device_group.h). Those events are the flags here:
 *
 *     ready[r]     PLAN_READY from device r: the collective may read from it and write to it
 *     done         PLAN_DONE from device 0: what it brought is there
 *     summed[d]    PLAN_DONE from device d to device 0: its shard of the sum is there
 *
 * Rows are cut by torch.chunk's rule, which is that of DP without virtual devices: shares of
 * ceil(count / n), until nothing is left. Shards are those of scatter_gather/shards.h. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "report/collective/collective.h"
#include "scatter_gather/shards.h"

static struct param_range chunk_of(size_t count, int n, int d) {
    size_t share = (count + (size_t)n - 1) / (size_t)n, first = share * (size_t)d;
    if (first > count) first = count;
    return (struct param_range){first, count - first < share ? count - first : share};
}

enum { MOST_STEPS = 2 * MAX_DEVICES + 2 };

static struct plan_step *new_step(struct plan *plan) {
    struct plan_step *s = &plan->steps[plan->step_count++];
    memset(s, 0, sizeof *s);
    return s;
}

static void awaits(struct plan_step *s, uint64_t ranks, enum plan_flag kind) {
    s->wait_ranks = ranks;
    s->wait_kind = (uint8_t)kind;
    s->wait_epoch = ranks ? 1 : 0;
}

static void posts(struct plan_step *s, uint64_t ranks, enum plan_flag kind) {
    s->post_ranks = ranks;
    s->post_kind = (uint8_t)kind;
    s->post_epoch = ranks ? 1 : 0;
}

static struct plan_step *new_move(struct plan *plan, enum plan_op op, int source, uint64_t dests,
                                  struct param_range part) {
    struct plan_step *s = new_step(plan);
    s->op = (uint8_t)op;
    s->source_rank = (int16_t)source;
    s->dest_ranks = dests;
    s->source_offset = s->dest_offset = part.first;
    s->length = part.count;
    return s;
}

/* The steps of the leading device between ready and done. */
static void lead(struct plan *plan, enum dp_collective kind) {
    int n = plan->n, me = plan->rank;
    struct param_range whole = {0, plan->count};
    awaits(new_step(plan), rank_others(n, me), PLAN_READY);
    if (kind == DP_REDUCE) new_move(plan, PLAN_SUM, me, rank_bit(me), whole);
    for (int r = 0; r < n; r++) {
        if (r == me) continue;
        struct param_range part = chunk_of(plan->count, n, r), shard = shard_of(whole, n, r);
        if (kind == DP_SCATTER && part.count) new_move(plan, PLAN_COPY, me, rank_bit(r), part);
        if (kind == DP_BROADCAST) new_move(plan, PLAN_COPY, me, rank_bit(r), whole);
        if (kind == DP_GATHER && part.count) new_move(plan, PLAN_COPY, r, rank_bit(me), part);
        if (kind == DP_REDUCE_SHARDED && shard.count)
            awaits(new_move(plan, PLAN_COPY, r, rank_bit(me), shard), rank_bit(r), PLAN_DONE);
    }
    posts(new_step(plan), rank_others(n, me), PLAN_DONE);
}

/* Every device with a shard adds it up, once the gradients of all are ready. */
static void add_shard(struct plan *plan) {
    int n = plan->n, me = plan->rank;
    struct param_range shard = shard_of((struct param_range){0, plan->count}, n, me);
    if (!shard.count) return;
    struct plan_step *sum = new_move(plan, PLAN_SUM, 0, rank_bit(me), shard);
    awaits(sum, rank_others(n, me), PLAN_READY);
    if (me) posts(sum, rank_bit(0), PLAN_DONE);
}

int dp_plan(struct plan *plan, enum dp_collective kind, int n, int leader, int device,
            size_t count) {
    memset(plan, 0, sizeof *plan);
    plan->n = n;
    plan->rank = device;
    plan->count = count;
    plan->epochs = 1;
    plan->steps = calloc(MOST_STEPS, sizeof *plan->steps);
    if (!plan->steps) return fail(ERR_MEMORY, "collective: no host memory for a plan");
    if (n == 1 || !count) return OK;
    int sharded = kind == DP_REDUCE_SHARDED;
    if (device != leader || sharded)
        posts(new_step(plan), sharded ? rank_others(n, device) : rank_bit(leader), PLAN_READY);
    if (sharded) add_shard(plan);
    if (device != leader)
        awaits(new_step(plan), rank_bit(leader), PLAN_DONE);
    else
        lead(plan, kind);
    return OK;
}
