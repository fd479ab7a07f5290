/* A GPU for each rank: one launch of the spin kernel (spin.h) runs this rank's plan and waits for
 * the peers inside the kernel. A call takes a few microseconds. Operations on a stream would take
 * that long for every step.
 *
 * Everything that a launch needs is made before it. The kernel is loaded, and plans are in device
 * memory, copied there outside the stream when a count is first used. Nothing is allocated or
 * loaded while a kernel may spin, because that waits for the GPU, which waits for a peer.
 *
 * Kernels of the compute stream run at the same time: 32 blocks of 512 threads are a fraction of a
 * GPU. If other kernels run first, channels start late; those kernels never wait for Duet's. */
#include "allreduce/cuda/executor.h"

#include <stdlib.h>
#include <string.h>

#include "base/advice.h"
#include "allreduce/cuda/awaited.h"
#include "allreduce/cuda/spin_kernel.h"
#include "allreduce/cuda/spin_memory.h"

struct executor {
    struct cuda_calls calls; /* first */
    struct spin_rank *rank;  /* device memory */
    struct spin_page *page;  /* pinned */
    void *staging;           /* pinned, SPIN_STAGING bytes */
};

/* ---- failures ---- */

/* The failure that the kernels have left on the host's page, if there is one. */
static int look_at_page(struct cuda_calls *c, int waiting) {
    const struct spin_page *page = executor_of(c)->page;
    (void)waiting;
    if (__atomic_load_n(&page->code, __ATOMIC_ACQUIRE) == SPIN_FINE) return OK;
    struct comm_wait_reason reason = {.collective = "allreduce",
                                      .bucket = page->bucket,
                                      .step = (long)page->step,
                                      .peer = page->peer};
    char what[128];
    spin_describe(page, what, sizeof what);
    return comm_distant_late(c->ranks->comm, &reason, what);
}

/* Kernels that run end, and kernels that start end at once. */
static void stop(struct cuda_calls *c) {
    __atomic_store_n(&executor_of(c)->page->stop, 1, __ATOMIC_RELEASE);
}

static const struct cuda_calls_ops calls_ops = {
    .look = look_at_page, .awaited = cuda_awaited_flag, .release = stop};

/* ---- life ---- */

static void spin_close(struct executor *e) {
    struct device *device = &e->calls.device->head;
    cuda_calls_unwatch(&e->calls);
    if (!e->calls.stuck) { /* freeing may wait for the GPU */
        device_free(device, e->rank);
        device_host_free(device, e->page);
        device_host_free(device, e->staging);
    }
    cuda_calls_close(&e->calls);
    free(e);
}

static int check_room(struct executor *e) {
    const struct cuda_device *d = e->calls.device;
    int resident;
    CHECK(spin_load(d, &resident));
    if (resident >= CUDA_CHANNELS) return OK;
    return fail(
        ERR_FAILED,
        "allreduce on %s: %s holds %d blocks of its kernel at once, %d are needed: " ADVICE_CPU,
        d->head.name, d->gpu_name, resident, CUDA_CHANNELS);
}

static int open_parts(struct executor *e, const struct executor_ranks *ranks) {
    struct device *device = ranks->device;
    void *rank, *page;
    CHECK(cuda_calls_open(&e->calls, ranks, &calls_ops));
    CHECK(cuda_seen_alloc(&e->calls));
    CHECK(check_room(e));
    CHECK(device_alloc(device, &rank, sizeof *e->rank, MEM_COMM));
    e->rank = rank;
    CHECK(device_host_alloc(device, &page, sizeof *e->page));
    e->page = page;
    memset(e->page, 0, sizeof *e->page);
    CHECK(device_host_alloc(device, &e->staging, SPIN_STAGING));
    struct spin_rank own = {
        .n = ranks->n, .rank = ranks->rank, .half = ranks->half, .page = e->page};
    for (int r = 0; r < ranks->n; r++) {
        own.flags[r] = cuda_flags_of(&e->calls, r);
        own.scratch[r] = ranks->scratch[r];
    }
    return spin_write_rank(e->calls.device, e->staging, e->rank, &own);
}

static int spin_open(struct executor **out, const struct executor_ranks *ranks) {
    struct executor *e = calloc(1, sizeof *e);
    if (!e) return fail(ERR_MEMORY, "allreduce: out of host memory: free some");
    int code = open_parts(e, ranks);
    if (code) {
        spin_close(e);
        return code;
    }
    cuda_calls_watch(&e->calls);
    *out = e;
    return OK;
}

/* ---- a call ---- */

static int keep_plan(struct executor *e, const struct plan *plan, void **kept) {
    struct cuda_calls *c = &e->calls;
    CHECK(device_alloc(&c->device->head, kept, spin_plan_bytes(plan), MEM_COMM));
    int code = spin_write_plan(c->device, e->staging, *kept, plan);
    if (!code) return OK;
    device_free(&c->device->head, *kept);
    *kept = NULL;
    return code;
}

static void drop_plan(struct executor *e, void *kept) {
    if (!e->calls.stuck) device_free(&e->calls.device->head, kept);
}

static int spin_enqueue(struct executor *e, struct stream *stream, const struct executor_call *call,
                        const char *span_name) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    const struct executor_ranks *ranks = e->calls.ranks;
    struct spin_call c = {.rank = e->rank,
                          .plan = call->kept,
                          .offset = call->offset,
                          .timeout_ns = (uint64_t)(comm_timeout_s(ranks->comm) * 1e9),
                          .channels = spin_channels(call->count),
                          .scale = call->scale,
                          .bucket = call->bucket,
                          .algorithm = (int32_t)call->plan->algorithm,
                          .step = call->step};
    memcpy(c.data, call->data, (size_t)ranks->n * sizeof *c.data);
    spin_align(&c, ranks->n, ranks->scratch, ranks->half);
    CHECK(cuda_calls_begin(&e->calls, s, call));
    CHECK(cuda_begin(s, span_name, call->moved, 0));
    CUDA_STREAM_CHECK(s, spin_launch(s->stream, &c), "allreduce");
    for (int i = 0; i < call->plan->step_count; i++)
        executor_charge(ranks, &call->plan->steps[i]);
    CHECK(cuda_end(s));
    return cuda_calls_end(&e->calls, s);
}

const struct executor_ops cuda_spin_ops = {.name = "spin",
                                           .runs_plans = 1,
                                           .maps_peers = 1,
                                           .open = spin_open,
                                           .keep_plan = keep_plan,
                                           .drop_plan = drop_plan,
                                           .enqueue = spin_enqueue,
                                           .release = cuda_calls_release,
                                           .close = spin_close};
