/* Runs a plan, step by step: wait, move, post. host_move.c moves. */
#include "allreduce/host_executor.h"

#include "base/error.h"

size_t host_flags_bytes(int n) {
    return (size_t)PLAN_FLAG_KINDS * (size_t)n * sizeof(struct comm_flag);
}

/* The flag [kind][writer] in the memory of `reader`. */
static struct comm_flag *flag_of(const struct host_ranks *ranks, int reader, int kind, int writer) {
    return ranks->flags[reader] + kind * ranks->n + writer;
}

static int wait_flags(const struct host_ranks *ranks, const struct host_call *call,
                      const struct plan_step *step) {
    for (int peer = 0; peer < ranks->n; peer++) {
        if (!(step->wait_ranks >> peer & 1)) continue;
        struct comm_wait_reason reason = {"allreduce", call->bucket, call->step, peer};
        struct comm_flag *flag = flag_of(ranks, ranks->rank, step->wait_kind, peer);
        uint64_t epoch = call->base + step->wait_epoch;
        if (ranks->wait)
            CHECK(ranks->wait(ranks->wait_context, flag, epoch, &reason));
        else
            CHECK(comm_wait_flag(ranks->comm, flag, epoch, &reason));
    }
    return OK;
}

static void post_flags(const struct host_ranks *ranks, const struct host_call *call,
                       const struct plan_step *step) {
    for (int peer = 0; peer < ranks->n; peer++)
        if (step->post_ranks >> peer & 1)
            comm_post_flag(flag_of(ranks, peer, step->post_kind, ranks->rank), call->base + step->post_epoch);
}

static float *range_of(const struct host_ranks *ranks, const struct host_call *call, int buffer, int rank,
                       uint64_t offset) {
    if (buffer == PLAN_DATA) return call->data[rank] + call->offset + offset;
    return ranks->scratch[rank] + (size_t)call->half * ranks->half + offset;
}

static void move(const struct host_ranks *ranks, const struct host_call *call, const struct plan_step *s) {
    float *dest[MAX_DEVICES];
    int dests = 0;
    for (int r = 0; r < ranks->n; r++)
        if (s->dest_ranks >> r & 1) dest[dests++] = range_of(ranks, call, s->dest_buffer, r, s->dest_offset);
    float source_scale = s->scale & PLAN_SCALE_SOURCE ? call->scale : 1,
          own_scale = s->scale & PLAN_SCALE_DEST ? call->scale : 1;
    if (s->op == PLAN_SUM) {
        const float *source[MAX_DEVICES];
        for (int r = 0; r < ranks->n; r++)
            source[r] = range_of(ranks, call, s->source_buffer, r, s->source_offset);
        move_sum(dest, dests, source, ranks->n, source_scale, s->length);
        return;
    }
    const float *source = range_of(ranks, call, s->source_buffer, s->source_rank, s->source_offset);
    const float *own = range_of(ranks, call, s->dest_buffer, ranks->rank, s->dest_offset);
    if (s->op == PLAN_COPY)
        move_copy(dest, dests, source, source_scale, s->length);
    else
        move_reduce(dest, dests, own, own_scale, source, source_scale, s->length);
}

/* Remote loads and stores, charged as copies are. */
static void charge(const struct host_ranks *ranks, const struct plan_step *s) {
    uint64_t loads = s->op == PLAN_SUM ? rank_all(ranks->n) : rank_bit(s->source_rank),
             bytes = s->length * sizeof(float);
    int me = ranks->rank;
    for (int r = 0; ranks->traffic && r < ranks->n; r++) {
        if (r != me && loads >> r & 1)
            traffic_add(ranks->traffic, ranks->device[r], ranks->device[me], bytes);
        if (r != me && s->dest_ranks >> r & 1)
            traffic_add(ranks->traffic, ranks->device[me], ranks->device[r], bytes);
    }
}

int host_execute(const struct host_ranks *ranks, const struct host_call *call) {
    for (int i = 0; i < call->plan->step_count; i++) {
        const struct plan_step *step = &call->plan->steps[i];
        CHECK(wait_flags(ranks, call, step));
        if (step->length > 0) {
            move(ranks, call, step);
            charge(ranks, step);
        }
        post_flags(ranks, call, step);
    }
    return OK;
}
