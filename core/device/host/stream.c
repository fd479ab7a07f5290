/* Streams of the emulated GPU decide when a command runs (the policies of device/host/host.h).
 *
 * A queue is a growing ring with one thread, which sleeps while the ring is empty. The late policy
 * has the same thread, which runs a command only once it is demanded: by a sync, by waiting for a
 * later event, or by a wait of another stream that was itself demanded. So work happens as late as
 * the program allows, and a program that reads a result without waiting for it reads the old bytes
 * every time.
 *
 * After a stream's first error its commands are skipped, but records still signal their events,
 * with the error, so that no waiter hangs. Closing a stream uses the same path: the error is then
 * "closed". */
#include "device/host/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/advice.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/system_error.h"
#include "base/thread.h"

enum { RING_START = 64 };

/* Runs a command and adds its span. Emulated devices may share cores, so on the compute lane the
 * thread's CPU time is measured, too; on the communication lane it would count spinning as work.
 * The two clocks need not agree to the nanosecond, hence the bounds. */
static int run_timed(struct host_stream *s, struct command *c) {
    int take_cpu = s->head.lane == LANE_COMPUTE;
    if (device_is_dry(s->head.device)) { /* dry work takes no time */
        c->facts.start_ns = c->facts.end_ns = c->facts.cpu_ns = 0;
        int code = c->function(c->args);
        span_add(&s->head.spans, &c->facts);
        return code;
    }
    c->facts.start_ns = now_ns();
    int64_t before = take_cpu ? thread_cpu_ns() : 0;
    int code = c->function(c->args);
    int64_t used = take_cpu ? thread_cpu_ns() - before : 0;
    c->facts.end_ns = now_ns();
    int64_t wall = c->facts.end_ns - c->facts.start_ns;
    if (take_cpu) c->facts.cpu_ns = used > wall ? wall : used > 0 ? used : 1;
    span_add(&s->head.spans, &c->facts);
    return code;
}

/* Runs one command, in the thread that executes the stream. */
static void run(struct host_stream *s, struct command *c) {
    int code = OK;
    if (c->control)
        code = c->function(c->args);
    else if (atomic_load_explicit(&s->error.code, memory_order_relaxed) == OK)
        code = s->head.spans.on ? run_timed(s, c) : c->function(c->args);
    if (code) sticky_set(&s->error, code, error_message());
}

/* 1: there is a command that may run now. stream->lock is held. */
static int may_run(const struct host_stream *s) {
    if (s->finished == s->enqueued) return 0;
    return s->policy == POLICY_QUEUE || s->finished < s->demanded || s->closing;
}

/* Wakes the waiters after releasing the lock; otherwise they would sleep again, on the lock. */
static void *stream_thread(void *argument) {
    struct host_stream *s = argument;
    struct command c;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!may_run(s) && !s->closing)
            pthread_cond_wait(&s->work, &s->lock);
        if (!may_run(s)) break; /* closing and all commands have finished */
        c = s->ring[s->finished % s->capacity];
        pthread_mutex_unlock(&s->lock);
        run(s, &c);
        pthread_mutex_lock(&s->lock);
        s->finished++;
        pthread_mutex_unlock(&s->lock);
        pthread_cond_broadcast(&s->done);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static int grow(struct host_stream *s) {
    size_t capacity = s->capacity ? 2 * s->capacity : RING_START;
    struct command *ring = malloc(capacity * sizeof *ring);
    if (!ring)
        return fail(ERR_MEMORY, "out of host memory: %zu commands queued on %s", capacity,
                    s->head.device->name);
    for (uint64_t i = s->finished; i < s->enqueued; i++)
        ring[i % capacity] = s->ring[i % s->capacity];
    free(s->ring);
    s->ring = ring;
    s->capacity = capacity;
    return OK;
}

static int enqueue(struct host_stream *s, const struct command *command, size_t args_bytes) {
    pthread_mutex_lock(&s->lock);
    int code = s->enqueued - s->finished == s->capacity ? grow(s) : OK;
    if (!code) {
        memcpy(&s->ring[s->enqueued % s->capacity], command,
               offsetof(struct command, args) + args_bytes);
        s->enqueued++;
    }
    int wake = may_run(s); /* once the lock is free, as above */
    pthread_mutex_unlock(&s->lock);
    if (wake) pthread_cond_signal(&s->work);
    return code;
}

