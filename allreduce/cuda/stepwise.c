/* Ranks that share a GPU: a plan becomes operations on each rank's stream, and no kernel waits.
 *
 *     step  =  the stream waits for flags
 *              one kernel moves or adds a range
 *              the stream posts flags
 *
 * Processes on one GPU take turns on it, some milliseconds at a time. A kernel that polls a peer's
 * flag would spend its turn on that, and the peer could not run meanwhile. A stream that waits for
 * a flag costs nothing, because the GPU runs a process that has work. Only changing turns costs
 * time. So the best plan has the fewest changes: `fused`, a single kernel on rank 0, which `auto`
 * takes here. Every other plan runs too, with a kernel for each step.
 *
 * Order. A stream posts a flag after all its earlier work, so a peer that sees the flag also sees
 * the data (device/cuda/flag.h). A kernel starts after the stream's waits, so it reads no older
 * data. The next call's operations follow this call's on the same stream, so the three rules of
 * plan.h hold as they do for a thread on the host. */
#include "allreduce/cuda/executor.h"

#include <stdlib.h>

#include "allreduce/cuda/awaited.h"
#include "device/cuda/flag.h"
#include "device/cuda/kernels/sum_launch.h"

struct executor {
    struct cuda_calls calls; /* first */
};

/* Satisfies every wait on this rank's streams. */
static void release_flags(struct cuda_calls *c) {
    struct cuda_device *d = c->device;
    if (c->ranks->n == 1 || cudaSetDevice(d->gpu) != cudaSuccess) return;
    pthread_mutex_lock(&d->service_lock);
    struct cuda_flag *own = cuda_flags_of(c, c->ranks->rank);
    for (int i = 0; i < PLAN_FLAG_KINDS * c->ranks->n; i++)
        cuda_flag_release(d, d->service, &own[i].epoch);
    pthread_mutex_unlock(&d->service_lock);
}

static const struct cuda_calls_ops calls_ops = {.awaited = cuda_awaited_flag,
                                                .release = release_flags};

/* ---- life ---- */

static void stepwise_close(struct executor *e) {
    cuda_calls_unwatch(&e->calls);
    cuda_calls_close(&e->calls);
    free(e);
}

/* The kernel is loaded here: its first launch would wait for the GPU, and that for a peer. */
static int open_parts(struct executor *e, const struct executor_ranks *ranks) {
    CHECK(cuda_calls_open(&e->calls, ranks, &calls_ops));
    CHECK(cuda_seen_alloc(&e->calls));
    CHECK(cuda_flag_open(e->calls.device));
    return cuda_sum_load(e->calls.device);
}

static int stepwise_open(struct executor **out, const struct executor_ranks *ranks) {
    struct executor *e = calloc(1, sizeof *e);
    if (!e) return fail(ERR_MEMORY, "allreduce: out of host memory: free some");
    int code = open_parts(e, ranks);
    if (code) {
        stepwise_close(e);
        return code;
    }
    cuda_calls_watch(&e->calls);
    *out = e;
    return OK;
}

/* ---- a call ---- */

/* Consecutive posts and waits, also of two steps, go to the driver in one call: if another process
 * gets the GPU between two of them, that costs more than they do. */
struct flags {
    int count;
    struct cuda_flag_op all[CUDA_FLAGS_AT_ONCE];
};

static int enqueue_flags(struct executor *e, struct cuda_stream *s, struct flags *flags) {
    int count = flags->count;
    if (!count) return OK;
    flags->count = 0;
    CHECK(cuda_flags(s, flags->all, count));
    return cuda_calls_mark(&e->calls, s, count);
}

static int add_flag(struct executor *e, struct cuda_stream *s, struct flags *flags,
                    struct cuda_flag_op op) {
    if (flags->count == CUDA_FLAGS_AT_ONCE) CHECK(enqueue_flags(e, s, flags));
    flags->all[flags->count++] = op;
    return OK;
}

static int add_waits(struct executor *e, struct cuda_stream *s, struct flags *flags,
                     const struct executor_call *call, const struct plan_step *step) {
    int n = e->calls.ranks->n;
    struct cuda_flag *own = cuda_flags_of(&e->calls, e->calls.ranks->rank);
    for (int peer = 0; peer < n; peer++)
        if (step->wait_ranks >> peer & 1)
            CHECK(add_flag(
                e, s, flags,
                (struct cuda_flag_op){&own[cuda_flag_at(n, 0, step->wait_kind, peer)].epoch,
                                      call->base + step->wait_epoch, 1}));
    return OK;
}

static int add_posts(struct executor *e, struct cuda_stream *s, struct flags *flags,
                     const struct executor_call *call, const struct plan_step *step) {
    int n = e->calls.ranks->n, at = cuda_flag_at(n, 0, step->post_kind, e->calls.ranks->rank);
    for (int peer = 0; peer < n; peer++)
        if (step->post_ranks >> peer & 1)
            CHECK(add_flag(e, s, flags,
                           (struct cuda_flag_op){&cuda_flags_of(&e->calls, peer)[at].epoch,
                                                 call->base + step->post_epoch, 0}));
    return OK;
}

static int move(struct executor *e, struct cuda_stream *s, const struct executor_call *call,
                const struct plan_step *step) {
    const struct executor_ranks *ranks = e->calls.ranks;
    struct step_memory memory = {.data = call->data,
                                 .scratch = ranks->scratch,
                                 .data_offset = call->offset,
                                 .scratch_offset = (uint64_t)call->half * ranks->half};
    struct sum sum;
    for (int r = 0; r < ranks->n; r++)
        step_entry(&sum, step, &memory, ranks->n, ranks->rank, r, call->scale);
    executor_charge(ranks, step);
    return cuda_sum(s, &sum, "allreduce");
}

static int run_plan(struct executor *e, struct cuda_stream *s, const struct executor_call *call) {
    struct flags flags = {.count = 0};
    for (int i = 0; i < call->plan->step_count; i++) {
        const struct plan_step *step = &call->plan->steps[i];
        CHECK(add_waits(e, s, &flags, call, step));
        if (step->length) {
            CHECK(enqueue_flags(e, s, &flags));
            CHECK(move(e, s, call, step));
            CHECK(cuda_calls_mark(&e->calls, s, 1));
        }
        CHECK(add_posts(e, s, &flags, call, step));
    }
    return enqueue_flags(e, s, &flags);
}

static int stepwise_enqueue(struct executor *e, struct stream *stream,
                            const struct executor_call *call, const char *span_name) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    CHECK(cuda_calls_begin(&e->calls, s, call));
    CHECK(cuda_begin(s, span_name, call->moved, 0));
    CHECK(run_plan(e, s, call));
    CHECK(cuda_end(s));
    return cuda_calls_end(&e->calls, s);
}

const struct executor_ops cuda_stepwise_ops = {.name = "stepwise",
                                               .runs_plans = 1,
                                               .maps_peers = 1,
                                               .open = stepwise_open,
                                               .enqueue = stepwise_enqueue,
                                               .release = cuda_calls_release,
                                               .close = stepwise_close};
