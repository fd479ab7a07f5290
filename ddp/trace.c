/* DUET_TRACE records each bucket's allreduce in a program's duet_ddp with its times; see
 * group/call_trace.h.
 *
 * A bucket is launched on the stream that communicates, and runs there once its gradients are
 * ready. So the stream itself takes the times, with one host function before the allreduce and one
 * after it.
 *
 *     stream:   wait for the gradients | begin | allreduce, or the program's hook | end
 *
 * These functions run in order on that stream, and nothing else writes their data. A GPU's stream
 * runs no host functions here, so buckets on GPUs are not recorded. */
#include "base/clock.h"
#include "ddp/state.h"
#include "group/call_trace.h"

struct bucket_note {
    struct duet_ddp *ddp;
    uint64_t bytes;
};

static int begin(void *args) {
    struct bucket_note *note = args;
    note->ddp->bucket_began_ns = now_ns();
    return OK;
}

static int end(void *args) {
    struct bucket_note *note = args;
    call_trace_add(note->ddp->trace, "all_reduce", note->bytes, note->ddp->bucket_began_ns);
    return OK;
}

void ddp_trace_open(struct duet_ddp *ddp) {
    if (device_config(ddp->device)->kind != DEVICE_CUDA)
        ddp->trace = call_trace_open_ddp(ddp->group);
}

int ddp_launch_noted(struct duet_ddp *ddp, const struct ddp_bucket *bucket) {
    const struct bucket_note note = {ddp, bucket->count * sizeof(float)};
    CHECK(stream_call_host(bucket->stream, "trace", 0, begin, &note, sizeof note));
    CHECK(ddp->hook(ddp->hook_context, bucket));
    return stream_call_host(bucket->stream, "trace", 0, end, &note, sizeof note);
}