int host_submit(struct host_stream *s, struct command *command, size_t args_bytes) {
    if (!command->control) CHECK(sticky_get(&s->error));
    int code = s->policy == POLICY_INLINE ? OK : enqueue(s, command, args_bytes);
    if (code) sticky_set(&s->error, code, error_message());
    if (s->policy == POLICY_INLINE || (code && command->control))
        run(s, command); /* out of memory, so not queued: a record must still signal */
    return sticky_get(&s->error);
}

uint64_t host_next_position(struct host_stream *s) {
    pthread_mutex_lock(&s->lock);
    uint64_t position = s->enqueued + 1;
    pthread_mutex_unlock(&s->lock);
    return position;
}

void host_demand(struct host_stream *s, uint64_t position) {
    if (s->policy != POLICY_LATE) return;
    pthread_mutex_lock(&s->lock);
    if (position > s->demanded) s->demanded = position;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

/* When a job is interrupted, the command that runs sees the same abort word and ends soon. The
 * caller is about to free the memory that the command uses, so a sync still waits for it this
 * long. */
static const int64_t GRACE_NS = 1000000000;

int host_sync(struct stream *stream) {
    struct host_stream *s = (struct host_stream *)stream;
    if (s->policy == POLICY_INLINE) return sticky_get(&s->error);
    int64_t deadline = deadline_after(s->head.device->config.timeout_s);
    int interrupted = OK;
    pthread_mutex_lock(&s->lock);
    uint64_t target = s->enqueued, missing;
    if (target > s->demanded) s->demanded = target;
    pthread_cond_signal(&s->work);
    while (s->finished < target) {
        int64_t now = now_ns(), look = now + HOST_POLL_NS;
        if (!interrupted && (interrupted = device_interrupted(s->head.device)) &&
            deadline > now + GRACE_NS)
            deadline = now + GRACE_NS;
        if (now >= deadline) break;
        cond_wait_until(&s->done, &s->lock, look < deadline ? look : deadline);
    }
    missing = s->finished < target ? target - s->finished : 0;
    pthread_mutex_unlock(&s->lock);
    if (interrupted) return interrupted;
    if (missing)
        return fail(
            ERR_TIMEOUT,
            "sync of stream %s of %s: %llu commands did not finish within %g s: a peer may be "
            "stuck: see the first error, or " ADVICE_TIMEOUT,
            lane_name(s->head.lane), s->head.device->name, (unsigned long long)missing,
            s->head.device->config.timeout_s);
    return sticky_get(&s->error);
}

int host_stream_init(struct host_stream *s, struct device *device, enum lane lane,
                     enum policy policy) {
    memset(s, 0, sizeof *s);
    s->head.device = device;
    s->head.lane = lane;
    s->head.step = -1;
    s->policy = policy;
    span_log_init(&s->head.spans, device->config.spans);
    if (policy == POLICY_INLINE) return OK;

    pthread_mutex_init(&s->lock, NULL);
    cond_open(&s->work);
    cond_open(&s->done);
    CHECK(grow(s));
    int code = thread_start(&s->thread, stream_thread, s);
    if (code) return fail_system(code, "thread of stream %s of %s", lane_name(lane), device->name);
    s->has_thread = 1;
    return OK;
}

void host_stream_close(struct host_stream *s) {
    if (s->has_thread) {
        char text[ERROR_TEXT];
        snprintf(text, sizeof text, "stream %s of %s: closed with work queued",
                 lane_name(s->head.lane), s->head.device->name);
        /* the error comes first, so that queued commands are skipped and do not run */
        sticky_set(&s->error, ERR_FAILED, text);
        pthread_mutex_lock(&s->lock);
        s->closing = 1;
        pthread_cond_signal(&s->work);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
        s->has_thread = 0;
    }
    if (s->ring) { /* the ring is made last, so the lock and conditions exist */
        pthread_cond_destroy(&s->done);
        pthread_cond_destroy(&s->work);
        pthread_mutex_destroy(&s->lock);
        free(s->ring);
        s->ring = NULL;
    }
    span_log_free(&s->head.spans);
}
