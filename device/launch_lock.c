/* The launch lock: see launch_lock.h. The holder spins, since an interpreter computes meanwhile:
 * the time that it takes from the cores is part of what it costs. */
#include "device/launch_lock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/advice.h"
#include "base/clock.h"
#include "base/error.h"
#include "device/table.h"

/* How often a thread that waits asks whether the job has failed. */
static const int64_t LOOK_NS = 20000000;

struct launch_lock {
    pthread_mutex_t mutex; /* guards held */
    pthread_cond_t freed;
    int held;
    int64_t hold_ns;
    int forward_only;
};

int launch_lock_new(struct launch_lock **out, double hold_s, int forward_only) {
    struct launch_lock *lock = *out = (struct launch_lock *)calloc(1, sizeof *lock);
    pthread_condattr_t monotonic;
    if (!lock) return fail(ERR_MEMORY, "launch lock: no host memory");
    pthread_mutex_init(&lock->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&lock->freed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    lock->hold_ns = (int64_t)(hold_s * 1e9 + 0.5);
    lock->forward_only = forward_only;
    return OK;
}

void launch_lock_free(struct launch_lock *lock) {
    if (!lock) return;
    pthread_cond_destroy(&lock->freed);
    pthread_mutex_destroy(&lock->mutex);
    free(lock);
}

static int takes_it(const struct launch_lock *lock, enum phase phase) {
    if (lock->forward_only) return phase == PHASE_FORWARD;
    return phase != PHASE_NONE && phase != PHASE_EVALUATE && phase != PHASE_PROOF;
}

/* Returns what ended the wait without the lock: OK means that it is held. */
static int take(struct launch_lock *lock, const struct device *device) {
    int64_t deadline = deadline_after(device->config.timeout_s);
    int code = OK;
    pthread_mutex_lock(&lock->mutex);
    while (lock->held && !code) {
        int64_t until = now_ns() + LOOK_NS;
        struct timespec look = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
        pthread_cond_timedwait(&lock->freed, &lock->mutex, &look);
        if (!lock->held) break;
        code = device_interrupted(device);
        if (!code && now_ns() > deadline)
            code = fail(
                ERR_TIMEOUT,
                "launch lock: %s: not free after %g s: another thread has stopped: " ADVICE_TIMEOUT,
                device->name, device->config.timeout_s);
    }
    if (!code) lock->held = 1;
    pthread_mutex_unlock(&lock->mutex);
    return code;
}

static void give_back(struct launch_lock *lock) {
    pthread_mutex_lock(&lock->mutex);
    lock->held = 0;
    pthread_cond_signal(&lock->freed);
    pthread_mutex_unlock(&lock->mutex);
}

static void add_span(struct stream *stream, enum phase phase, const char *what, int64_t start_ns,
                     int64_t end_ns) {
    struct span span = {.start_ns = start_ns,
                        .end_ns = end_ns,
                        .step = stream->step,
                        .rank = (int16_t)stream->device->config.rank,
                        .device = (int16_t)stream->device->config.index,
                        .lane = LANE_HOST,
                        .phase = (uint8_t)phase,
                        .waiting = phase == PHASE_HOST_SERIAL};
    snprintf(span.name, sizeof span.name, "%s: %s", span.waiting ? "wait" : "launch", what);
    span_add(&stream->device->launch_spans, &span);
}

int launch_lock_pass(struct stream *stream, const char *what) {
    struct device *device = stream->device;
    struct launch_lock *lock = device->config.launch_lock;
    if (!lock || !takes_it(lock, stream->phase)) return OK;
    int64_t asked = now_ns();
    CHECK(take(lock, device));
    int64_t taken = now_ns(), now;
    while ((now = now_ns()) - taken < lock->hold_ns)
        continue;
    give_back(lock);
    add_span(stream, PHASE_HOST_SERIAL, what, asked, taken);
    add_span(stream, PHASE_HOST_LAUNCH, what, taken, now);
    return OK;
}
