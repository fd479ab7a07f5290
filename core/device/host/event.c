/* An event has a counter of the records made, and a counter of the records reached.
 *
 * event_record increments `recorded` in the caller and enqueues a command that sets `signalled` to
 * the same number when the stream reaches it. A waiter notes the number of the most recent record
 * and waits until `signalled` has reached it. Only the recording stream writes `signalled`, with
 * release, after all its earlier work; waiters read it with acquire, so they see that work.
 *
 * Queued commands hold a reference to their event, which may therefore be destroyed while they are
 * still queued. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/advice.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "device/host/host.h"

/* After this many calls of event_done a late stream is made to run: a program that polls instead
 * of waiting is correct too. Until then the answer stays 0. */
enum { ASKS_BEFORE_DEMAND = 64 };

static const int64_t BLOCKED_NS = 1000; /* a shorter wait did not block, and leaves no span */

struct host_event {
    struct event head;
    atomic_int references;
    pthread_mutex_t lock;              /* guards recorder, position and changes of signalled */
    pthread_cond_t changed;            /* signalled has changed */
    struct host_stream *recorder;      /* the stream of the most recent record */
    uint64_t position;                 /* commands of `recorder` up to and including that record */
    atomic_ullong recorded, signalled; /* number of records made, and of the last one reached */
    atomic_int asks;                   /* calls of event_done since the most recent record */
    struct sticky_error error;
};

/* The target of a wait: the most recent record when the wait was called. */
struct target {
    struct host_event *event;
    struct host_stream *recorder;
    uint64_t position; /* as in struct host_event */
    uint64_t number;   /* number of the record */
};

int host_event_create(struct device *device, struct event **out) {
    struct host_event *e = calloc(1, sizeof *e);
    if (!e) return fail(ERR_MEMORY, "out of host memory: an event of %s", device->name);
    e->head.ops = device->ops;
    e->head.device = device;
    e->references = 1;
    pthread_mutex_init(&e->lock, NULL);
    cond_open(&e->changed);
    *out = &e->head;
    return OK;
}

