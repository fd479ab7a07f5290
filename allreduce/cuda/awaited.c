/* Reads this rank's flags on the service stream, not on the calls' own stream. */
#include "allreduce/cuda/awaited.h"

#include <time.h>

#include "base/clock.h"

static const double READ_S = 0.1; /* how long a copy of a few flags may take */

static size_t seen_bytes(const struct cuda_calls *c) {
    return (size_t)PLAN_FLAG_KINDS * (size_t)c->ranks->n * sizeof(struct cuda_flag);
}

int cuda_seen_alloc(struct cuda_calls *c) {
    void *memory;
    CHECK(device_host_alloc(&c->device->head, &memory, seen_bytes(c)));
    c->seen = memory;
    return OK;
}

static int is_empty(cudaStream_t stream) {
    cudaError_t state = cudaStreamQuery(stream);
    if (state != cudaSuccess) cudaGetLastError();
    return state != cudaErrorNotReady;
}

static int is_empty_within(cudaStream_t stream, double seconds) {
    int64_t deadline = deadline_after(seconds);
    while (!is_empty(stream)) {
        struct timespec pause = {0, 20000};
        if (now_ns() >= deadline) return 0;
        nanosleep(&pause, NULL);
    }
    return 1;
}

/* 1: c->seen holds the flags of channel 0. 0: they could not be read now. The lock is only tried,
 * because the caller may hold it. */
static int read_flags(struct cuda_calls *c) {
    struct cuda_device *d = c->device;
    if (pthread_mutex_trylock(&d->service_lock)) return 0;
    int done = is_empty(d->service) && cudaSetDevice(d->gpu) == cudaSuccess &&
               cudaMemcpyAsync(c->seen, cuda_flags_of(c, c->ranks->rank), seen_bytes(c),
                               cudaMemcpyDeviceToHost, d->service) == cudaSuccess &&
               is_empty_within(d->service, READ_S);
    cudaGetLastError();
    pthread_mutex_unlock(&d->service_lock);
    return done;
}

enum cuda_awaits cuda_awaited_flag(struct cuda_calls *c, const struct cuda_call *call,
                                   struct cuda_awaited *out) {
    const struct plan *plan = call->plan;
    if (!read_flags(c)) return CUDA_AWAITS_UNSEEN;
    for (int i = 0; i < plan->step_count; i++) {
        const struct plan_step *s = &plan->steps[i];
        for (int peer = 0; peer < plan->n; peer++) {
            uint64_t epoch = c->seen[cuda_flag_at(plan->n, 0, s->wait_kind, peer)].epoch;
            if (!(s->wait_ranks >> peer & 1) ||
                cuda_flag_reached(epoch, call->base + s->wait_epoch))
                continue;
            out->step = i;
            out->peer = peer;
            return CUDA_AWAITS_PEER;
        }
    }
    return CUDA_AWAITS_NOBODY;
}
