/* The ring of calls in flight; under_way.h explains its purpose. */
#include "allreduce/cuda/under_way.h"

#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"

enum { STEPS_AHEAD = 2, OPERATIONS_A_MARK = 128 };
static const int64_t LOOK_NS = 50 * 1000000; /* between two polls, as in comm/wait.c */
static const double DRAIN_S = 1.5;           /* the time for a released stream to run empty */
static const double RELEASE_AGAIN_S = 0.05;  /* between two releases of a busy stream */
static const uint64_t NO_CALL = UINT64_MAX;

static struct cuda_call *call_at(struct cuda_calls *c, uint64_t number) {
    return &c->call[number % CUDA_CALLS];
}

/* Polls an event or, if that is NULL, a stream. A broken context counts as done: its error comes
 * from the stream. */
static int is_done(cudaEvent_t event, cudaStream_t stream) {
    cudaError_t state = event ? cudaEventQuery(event) : cudaStreamQuery(stream);
    if (state != cudaSuccess) cudaGetLastError(); /* otherwise the next launch would report it */
    return state != cudaErrorNotReady;
}

static void retire(struct cuda_calls *c) {
    while (c->oldest < c->next && call_at(c, c->oldest)->complete &&
           is_done(call_at(c, c->oldest)->ended, NULL))
        c->oldest++;
}

int cuda_calls_fail(struct cuda_calls *c, int code) {
    struct cuda_stream *s = c->stream;
    if (!s || s->error) return code;
    snprintf(s->error_text, sizeof s->error_text, "%s", error_message());
    return s->error = code;
}

/* ---- looking after the oldest call ---- */

/* No peer is waited for any more. */
static void forget(struct cuda_calls *c) {
    comm_distant_end(&c->wait);
    c->awaited.call = NO_CALL;
}

static int look_after_peer(struct cuda_calls *c) {
    struct comm *comm = c->ranks->comm;
    struct cuda_awaited *last = &c->awaited, now = {.call = c->oldest, .peer = -1};
    if (comm_check(comm) == OK && now_ns() - c->looked_ns < LOOK_NS) return OK;
    c->looked_ns = now_ns();
    retire(c);
    now.call = c->oldest;
    const struct cuda_call *call = call_at(c, c->oldest);
    if (c->oldest == c->next || !is_done(call->begun, NULL)) return forget(c), OK;
    switch (c->ops->awaited(c, call, &now)) {
    case CUDA_AWAITS_UNSEEN: return OK;
    case CUDA_AWAITS_NOBODY: forget(c); return OK;
    case CUDA_AWAITS_PEER: break;
    }
    if (last->call != now.call || last->step != now.step || last->peer != now.peer) {
        int sums = call->what == COLLECTIVE_ALL_REDUCE;
        struct comm_wait_reason reason = {.collective =
                                              sums ? "allreduce" : collective_name(call->what),
                                          .bucket = call->bucket,
                                          .step = call->step,
                                          .peer = now.peer};
        forget(c);
        comm_distant_begin(comm, &c->wait, &reason);
        *last = now;
    }
    return comm_distant_look(&c->wait);
}

static struct cuda_calls *calls_of(struct cuda_watch *watch) {
    return (struct cuda_calls *)((char *)watch - offsetof(struct cuda_calls, watch));
}

static int look(struct cuda_watch *watch, int waiting) {
    struct cuda_calls *c = calls_of(watch);
    int code = c->ops->look ? c->ops->look(c, waiting) : OK;
    if (c->ranks->comm && !waiting) comm_distant_end(&c->wait);
    if (!code && waiting && c->ranks->comm && c->ops->awaited) code = look_after_peer(c);
    return code ? cuda_calls_fail(c, code) : OK;
}

/* ---- release ---- */

static void release(struct cuda_watch *watch) {
    struct cuda_calls *c = calls_of(watch);
    c->ops->release(c);
}

/* Does not use cuda_poll, which would check whether to continue. */
static int is_empty(struct cuda_calls *c) {
    if (c->stream && !is_done(NULL, c->stream->stream)) return 0;
    return !c->ops->is_released || c->ops->is_released(c);
}

static int is_empty_within(struct cuda_calls *c, double seconds) {
    int64_t deadline = deadline_after(seconds);
    while (!is_empty(c)) {
        struct timespec pause = {0, 20000};
        if (now_ns() >= deadline) return 0;
        nanosleep(&pause, NULL);
    }
    return 1;
}

/* Again and again until the stream is empty: a peer whose stream also drains may still post its
 * own, lower epoch over a released flag. */
int cuda_calls_release(struct executor *executor) {
    struct cuda_calls *c = (struct cuda_calls *)executor;
    int64_t deadline = deadline_after(DRAIN_S);
    do {
        cuda_watch_release(c->device);
        c->stuck = !is_empty_within(c, RELEASE_AGAIN_S);
    } while (c->stuck && now_ns() < deadline);
    return !c->stuck;
}

