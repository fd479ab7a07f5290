/* Waits for a GPU. The runtime's own waits have no deadline and ignore other ranks, so no wait here
 * sleeps inside the runtime. It polls, and between two polls it checks whether the job is ending
 * (config.interrupted, watch.c). */
#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "device/cuda/cuda.h"

/* A wait begins by asking without a pause, since most steps are short ... */
static const int64_t EAGER_NS = 1000000;
/* ... and goes on with this pause between two questions: another rank may need the core. */
static const long PAUSE_NS = 20000;
/* The time in which a stream must finish once its job is being ended. */
static const double DRAIN_S = 1;

/* `interruptible`: the device whose config.interrupted is called, or NULL. */
static int poll_for(double timeout_s, const struct device *interruptible, cudaEvent_t event,
                    cudaStream_t stream, cudaError_t *state) {
    int64_t begun = now_ns(), deadline = deadline_after(timeout_s);
    for (;;) {
        *state = event ? cudaEventQuery(event) : cudaStreamQuery(stream);
        /* CUDA records "not ready" as an error, which the check after a launch would find. */
        if (*state == cudaErrorNotReady) cudaGetLastError();
        int64_t now = now_ns();
        if (*state != cudaErrorNotReady || now >= deadline) return OK;
        if (now - begun < EAGER_NS) {
            sched_yield();
            continue;
        }
        if (interruptible) CHECK(cuda_watch_look(interruptible, 1));
        if (interruptible) CHECK(device_interrupted(interruptible));
        struct timespec pause = {0, PAUSE_NS};
        nanosleep(&pause, NULL);
    }
}

/* Once a GPU has missed a deadline, later waits for it are short: a process that ends has many of
 * them, and they must not take the whole timeout each. */
int cuda_poll(const struct device *device, cudaEvent_t event, cudaStream_t stream,
              cudaError_t *state) {
    struct cuda_device *d = (struct cuda_device *)device;
    int overdue = __atomic_load_n(&d->overdue, __ATOMIC_RELAXED);
    double timeout_s = device->config.timeout_s;
    CHECK(poll_for(overdue && timeout_s > DRAIN_S ? DRAIN_S : timeout_s, device, event, stream,
                   state));
    __atomic_store_n(&d->overdue, *state == cudaErrorNotReady, __ATOMIC_RELAXED);
    return OK;
}

/* A GPU does not drop queued work, so this waits for its end as long as any wait may last. If the
 * job is being ended, the executors have released all waits for a peer, so the work ends at once
 * and DRAIN_S more are enough. */
int cuda_drain(struct cuda_stream *s) {
    cudaError_t state;
    if (cuda_poll(s->head.device, NULL, s->stream, &state))
        poll_for(DRAIN_S, NULL, NULL, s->stream, &state);
    /* A broken context counts as drained: nothing runs in it any more. */
    return state != cudaErrorNotReady;
}
