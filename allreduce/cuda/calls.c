/* Calls under way on a GPU's stream, seen from the host.
 *
 * How far ahead. A launch into a stream whose queue is full blocks inside the driver, where no
 * deadline is, and the queue does not empty while the stream waits for a rank that never comes.
 * So the host is kept a few steps ahead at most: before more is enqueued it waits here, where it
 * can be interrupted.
 *
 * Who is waited for. A stream that stands still says nothing, and CUDA knows of no peers. So
 * while the host waits for its device it looks after the oldest call now and then: has the
 * stream come to it, and which is the first wait of the plan whose flag has not come? comm/ then
 * judges that wait as it does a host's: abort, a peer that left, the deadline, in the same
 * words.
 *
 * Letting go. After a failure the own flags are written to a value that satisfies every wait,
 * from the side; kernels that wait are told to end. Then the streams run empty; what they
 * compute is worth nothing. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allreduce/cuda/executor.h"
#include "base/clock.h"
#include "device/cuda/value.h"

enum { STEPS_AHEAD = 2, OPERATIONS_A_MARK = 128 };
/* as often as a sleeping host looks (comm/wait.c) */
static const int64_t LOOK_NS = 50 * 1000000;
/* what a copy of some flags may take; what the streams need to end, */
static const double READ_S = 0.1, DRAIN_S = 1.5;
static const double LET_GO_AGAIN_S = 0.05; /* let go so often */

static struct cuda_call *call_at(struct cuda_calls *c, uint64_t number) {
    return &c->call[number % CUDA_CALLS];
}

/* An event or, if that is NULL, a stream. A broken context counts as done: its error comes from
 * the stream. */
static int is_done(cudaEvent_t event, cudaStream_t stream) {
    cudaError_t state = event ? cudaEventQuery(event) : cudaStreamQuery(stream);
    if (state != cudaSuccess) cudaGetLastError(); /* else who asks behind a launch would find it */
    return state != cudaErrorNotReady;
}

/* Not cuda_poll: nobody shall be asked here whether to go on. */
static int is_done_within(cudaStream_t stream, double seconds) {
    int64_t deadline = deadline_after(seconds);
    while (!is_done(NULL, stream)) {
        struct timespec pause = {0, 20000};
        if (now_ns() >= deadline) return 0;
        nanosleep(&pause, NULL);
    }
    return 1;
}

static void retire(struct cuda_calls *c) {
    while (c->oldest < c->next && call_at(c, c->oldest)->complete &&
           is_done(call_at(c, c->oldest)->ended, NULL))
        c->oldest++;
}

int cuda_calls_fail(struct executor *e, int code) {
    struct cuda_stream *s = e->stream;
    if (!s || s->error) return code;
    strncpy(s->error_text, error_message(), sizeof s->error_text - 1);
    return s->error = code;
}

/* ---- looking after a wait ---- */

/* 0: they could not be read now; the next look tries again. Somebody who holds the lock may be
 * the one who asks. */
static int read_flags(struct executor *e) {
    struct cuda_device *d = e->device;
    size_t bytes = (size_t)PLAN_FLAG_KINDS * (size_t)e->ranks->n * sizeof(struct cuda_flag);
    if (pthread_mutex_trylock(&d->service_lock)) return 0;
    int done = is_done(NULL, d->service) && cudaSetDevice(d->gpu) == cudaSuccess &&
               cudaMemcpyAsync(e->calls.seen, cuda_flags_of(e, e->ranks->rank), bytes,
                               cudaMemcpyDeviceToHost, d->service) == cudaSuccess &&
               is_done_within(d->service, READ_S);
    cudaGetLastError();
    pthread_mutex_unlock(&d->service_lock);
    return done;
}

