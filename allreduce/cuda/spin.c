/* A GPU for each rank: one launch of the spin kernel (cuda/spin.h) runs this rank's plan, and
 * waits for the peers in the kernel. A few microseconds a call where operations on a stream
 * would cost some at every step.
 *
 * Everything a launch needs is made beforehand: the kernel is loaded, plans are in device memory
 * (brought over from the side when a count comes for the first time), so nothing is allocated or
 * loaded while a kernel may spin: either would wait for the GPU, and the GPU for a peer.
 *
 * Kernels of the compute stream run beside: 32 blocks of 512 threads are a fraction of a GPU.
 * They may come first, and then channels start late; they do not wait for anything of ours. */
#include "allreduce/cuda/executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allreduce/cuda/spin_launch.h"

struct spin {
    struct spin_rank *rank; /* device memory */
    struct spin_page *page; /* pinned */
    void *staging;          /* pinned */
};

/* ---- bringing things over ---- */

size_t spin_plan_bytes(const struct plan *plan) {
    return sizeof(struct spin_plan) + (size_t)plan->step_count * sizeof(struct plan_step);
}

/* As many steps at a time as the staging memory holds. */
int spin_write_plan(struct cuda_device *d, void *staging, char *memory, const struct plan *plan) {
    struct spin_plan head = {.steps = (uint32_t)plan->step_count, .epochs = plan->epochs};
    const int piece = SPIN_STAGING / (int)sizeof(struct plan_step);
    memcpy(staging, &head, sizeof head);
    CHECK(cuda_upload(d, memory, staging, sizeof head));
    for (int i = 0; i < plan->step_count; i += piece) {
        int count = plan->step_count - i < piece ? plan->step_count - i : piece;
        size_t bytes = (size_t)count * sizeof(struct plan_step);
        memcpy(staging, &plan->steps[i], bytes);
        CHECK(cuda_upload(d, memory + sizeof head + (size_t)i * sizeof(struct plan_step), staging,
                          bytes));
    }
    return OK;
}

int spin_write_rank(struct cuda_device *d, void *staging, struct spin_rank *memory,
                    const struct spin_rank *rank) {
    memcpy(staging, rank, sizeof *rank);
    return cuda_upload(d, memory, staging, sizeof *rank);
}

void spin_describe(const struct spin_page *page, char *text, size_t text_bytes) {
    snprintf(text, text_bytes, "%s, step %d of its plan: %s %llu, seen %llu, channel %u",
             allreduce_algorithm_name((enum allreduce_algorithm)page->algorithm), page->plan_step,
             plan_flag_name((enum plan_flag)page->kind), (unsigned long long)page->expected,
             (unsigned long long)page->seen, page->channel);
}

/* ---- life ---- */

static void spin_close(struct executor *e) {
    struct spin *s = e->spin;
    struct device *device = &e->device->head;
    cuda_calls_unwatch(e);
    if (s && !e->stuck) {
        device_free(device, s->rank);
        device_host_free(device, s->page);
        device_host_free(device, s->staging);
    }
    free(s);
    cuda_executor_close(e);
}

static int check_room(struct executor *e) {
    int resident;
    CHECK(spin_load(e->device, &resident));
    if (resident >= CUDA_CHANNELS) return OK;
    return fail(ERR_FAILED,
                "allreduce on %s: %s holds %d blocks of its kernel at once, %d are needed: use "
                "--device cpu",
                e->device->head.name, e->device->gpu_name, resident, CUDA_CHANNELS);
}

static int open_rank(struct executor *e, struct spin *s) {
    struct device *device = &e->device->head;
    const struct executor_ranks *ranks = e->ranks;
    void *rank, *page;
    CHECK(device_alloc(device, &rank, sizeof *s->rank, MEM_COMM));
    s->rank = rank;
    CHECK(device_host_alloc(device, &page, sizeof *s->page));
    s->page = page;
    memset(s->page, 0, sizeof *s->page);
    CHECK(device_host_alloc(device, &s->staging, SPIN_STAGING));
    struct spin_rank own = {
        .n = ranks->n, .rank = ranks->rank, .half = ranks->half, .page = s->page};
    for (int r = 0; r < ranks->n; r++) {
        own.flags[r] = ranks->flags[r];
        own.scratch[r] = ranks->scratch[r];
    }
    return spin_write_rank(e->device, s->staging, s->rank, &own);
}

