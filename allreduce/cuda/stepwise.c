/* Ranks that share a GPU: a plan becomes operations on each rank's stream, and no kernel ever
 * waits.
 *
 *     step  =  the stream waits for words  ->  one kernel moves or adds a range  ->  the stream writes words
 *
 * Processes on one GPU take turns on it, some milliseconds at a time. A kernel that spins for a
 * peer's word would spend its turn on that, and the peer could not run meanwhile. A stream that
 * waits for a word costs nothing: the GPU goes to who has work. What remains is the change of
 * turns, so the plan that changes hands least is best: `fused`, one kernel of rank 0, which is
 * what `auto` takes here. Every other plan runs too, a kernel a step; ring and tree show then
 * what they cost where ranks share one memory.
 *
 * Order. A write of a word is behind all that the stream did before it, so who waited for the
 * word sees the data (device/cuda/value.h). A kernel starts behind the waits, so nothing it
 * reads is older than they are. The next call's operations stand behind this call's on the same
 * stream: the three facts of plan.h hold as they do for a host's thread. */
#include "allreduce/cuda/executor.h"
#include "device/cuda/kernels/sum_launch.h"
#include "device/cuda/value.h"

static int stepwise_open(struct executor **out, const struct executor_ranks *ranks) {
    struct executor *e;
    CHECK(cuda_executor_open(&e, ranks));
    int code = cuda_value_open(e->device);
    /* a first launch would wait for the GPU, and that for a peer */
    if (!code) code = cuda_sum_load(e->device);
    if (code) {
        cuda_executor_close(e);
        return code;
    }
    cuda_calls_watch(e);
    *out = e;
    return OK;
}

static int wait_words(struct executor *e, struct cuda_stream *s, const struct executor_call *call,
                      const struct plan_step *step) {
    const struct cuda_flag *own = cuda_flags_of(e, e->ranks->rank);
    for (int peer = 0; peer < e->ranks->n; peer++)
        if (step->wait_ranks >> peer & 1)
            CHECK(cuda_value_wait(s,
                                  &own[cuda_flag_at(e->ranks->n, 0, step->wait_kind, peer)].epoch,
                                  call->base + step->wait_epoch));
    return OK;
}

static int write_words(struct executor *e, struct cuda_stream *s, const struct executor_call *call,
                       const struct plan_step *step) {
    int n = e->ranks->n, me = e->ranks->rank;
    for (int peer = 0; peer < n; peer++)
        if (step->post_ranks >> peer & 1)
            CHECK(cuda_value_write(
                s, &cuda_flags_of(e, peer)[cuda_flag_at(n, 0, step->post_kind, me)].epoch,
                call->base + step->post_epoch));
    return OK;
}

static int move(struct executor *e, struct cuda_stream *s, const struct executor_call *call,
                const struct plan_step *step) {
    const struct executor_ranks *ranks = e->ranks;
    struct step_memory memory = {.data = call->data,
                                 .scratch = ranks->scratch,
                                 .data_offset = call->offset,
                                 .scratch_offset = (uint64_t)call->half * ranks->half};
    struct sum sum;
    if (step->length == 0) return OK;
    for (int r = 0; r < ranks->n; r++)
        step_entry(&sum, step, &memory, ranks->n, ranks->rank, r, call->scale);
    executor_charge(ranks, step);
    return cuda_sum(s, &sum, "allreduce");
}

static int run_plan(struct executor *e, struct cuda_stream *s, const struct executor_call *call) {
    for (int i = 0; i < call->plan->step_count; i++) {
        const struct plan_step *step = &call->plan->steps[i];
        CHECK(wait_words(e, s, call, step));
        CHECK(move(e, s, call, step));
        CHECK(write_words(e, s, call, step));
        CHECK(cuda_calls_mark(
            e, s, (int)count_bits(step->wait_ranks) + 1 + (int)count_bits(step->post_ranks)));
    }
    return OK;
}

static int stepwise_enqueue(struct executor *e, struct stream *stream,
                            const struct executor_call *call, const char *span_name) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    if (s->capturing)
        return fail(
            ERR_FAILED,
            "allreduce on %s: ranks that share a GPU wait for each other's words: not inside a "
            "recording",
            stream->device->name);
    CHECK(cuda_calls_begin(e, s, call));
    CHECK(cuda_begin(s, span_name, call->moved, 0));
    CHECK(run_plan(e, s, call));
    CHECK(cuda_end(s));
    return cuda_calls_end(e, s);
}

const struct executor_ops cuda_stepwise_ops = {.name = "stepwise",
                                               .runs_plans = 1,
                                               .shares_device = 1,
                                               .open = stepwise_open,
                                               .enqueue = stepwise_enqueue,
                                               .release = cuda_calls_release,
                                               .close = cuda_executor_close};