static void release(struct host_event *e) {
    if (atomic_fetch_sub(&e->references, 1) != 1) return;
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

void host_event_destroy(struct event *event) {
    release((struct host_event *)event);
}

static int reached(struct host_event *e, uint64_t number) {
    return atomic_load_explicit(&e->signalled, memory_order_acquire) >= number;
}

/* ---- record ---- */

struct record {
    struct host_event *event;
    struct host_stream *stream;
    uint64_t number;
};

static int run_record(void *args) {
    struct record *r = args;
    struct host_event *e = r->event;
    int code = atomic_load_explicit(&r->stream->error.code, memory_order_acquire);
    if (code) sticky_set(&e->error, code, r->stream->error.text);
    pthread_mutex_lock(&e->lock);
    if (!reached(e, r->number))
        atomic_store_explicit(&e->signalled, r->number, memory_order_release);
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    release(e);
    return OK;
}

int host_event_record(struct event *event, struct stream *stream) {
    struct host_event *e = (struct host_event *)event;
    struct host_stream *s = (struct host_stream *)stream;
    struct command c;
    struct record *r = (struct record *)c.args;
    uint64_t position = s->policy == POLICY_INLINE ? 0 : host_next_position(s);
    pthread_mutex_lock(&e->lock);
    if (e->recorder != s && !reached(e, e->recorded)) {
        pthread_mutex_unlock(&e->lock);
        return fail(ERR_FAILED,
                    "event of %s: recorded on two streams at once: use an event for each",
                    stream->device->name);
    }
    e->recorder = s;
    e->position = position;
    e->asks = 0;
    *r = (struct record){e, s, ++e->recorded};
    pthread_mutex_unlock(&e->lock);
    atomic_fetch_add(&e->references, 1);
    c.function = run_record;
    c.control = 1;
    return host_submit(s, &c, sizeof *r);
}

/* ---- wait ---- */

static struct target latest(struct host_event *e) {
    pthread_mutex_lock(&e->lock);
    struct target t = {e, e->recorder, e->position, e->recorded};
    pthread_mutex_unlock(&e->lock);
    return t;
}

/* Blocks until the target is reached, and returns the event's error. `waiter` is the device whose
 * timeout and interruption count; `closing`, which may be NULL, ends the wait early when it becomes
 * 1; `who` is for the message. */
static int wait_for(const struct target *t, const struct device *waiter, const char *who,
                    const atomic_int *closing) {
    struct host_event *e = t->event;
    double timeout_s = waiter->config.timeout_s;
    if (!reached(e, t->number)) {
        int64_t deadline = deadline_after(timeout_s);
        int interrupted = OK;
        host_demand(t->recorder, t->position);
        pthread_mutex_lock(&e->lock);
        while (!reached(e, t->number) && !(closing && *closing)) {
            int64_t now = now_ns(), look = now + HOST_POLL_NS;
            if (now >= deadline || (interrupted = device_interrupted(waiter))) break;
            cond_wait_until(&e->changed, &e->lock, look < deadline ? look : deadline);
        }
        pthread_mutex_unlock(&e->lock);
        if (!reached(e, t->number)) {
            if (interrupted) return interrupted;
            if (closing && *closing)
                return fail(ERR_FAILED, "%s: closed while it waited for an event", who);
            return fail(ERR_TIMEOUT,
                        "%s: waited %g s for an event of stream %s of %s: a device or a peer may "
                        "be stuck: see the first error, or " ADVICE_TIMEOUT,
                        who, timeout_s, lane_name(t->recorder->head.lane),
                        t->recorder->head.device->name);
        }
    }
    return sticky_get(&e->error);
}

struct wait {
    struct target target;
    struct host_stream *stream;
    struct span facts;
};

static int run_wait(void *args) {
    struct wait *w = args;
    struct host_stream *s = w->stream;
    const struct device *device = s->head.device;
    int code = OK;
    if (atomic_load_explicit(&s->error.code, memory_order_relaxed) == OK) {
        char who[64];
        snprintf(who, sizeof who, "stream %s of %s", lane_name(s->head.lane), device->name);
        w->facts.start_ns = now_ns();
        code = wait_for(&w->target, device, who, &s->closing);
        w->facts.end_ns = now_ns();
        if (w->facts.end_ns - w->facts.start_ns > BLOCKED_NS) span_add(&s->head.spans, &w->facts);
    }
    release(w->target.event);
    return code;
}

int host_event_wait(struct stream *stream, struct event *event) {
    struct host_event *e = (struct host_event *)event;
    struct host_stream *s = (struct host_stream *)stream;
    CHECK(sticky_get(&s->error));
    if (reached(e, e->recorded) && e->error.code == OK)
        return OK; /* nothing to wait for: nothing to enqueue */
    struct command c;
    struct wait *w = (struct wait *)c.args;
    w->target = latest(e);
    w->stream = s;
    stream_facts(&s->head, "wait", 0, &w->facts);
    w->facts.waiting = 1;
    atomic_fetch_add(&e->references, 1);
    c.function = run_wait;
    c.control = 1;
    return host_submit(s, &c, sizeof *w);
}

int host_event_sync(struct event *event) {
    struct host_event *e = (struct host_event *)event;
    if (reached(e, e->recorded)) return sticky_get(&e->error);
    struct target t = latest(e);
    return wait_for(&t, e->head.device, "event sync", NULL);
}

int host_event_done(struct event *event) {
    struct host_event *e = (struct host_event *)event;
    if (reached(e, e->recorded)) return 1;
    if (atomic_fetch_add(&e->asks, 1) + 1 >= ASKS_BEFORE_DEMAND) {
        struct target t = latest(e);
        host_demand(t.recorder, t.position);
    }
    return 0;
}