/* The first wait of the call that is not satisfied: its step, and in *peer for whom; -1: none. */
static int first_missing(const struct executor *e, const struct cuda_call *call, int *peer) {
    const struct plan *plan = call->plan;
    for (int i = 0; i < plan->step_count; i++) {
        const struct plan_step *s = &plan->steps[i];
        for (*peer = 0; *peer < plan->n; ++*peer) {
            if (!(s->wait_ranks >> *peer & 1)) continue;
            uint64_t seen = e->calls.seen[cuda_flag_at(plan->n, 0, s->wait_kind, *peer)].epoch;
            if (!cuda_flag_reached(seen, call->base + s->wait_epoch)) return i;
        }
    }
    *peer = -1;
    return -1;
}

static int look_after_peers(struct executor *e) {
    struct cuda_calls *c = &e->calls;
    struct comm *comm = e->ranks->comm;
    int failed = comm_check(comm) != OK, peer;
    if (!failed && now_ns() - c->looked_ns < LOOK_NS) return OK;
    c->looked_ns = now_ns();
    retire(c);
    struct cuda_call *call = call_at(c, c->oldest);
    if (c->oldest == c->next || !is_done(call->begun, NULL) || !read_flags(e)) return OK;
    int step = first_missing(e, call, &peer);
    if (peer < 0 || c->waiting_peer != peer || c->waiting_step != step ||
        c->waiting_call != c->oldest) {
        struct comm_wait_reason reason = {"allreduce", call->bucket, call->step, peer};
        comm_distant_begin(comm, &c->wait, &reason);
        c->waiting_call = c->oldest;
        c->waiting_step = step;
        c->waiting_peer = peer;
    }
    return peer < 0 ? OK : comm_distant_look(comm, &c->wait);
}

static struct executor *executor_of(struct cuda_watch *watch) {
    return (struct executor *)((char *)watch - offsetof(struct executor, calls.watch));
}

static int look(struct cuda_watch *watch, int waiting) {
    struct executor *e = executor_of(watch);
    int code = e->spin ? cuda_spin_look(e) : OK;
    if (!code && waiting && e->ranks->comm) code = look_after_peers(e);
    return code ? cuda_calls_fail(e, code) : OK;
}

/* ---- letting go ---- */

static void release_watch(struct cuda_watch *watch) {
    struct executor *e = executor_of(watch);
    struct cuda_device *d = e->device;
    if (e->spin) cuda_spin_stop(e);
    if (e->spin || e->ranks->n == 1 || cudaSetDevice(d->gpu) != cudaSuccess) return;
    pthread_mutex_lock(&d->service_lock);
    struct cuda_flag *own = cuda_flags_of(e, e->ranks->rank);
    for (int i = 0; i < PLAN_FLAG_KINDS * e->ranks->n; i++)
        cuda_value_put(d, d->service, &own[i].epoch, CUDA_VALUE_RELEASE);
    pthread_mutex_unlock(&d->service_lock);
}

/* Again and again until the stream is empty: a peer whose stream also drains may still write its
 * own, lower epoch over a released flag. */
int cuda_calls_release(struct executor *e) {
    int64_t deadline = deadline_after(DRAIN_S);
    do {
        cuda_watch_release(e->device);
        e->stuck = e->stream && !is_done_within(e->stream->stream, LET_GO_AGAIN_S);
    } while (e->stuck && now_ns() < deadline);
    return !e->stuck;
}

/* ---- a call ---- */

/* The oldest call is waited for. */
static int wait_for_oldest(struct executor *e) {
    struct cuda_calls *c = &e->calls;
    cudaError_t state;
    uint64_t oldest = c->oldest;
    CHECK(cuda_poll(&e->device->head, call_at(c, oldest)->ended, NULL, &state));
    if (state == cudaErrorNotReady)
        return fail(ERR_TIMEOUT,
                    "allreduce on %s: a call is not done after %g s: the GPU may be stuck",
                    e->device->head.name, e->device->head.config.timeout_s);
    if (c->oldest == oldest) c->oldest++; /* else a look inside the poll has retired it */
    return OK;
}

static int is_far_ahead(struct cuda_calls *c, long step) {
    if (c->oldest == c->next) return 0;
    long oldest = call_at(c, c->oldest)->step;
    return c->next - c->oldest == CUDA_CALLS ||
           (step >= 0 && oldest >= 0 && step - oldest > STEPS_AHEAD);
}

