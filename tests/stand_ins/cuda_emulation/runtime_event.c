/* Events. Each record gets a number at the call; when a stream reaches the record, `done` becomes
 * that number. A wait takes the number of the most recent record at its call and makes its stream
 * wait until `done` has reached it. An event that was never recorded has 0 for both. An event is
 * recorded on one stream at a time: of two pending records the older counts as done with the
 * newer. */
#include "tests/stand_ins/cuda_emulation/emulation.h"

#include <time.h>

static struct CUevent_st *_Atomic all_events; /* never freed, as streams */

static int64_t gpu_clock_ns(void) { /* a separate time axis, like a GPU's */
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + 7123456789;
}

void event_run_record(const struct item *item) {
    struct event_state *state = &item->u.event.event->state;
    unsigned done = atomic_load_explicit(&state->done, memory_order_relaxed),
             number = item->u.event.number;
    atomic_store_explicit(&state->at_ns, gpu_clock_ns(), memory_order_relaxed);
    while ((int)(number - done) > 0 &&
           !atomic_compare_exchange_weak_explicit(&state->done, &done, number, memory_order_release,
                                                  memory_order_relaxed)) {
    }
    word_wake(&state->done);
}

static int is_done(struct event_state *state, unsigned number) {
    return (int)(atomic_load_explicit(&state->done, memory_order_acquire) - number) >= 0;
}

static void wait_for(struct event_state *state, unsigned number, const struct gpu *gpu) {
    while (!is_done(state, number) && !gpu->fault) {
        unsigned done = atomic_load_explicit(&state->done, memory_order_acquire);
        if ((int)(done - number) < 0) word_wait(&state->done, done, 20000);
    }
}

void event_run_wait(const struct item *item, const struct gpu *gpu) {
    wait_for(&item->u.event.event->state, item->u.event.number, gpu);
}

static cudaEvent_t event_of(cudaEvent_t event) {
    if (!event || (uintptr_t)event % _Alignof(struct CUevent_st)) return NULL;
    return atomic_load_explicit(&event->magic, memory_order_relaxed) == EVENT_ALIVE ? event : NULL;
}

static cudaEvent_t new_event(unsigned flags) {
    cudaEvent_t e = calloc(1, sizeof *e);
    if (!e) return NULL;
    atomic_init(&e->magic, EVENT_ALIVE);
    e->gpu = current_gpu();
    e->flags = flags;
    return e;
}

static void list(cudaEvent_t e) {
    e->next_all = all_events;
    while (!atomic_compare_exchange_weak(&all_events, &e->next_all, e)) {
    }
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    ENTER(enter_gpu());
    unsigned known = cudaEventBlockingSync | cudaEventDisableTiming;
    if (!out || flags & ~known) return give(cudaErrorInvalidValue);
    cudaEvent_t e = new_event(flags);
    if (!e) return give(cudaErrorMemoryAllocation);
    list(e);
    *out = e;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out) {
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

/* Its struct stays, since queued work may still use it. */
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    ENTER(enter_driver());
    cudaEvent_t e = event_of(handle);
    if (!e) return give(cudaErrorInvalidResourceHandle);
    atomic_store(&e->magic, 0);
    return give(e->gpu->fault);
}

/* Numbers the record. NULL: out of memory. */
static struct item *event_record_item(cudaEvent_t e) {
    struct item *item = item_new(ITEM_RECORD, 0);
    if (!item) return NULL;
    item->u.event.event = e;
    item->u.event.number =
        atomic_fetch_add_explicit(&e->state.recorded, 1, memory_order_relaxed) + 1;
    return item;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
    ENTER(enter_gpu());
    cudaEvent_t e = event_of(handle);
    struct CUstream_st *s = stream_of(stream);
    if (!e || !s) return give(cudaErrorInvalidResourceHandle);
    /* "must be associated with the same device" */
    if (e->gpu != s->gpu) return give(cudaErrorInvalidResourceHandle);
    return give(stream_submit(s, event_record_item(e)));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned flags) {
    ENTER(enter_gpu());
    cudaEvent_t e = event_of(handle);
    struct CUstream_st *s = stream_of(stream);
    if (!e || !s) return give(cudaErrorInvalidResourceHandle);
    if (flags) return give(cudaErrorInvalidValue);
    struct item *item = item_new(ITEM_WAIT, 0);
    if (!item) return give(cudaErrorMemoryAllocation);
    item->u.event.event = e;
    item->u.event.number = atomic_load_explicit(&e->state.recorded, memory_order_relaxed);
    return give(stream_submit(s, item));
}

static cudaError_t look(cudaEvent_t handle, cudaEvent_t *out) {
    cudaError_t error = enter_uncounted();
    if (error != cudaSuccess) return error;
    *out = event_of(handle);
    if (!*out) return cudaErrorInvalidResourceHandle;
    return (cudaError_t)(*out)->gpu->fault;
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
    cudaEvent_t e;
    ENTER(look(handle, &e));
    if (!is_done(&e->state, atomic_load_explicit(&e->state.recorded, memory_order_relaxed)))
        return give(cudaErrorNotReady);
    return give(e->gpu->fault);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    cudaEvent_t e;
    ENTER(look(handle, &e));
    wait_for(&e->state, atomic_load_explicit(&e->state.recorded, memory_order_relaxed), e->gpu);
    return give(e->gpu->fault);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    cudaEvent_t both[2] = {event_of(start), event_of(end)};
    ENTER(enter_gpu());
    if (!ms) return give(cudaErrorInvalidValue);
    for (int i = 0; i < 2; i++)
        if (!both[i] || both[i]->flags & cudaEventDisableTiming || !both[i]->state.recorded)
            return give(cudaErrorInvalidResourceHandle);
    if (both[0]->gpu != both[1]->gpu) return give(cudaErrorInvalidResourceHandle);
    for (int i = 0; i < 2; i++)
        if (!is_done(&both[i]->state, both[i]->state.recorded)) return give(cudaErrorNotReady);
    *ms = (float)((double)(both[1]->state.at_ns - both[0]->state.at_ns) / 1e6);
    return cudaSuccess;
}
