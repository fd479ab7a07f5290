/* Adds a call on a dry device with a schedule: the plan's steps become parts of the group that the
 * stream has begun. The modelled clock orders the ranks by the same flags that order them in a
 * run. */
#include "allreduce/host/executor.h"
#include "device/scheduled.h"

enum { FLAG_BIT = 63, OBJECT_SHIFT = 32, KIND_SHIFT = 16, WRITER_SHIFT = 8 };

struct writing {
    const struct executor_ranks *ranks;
    struct schedule *schedule;
    uint64_t object;
    int then; /* the next part is the first of its step */
};

static void add_flag(struct writing *w, enum scheduled_kind kind, int flag, int writer, int reader,
                     uint64_t epoch) {
    int me = w->ranks->rank;
    struct scheduled e = {.kind = (uint8_t)kind,
                          .then = (uint8_t)w->then,
                          .key = (uint64_t)1 << FLAG_BIT | w->object << OBJECT_SHIFT |
                                 (uint64_t)flag << KIND_SHIFT | (uint64_t)writer << WRITER_SHIFT |
                                 (uint64_t)reader,
                          .value = epoch,
                          .facts = {.rank = (int16_t)me, .device = (int16_t)me}};
    schedule_add(w->schedule, &e);
    w->then = 0;
}

static void add_move(struct writing *w, int from, int to, uint64_t elements) {
    scheduled_move(w->ranks->device, w->ranks->link[from], w->ranks->link[to],
                   elements * sizeof(float), w->then);
    w->then = 0;
}

static void add_step(struct writing *w, const struct plan_step *s, uint64_t base) {
    int n = w->ranks->n, me = w->ranks->rank;
    uint64_t loads = s->length ? plan_step_loads(s, n, me) : 0;
    uint64_t stores = s->length ? plan_step_stores(s, me) : 0;
    w->then = 1;
    for (int r = 0; r < n; r++)
        if (s->wait_ranks >> r & 1)
            add_flag(w, SCHEDULED_AWAIT, s->wait_kind, r, me, base + s->wait_epoch);
    for (int r = 0; r < n; r++) {
        if (loads >> r & 1) add_move(w, r, me, s->length);
        if (stores >> r & 1) add_move(w, me, r, s->length);
    }
    w->then = 1;
    for (int r = 0; r < n; r++)
        if (s->post_ranks >> r & 1)
            add_flag(w, SCHEDULED_POST, s->post_kind, me, r, base + s->post_epoch);
}

static enum scheduled_collective collective_of(const struct plan *plan) {
    switch (plan->what) {
    case COLLECTIVE_BROADCAST: return SCHEDULED_BROADCAST;
    case COLLECTIVE_ALL_GATHER: return SCHEDULED_ALL_GATHER;
    case COLLECTIVE_REDUCE_SCATTER: return SCHEDULED_REDUCE_SCATTER;
    default: return SCHEDULED_SUM;
    }
}

void host_schedule(const struct executor_ranks *ranks, const struct executor_call *call) {
    struct writing w = {.ranks = ranks, .schedule = device_config(ranks->device)->schedule};
    if (!w.schedule || !call->plan) return;
    w.object = schedule_object(w.schedule, ranks->rank, ranks);
    schedule_collective(w.schedule, ranks->rank, collective_of(call->plan), ranks, call->base,
                        ranks->n, call->count * sizeof(float));
    for (int i = 0; i < call->plan->step_count; i++)
        add_step(&w, &call->plan->steps[i], call->base);
}

void host_schedule_end(const struct executor_ranks *ranks) {
    struct schedule *schedule = ranks->device ? device_config(ranks->device)->schedule : NULL;
    if (schedule) schedule_forget(schedule, ranks->rank, ranks);
}
