/* Runs a plan step by step: wait for flags, move, post flags. move.c moves the elements. */
#include "allreduce/host/executor.h"

#include <stdlib.h>
#include <string.h>

#include "base/advice.h"
#include "base/error.h"

size_t host_flags_bytes(int n) {
    return (size_t)PLAN_FLAG_KINDS * (size_t)n * sizeof(struct comm_flag);
}

static struct host_slot *slot_of(const struct host_ranks *ranks, const struct executor_call *call,
                                 int writer) {
    float *elements = ranks->all.scratch[writer] + (size_t)call->half * ranks->all.half;
    return (struct host_slot *)elements - 1;
}

static void *range_of(const struct host_ranks *ranks, const struct executor_call *call, int buffer,
                      int rank, uint64_t offset) {
    size_t bytes = dtype_bytes(call->how.type);
    switch (buffer) {
    case PLAN_DATA: return (char *)call->data[rank] + (call->offset + offset) * bytes;
    case PLAN_INPUT: return (char *)call->input + offset * bytes;
    case PLAN_OUTPUT: return (char *)call->output + offset * bytes;
    default: break;
    }
    float *half = ranks->all.scratch[rank] + (size_t)call->half * ranks->all.half;
    return (char *)half + offset * bytes;
}

/* The flag before the message piece that the step puts into a mailbox, or takes from it. */
static struct host_slot *head_of(const struct host_ranks *ranks, const struct executor_call *call,
                                 const struct plan_step *step, int sends) {
    void *piece = sends
                      ? range_of(ranks, call, PLAN_SCRATCH, ranks->all.rank, step->dest_offset)
                      : range_of(ranks, call, PLAN_SCRATCH, step->source_rank, step->source_offset);
    return (struct host_slot *)piece - 1;
}

static int wait_flag(const struct host_ranks *ranks, const struct executor_call *call,
                     struct comm_flag *flag, uint64_t epoch, int peer) {
    if (__atomic_load_n(&flag->epoch, __ATOMIC_ACQUIRE) >= epoch) return OK;
    struct comm_wait_reason reason = {.collective = collective_name(call->plan->what),
                                      .bucket = call->bucket,
                                      .step = call->step,
                                      .peer = peer};
    if (ranks->wait) return ranks->wait(ranks->wait_context, flag, epoch, &reason);
    return comm_wait_flag(ranks->all.comm, flag, epoch, &reason);
}

/* Flags stored with the data that they are posted for. */
static int wait_slot(const struct host_ranks *ranks, const struct executor_call *call,
                     const struct plan_step *step, uint64_t epoch, int peer) {
    int shown = step->wait_kind == PLAN_SHOWN;
    struct host_slot *slot = shown ? slot_of(ranks, call, peer) : head_of(ranks, call, step, 0);
    CHECK(wait_flag(ranks, call, (struct comm_flag *)slot, epoch, peer));
    return shown && slot->signature != call->signature ? ranks->differs(ranks->wait_context, peer)
                                                       : OK;
}

static int wait_taken(const struct host_ranks *ranks, const struct executor_call *call,
                      struct comm_flag *flag, uint64_t epoch, int peer) {
    if (*ranks->taken >= epoch) return OK;
    CHECK(wait_flag(ranks, call, flag, epoch, peer));
    *ranks->taken = __atomic_load_n(&flag->epoch, __ATOMIC_ACQUIRE);
    return OK;
}

static int wait_flags(const struct host_ranks *ranks, const struct executor_call *call,
                      const struct plan_step *step) {
    uint64_t epoch = call->base + step->wait_epoch;
    int kind = step->wait_kind, in_slot = kind == PLAN_SHOWN || kind == PLAN_SENT;
    for (uint64_t left = step->wait_ranks; left; left &= left - 1) {
        int peer = __builtin_ctzll(left);
        struct comm_flag *flag = ranks->flags[ranks->all.rank] + kind * ranks->all.n + peer;
        if (in_slot)
            CHECK(wait_slot(ranks, call, step, epoch, peer));
        else if (kind == PLAN_TAKEN && ranks->taken)
            CHECK(wait_taken(ranks, call, flag, epoch, peer));
        else
            CHECK(wait_flag(ranks, call, flag, epoch, peer));
    }
    return OK;
}

static void post_flags(const struct host_ranks *ranks, const struct executor_call *call,
                       const struct plan_step *step) {
    uint64_t epoch = call->base + step->post_epoch;
    int me = ranks->all.rank, kind = step->post_kind;
    if (!step->post_ranks) return;
    if (kind == PLAN_SHOWN || kind == PLAN_SENT) { /* one flag for all ranks that read it */
        struct host_slot *slot =
            kind == PLAN_SHOWN ? slot_of(ranks, call, me) : head_of(ranks, call, step, 1);
        slot->signature = call->signature;
        slot->more = call->more;
        comm_post_flag((struct comm_flag *)slot, epoch);
        return;
    }
    for (uint64_t left = step->post_ranks; left; left &= left - 1)
        comm_post_flag(ranks->flags[__builtin_ctzll(left)] + kind * ranks->all.n + me, epoch);
}