int cuda_calls_begin(struct executor *e, struct cuda_stream *s, const struct executor_call *call) {
    struct cuda_calls *c = &e->calls;
    if (e->ranks->comm) CHECK(comm_check(e->ranks->comm));
    CHECK(cuda_watch_look(&e->device->head, 0));
    e->stream = s;
    retire(c);
    while (is_far_ahead(c, call->step))
        CHECK(wait_for_oldest(e));
    struct cuda_call *next = call_at(c, c->next);
    CUDA_STREAM_CHECK(s, cudaEventRecord(next->begun, s->stream), "allreduce");
    next->complete = 0;
    next->plan = call->plan;
    next->base = call->base;
    next->bucket = call->bucket;
    next->step = call->step;
    c->next++;
    return OK;
}

int cuda_calls_mark(struct executor *e, struct cuda_stream *s, int operations) {
    struct cuda_calls *c = &e->calls;
    cudaError_t state;
    if ((c->since_mark += operations) < OPERATIONS_A_MARK) return OK;
    c->since_mark = 0;
    CUDA_STREAM_CHECK(s, cudaEventRecord(c->mark[c->marks++ % CUDA_MARKS], s->stream), "allreduce");
    if (c->marks < CUDA_MARKS) return OK;
    /* the oldest */
    CHECK(cuda_poll(&e->device->head, c->mark[c->marks % CUDA_MARKS], NULL, &state));
    if (state == cudaErrorNotReady)
        return fail(ERR_TIMEOUT, "allreduce on %s: not done after %g s: the GPU may be stuck",
                    e->device->head.name, e->device->head.config.timeout_s);
    return OK;
}

int cuda_calls_end(struct executor *e, struct cuda_stream *s) {
    struct cuda_call *call = call_at(&e->calls, e->calls.next - 1);
    CUDA_STREAM_CHECK(s, cudaEventRecord(call->ended, s->stream), "allreduce");
    call->complete = 1;
    return OK;
}

/* ---- life ---- */

static int new_event(struct executor *e, cudaEvent_t *event) {
    CUDA_CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "an event",
               e->device->head.name);
    return OK;
}

int cuda_calls_open(struct executor *e) {
    struct cuda_calls *c = &e->calls;
    void *seen;
    size_t bytes = (size_t)PLAN_FLAG_KINDS * (size_t)e->ranks->n * sizeof(struct cuda_flag);
    for (int i = 0; i < CUDA_CALLS; i++) {
        CHECK(new_event(e, &c->call[i].begun));
        CHECK(new_event(e, &c->call[i].ended));
    }
    for (int i = 0; i < CUDA_MARKS; i++)
        CHECK(new_event(e, &c->mark[i]));
    CHECK(device_host_alloc(&e->device->head, &seen, bytes));
    c->seen = seen;
    c->waiting_peer = -1;
    return OK;
}

void cuda_calls_watch(struct executor *e) {
    e->calls.watch.look = look;
    e->calls.watch.release = release_watch;
    cuda_watch_add(e->device, &e->calls.watch);
}

void cuda_calls_unwatch(struct executor *e) {
    if (e->calls.watch.look) cuda_watch_remove(e->device, &e->calls.watch);
    e->calls.watch.look = NULL;
}

void cuda_calls_close(struct executor *e) {
    struct cuda_calls *c = &e->calls;
    cuda_calls_unwatch(e);
    /* which may wait for the GPU */
    if (c->seen && !e->stuck) device_host_free(&e->device->head, c->seen);
    for (int i = 0; i < CUDA_CALLS; i++) {
        if (c->call[i].begun) cudaEventDestroy(c->call[i].begun);
        if (c->call[i].ended) cudaEventDestroy(c->call[i].ended);
    }
    for (int i = 0; i < CUDA_MARKS; i++)
        if (c->mark[i]) cudaEventDestroy(c->mark[i]);
}