static int spin_open(struct executor **out, const struct executor_ranks *ranks) {
    struct executor *e;
    CHECK(cuda_executor_open(&e, ranks));
    e->spin = calloc(1, sizeof *e->spin);
    int code = e->spin ? OK : fail(ERR_MEMORY, "allreduce: no host memory: free some");
    if (!code) code = check_room(e);
    if (!code) code = open_rank(e, e->spin);
    if (code) {
        spin_close(e);
        return code;
    }
    cuda_calls_watch(e);
    *out = e;
    return OK;
}

static int keep_plan(struct executor *e, const struct plan *plan, void **kept) {
    if (e->stream && e->stream->capturing)
        return fail(ERR_FAILED,
                    "allreduce of %zu elements on %s: inside a recording only counts that were "
                    "seen before: "
                    "make one such call first",
                    plan->count, e->device->head.name);
    CHECK(device_alloc(&e->device->head, kept, spin_plan_bytes(plan), MEM_COMM));
    int code = spin_write_plan(e->device, e->spin->staging, *kept, plan);
    if (!code) return OK;
    device_free(&e->device->head, *kept);
    *kept = NULL;
    return code;
}

static void drop_plan(struct executor *e, void *kept) {
    if (!e->stuck) device_free(&e->device->head, kept);
}

/* ---- failures ---- */

int cuda_spin_look(struct executor *e) {
    const struct spin_page *page = e->spin->page;
    struct comm *comm = e->ranks->comm;
    if (__atomic_load_n(&page->code, __ATOMIC_ACQUIRE) == SPIN_FINE) return OK;
    struct comm_wait_reason reason = {"allreduce", page->bucket, (long)page->step, page->peer};
    char what[128];
    spin_describe(page, what, sizeof what);
    return comm_distant_late(comm, &reason, what);
}

void cuda_spin_stop(struct executor *e) {
    __atomic_store_n(&e->spin->page->stop, 1, __ATOMIC_RELEASE);
}

/* ---- a call ---- */

/* Inside a recording the call has no number and no events: its replays are somebody else's
 * calls. */
static int spin_enqueue(struct executor *e, struct stream *stream, const struct executor_call *call,
                        const char *span_name) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    const struct executor_ranks *ranks = e->ranks;
    int counted = !s->capturing;
    struct spin_call c = {.ranks = e->spin->rank,
                          .plans = call->kept,
                          .offset = call->offset,
                          .timeout_ns = (uint64_t)(comm_timeout_s(ranks->comm) * 1e9),
                          .channels = spin_channels(call->count),
                          .scale = call->scale,
                          .bucket = call->bucket,
                          .algorithm = (int32_t)call->plan->algorithm,
                          .step = call->step};
    memcpy(c.data, call->data, (size_t)ranks->n * sizeof *c.data);
    spin_align(&c, ranks->n, ranks->scratch, ranks->half);
    if (counted) CHECK(cuda_calls_begin(e, s, call));
    CHECK(cuda_begin(s, span_name, call->moved, 0));
    CUDA_STREAM_CHECK(s, spin_launch(s->stream, &c, c.channels, 0), "allreduce");
    for (int i = 0; i < call->plan->step_count; i++)
        executor_charge(ranks, &call->plan->steps[i]);
    CHECK(cuda_end(s));
    return counted ? cuda_calls_end(e, s) : OK;
}

const struct executor_ops cuda_spin_ops = {.name = "spin",
                                           .runs_plans = 1,
                                           .open = spin_open,
                                           .keep_plan = keep_plan,
                                           .drop_plan = drop_plan,
                                           .enqueue = spin_enqueue,
                                           .release = cuda_calls_release,
                                           .close = spin_close};