/* Sums of floats, as DDP makes them. */
static void move_floats(const struct plan_step *s, void *const *dests, int count,
                        const void *const *sources, int n, const void *own, float source_scale,
                        float own_scale) {
    float *const *dest = (float *const *)dests;
    if (plan_op_sums(s->op))
        move_fold(dest, count, (const float *const *)sources, n, source_scale, s->length);
    else if (s->op == PLAN_COPY)
        move_copy(dest, count, sources[0], source_scale, s->length);
    else
        move_reduce(dest, count, own, own_scale, sources[0], source_scale, s->length);
}

static void move(const struct host_ranks *ranks, const struct executor_call *call,
                 const struct plan_step *s) {
    int n = ranks->all.n, dests = 0, sums = plan_op_sums(s->op);
    int scales = call->scale != 1 && s->scale;
    if (s->op == PLAN_COPY && !scales && s->dest_ranks == rank_bit(ranks->all.rank)) {
        void *to = range_of(ranks, call, s->dest_buffer, ranks->all.rank, s->dest_offset);
        const void *from =
            range_of(ranks, call, s->source_buffer, s->source_rank, s->source_offset);
        size_t bytes = s->length * dtype_bytes(call->how.type);
        if (to == from) return;
        if (call->past_caches && s->dest_buffer == PLAN_OUTPUT)
            move_past_caches(to, from, bytes);
        else
            memcpy(to, from, bytes);
        return;
    }
    void *dest[MAX_DEVICES];
    const void *source[MAX_DEVICES],
        *own = range_of(ranks, call, s->dest_buffer, ranks->all.rank, s->dest_offset);
    for (int r = 0; r < n; r++)
        if (s->dest_ranks >> r & 1)
            dest[dests++] = range_of(ranks, call, s->dest_buffer, r, s->dest_offset);
    for (int r = 0; r < (sums ? n : 1); r++)
        source[r] =
            range_of(ranks, call, s->source_buffer, sums ? r : s->source_rank, s->source_offset);
    if (s->op == PLAN_SUM_OWN)
        source[ranks->all.rank] =
            range_of(ranks, call, PLAN_INPUT, ranks->all.rank, s->source_offset);
    double source_scale = s->scale & PLAN_SCALE_SOURCE ? call->scale : 1,
           own_scale = s->scale & PLAN_SCALE_DEST ? call->scale : 1;
    if (call->how.type == DTYPE_F32 && call->how.op == ELEMENT_SUM)
        move_floats(s, dest, dests, source, n, own, (float)source_scale, (float)own_scale);
    else
        ranks->move(call->how, s, dest, dests, source, n, own, source_scale, own_scale);
}

/* On a dry device: charges what the plan moves, without moving it or waiting for anybody. */
static void charge_all(const struct host_ranks *ranks, const struct executor_call *call) {
    for (int i = 0; i < call->plan->step_count; i++)
        if (call->plan->steps[i].length > 0) executor_charge(&ranks->all, &call->plan->steps[i]);
    host_schedule(&ranks->all, call);
}

int host_execute(const struct host_ranks *ranks, const struct executor_call *call) {
    if (ranks->all.device && device_is_dry(ranks->all.device)) return charge_all(ranks, call), OK;
    for (int i = 0; i < call->plan->step_count; i++) {
        const struct plan_step *step = &call->plan->steps[i];
        CHECK(wait_flags(ranks, call, step));
        if (step->length > 0) {
            move(ranks, call, step);
            if (ranks->all.traffic) executor_charge(&ranks->all, step);
        }
        post_flags(ranks, call, step);
    }
    return OK;
}

/* ---- the table ---- */

struct executor {
    struct host_ranks ranks;
};

static int host_open(struct executor **out, const struct executor_ranks *ranks) {
    struct executor *e = calloc(1, sizeof *e);
    if (!e) return fail(ERR_MEMORY, "allreduce: out of host memory: free some");
    e->ranks.all = *ranks;
    for (int r = 0; r < ranks->n; r++)
        e->ranks.flags[r] = ranks->flags[r];
    *out = e;
    return OK;
}

static void host_close(struct executor *executor) {
    free(executor);
}

/* Copied into the stream's queue. */
struct queued {
    const struct host_ranks *ranks;
    struct executor_call call;
};

static int run_queued(void *args) {
    const struct queued *queued = args;
    return host_execute(queued->ranks, &queued->call);
}

static int host_enqueue(struct executor *executor, struct stream *stream,
                        const struct executor_call *call, const char *span_name) {
    struct queued queued = {.ranks = &executor->ranks, .call = *call};
    return stream_call_host(stream, span_name, call->moved, run_queued, &queued, sizeof queued);
}

int host_clear(struct device *device, void *flags, size_t bytes) {
    if (!device_is_dry(device)) memset(flags, 0, bytes);
    return OK;
}

static const struct executor_ops host_ops = {.name = "host",
                                             .runs_plans = 1,
                                             .maps_peers = 1,
                                             .open = host_open,
                                             .enqueue = host_enqueue,
                                             .close = host_close};

static int host_choose(const struct executor_question *question, const struct executor_ops **ops,
                       struct allreduce_link *link) {
    (void)link; /* *link already holds the host's figures */
    if (question->algorithm == ALLREDUCE_NCCL)
        return fail(ERR_USAGE,
                    "allreduce nccl on %s: nccl needs GPUs: " ADVICE_GPU ", or " ADVICE_AUTO,
                    device_name(question->device));
    *ops = &host_ops;
    return OK;
}

const struct executor_kind host_executors = {
    .flags_bytes = host_flags_bytes, .clear = host_clear, .choose = host_choose};