int cuda_calls_drain(struct cuda_calls *c) {
    return is_empty_within(c, DRAIN_S);
}

/* ---- a call ---- */

static int wait_for_oldest(struct cuda_calls *c) {
    cudaError_t state;
    uint64_t oldest = c->oldest;
    CHECK(cuda_poll(&c->device->head, call_at(c, oldest)->ended, NULL, &state));
    if (state == cudaErrorNotReady)
        return fail(ERR_TIMEOUT,
                    "allreduce on %s: a call did not finish within %g s: the GPU may be stuck",
                    c->device->head.name, c->device->head.config.timeout_s);
    if (c->oldest == oldest) c->oldest++; /* the poll may have retired it already */
    return OK;
}

static int is_far_ahead(struct cuda_calls *c, long step) {
    if (c->oldest == c->next) return 0;
    long oldest = call_at(c, c->oldest)->step;
    return c->next - c->oldest == CUDA_CALLS ||
           (step >= 0 && oldest >= 0 && step - oldest > STEPS_AHEAD);
}

int cuda_calls_begin(struct cuda_calls *c, struct cuda_stream *s,
                     const struct executor_call *call) {
    c->stream = s;
    if (c->ranks->comm) CHECK(comm_check(c->ranks->comm));
    CHECK(cuda_watch_look(&c->device->head, 0));
    retire(c);
    while (is_far_ahead(c, call->step))
        CHECK(wait_for_oldest(c));
    struct cuda_call *next = call_at(c, c->next);
    CUDA_STREAM_CHECK(s, cudaEventRecord(next->begun, s->stream), "allreduce");
    next->complete = 0;
    next->plan = call->plan;
    next->base = call->base;
    next->what = call->what;
    next->bucket = call->bucket;
    next->step = call->step;
    c->next++;
    return OK;
}

int cuda_calls_mark(struct cuda_calls *c, struct cuda_stream *s, int operations) {
    cudaError_t state;
    if ((c->since_mark += operations) < OPERATIONS_A_MARK) return OK;
    c->since_mark = 0;
    CUDA_STREAM_CHECK(s, cudaEventRecord(c->mark[c->marks++ % CUDA_MARKS], s->stream), "allreduce");
    if (c->marks < CUDA_MARKS) return OK;
    cudaEvent_t oldest = c->mark[c->marks % CUDA_MARKS];
    CHECK(cuda_poll(&c->device->head, oldest, NULL, &state));
    if (state == cudaErrorNotReady)
        return fail(ERR_TIMEOUT,
                    "allreduce on %s: did not finish within %g s: the GPU may be stuck",
                    c->device->head.name, c->device->head.config.timeout_s);
    return OK;
}

int cuda_calls_end(struct cuda_calls *c, struct cuda_stream *s) {
    struct cuda_call *call = call_at(c, c->next - 1);
    CUDA_STREAM_CHECK(s, cudaEventRecord(call->ended, s->stream), "allreduce");
    call->complete = 1;
    return OK;
}

/* ---- life ---- */

static int new_event(struct cuda_calls *c, cudaEvent_t *event) {
    CUDA_CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "an event",
               c->device->head.name);
    return OK;
}

int cuda_calls_open(struct cuda_calls *c, const struct executor_ranks *ranks,
                    const struct cuda_calls_ops *ops) {
    c->ops = ops;
    c->ranks = ranks;
    c->device = (struct cuda_device *)ranks->device;
    c->awaited.call = NO_CALL;
    CHECK(cuda_use(ranks->device));
    for (int i = 0; i < CUDA_CALLS; i++) {
        CHECK(new_event(c, &c->call[i].begun));
        CHECK(new_event(c, &c->call[i].ended));
    }
    for (int i = 0; i < CUDA_MARKS; i++)
        CHECK(new_event(c, &c->mark[i]));
    return OK;
}

void cuda_calls_close(struct cuda_calls *c) {
    cuda_calls_unwatch(c);
    /* freeing may wait for the GPU */
    if (!c->stuck && c->device) device_host_free(&c->device->head, c->seen);
    for (int i = 0; i < CUDA_CALLS; i++) {
        if (c->call[i].begun) cudaEventDestroy(c->call[i].begun);
        if (c->call[i].ended) cudaEventDestroy(c->call[i].ended);
    }
    for (int i = 0; i < CUDA_MARKS; i++)
        if (c->mark[i]) cudaEventDestroy(c->mark[i]);
}

void cuda_calls_watch(struct cuda_calls *c) {
    c->watch.look = look;
    c->watch.release = release;
    cuda_watch_add(c->device, &c->watch);
}

void cuda_calls_unwatch(struct cuda_calls *c) {
    if (c->watch.look) cuda_watch_remove(c->device, &c->watch);
    if (c->watch.look && c->ranks->comm) comm_distant_end(&c->wait);
    c->watch.look = NULL;
}
