/* Events of a GPU are CUDA's events with two additions: a deadline, and an error that travels with
 * the event.
 *
 * One thread may record an event and another may wait for it. The recording thread writes the
 * error: first the message, then `error` (release). A reader loads `error` first (acquire), so it
 * sees the whole message. */
#include <stdio.h>
#include <stdlib.h>

#include "base/advice.h"
#include "device/cuda/cuda.h"

struct cuda_event {
    struct event head;
    cudaEvent_t event;
    /* The stream of the most recent record. Only threads that record use it. */
    struct cuda_stream *recorder;
    /* The last work given to that stream, for a syncing thread that is the first to see a fault. It
     * may read this while the event is being recorded again: both hold the lock. */
    pthread_mutex_t lock;
    struct cuda_work behind;
    int error;
    char text[CUDA_ERROR_TEXT];
};

int cuda_event_create(struct device *device, struct event **out) {
    struct cuda_event *e = calloc(1, sizeof *e);
    if (!e) return fail(ERR_MEMORY, "out of host memory: an event of %s", device->name);
    e->head.ops = device->ops;
    e->head.device = device;
    cudaError_t error = cudaSetDevice(((struct cuda_device *)device)->gpu);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&e->event, cudaEventDisableTiming);
    if (error != cudaSuccess) {
        free(e);
        return cuda_fail(error, "an event", device->name);
    }
    pthread_mutex_init(&e->lock, NULL);
    *out = &e->head;
    return OK;
}

void cuda_event_destroy(struct event *event) {
    struct cuda_event *e = (struct cuda_event *)event;
    cudaEventDestroy(
        e->event); /* allowed after its device was closed: CUDA finishes pending work */
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static int event_error(struct cuda_event *e) {
    int code = __atomic_load_n(&e->error, __ATOMIC_ACQUIRE);
    return code ? fail(code, "%s", e->text) : OK;
}

/* All who wait for the event get this error; an earlier one stays. */
static void set_error(struct event *event, int code, const char *text) {
    struct cuda_event *e = (struct cuda_event *)event;
    if (e->error) return;
    snprintf(e->text, sizeof e->text, "%s", text);
    __atomic_store_n(&e->error, code, __ATOMIC_RELEASE);
}

int cuda_event_record(struct event *event, struct stream *stream) {
    struct cuda_event *e = (struct cuda_event *)event;
    struct cuda_stream *s = (struct cuda_stream *)stream;
    CHECK(cuda_use(stream->device));
    if (e->recorder && e->recorder != s && !cuda_event_done(event))
        return fail(ERR_FAILED,
                    "event of %s: recorded on two streams at once: use an event for each",
                    stream->device->name);
    e->recorder = s;
    pthread_mutex_lock(&e->lock);
    e->behind = s->last;
    pthread_mutex_unlock(&e->lock);
    cudaError_t error = cudaSuccess;
    if (!s->error) error = cudaEventRecord(e->event, s->stream);
    if (error != cudaSuccess) cuda_stream_fail(s, error, "record of an event");
    if (s->error) set_error(event, s->error, s->error_text);
    return cuda_stream_error(s);
}

int cuda_event_wait(struct stream *stream, struct event *event) {
    struct cuda_event *e = (struct cuda_event *)event;
    struct cuda_stream *s = (struct cuda_stream *)stream;
    CHECK(cuda_stream_error(s));
    int code = event_error(e);
    if (code) { /* This stream fails, too, so work that should have waited does not run. */
        snprintf(s->error_text, sizeof s->error_text, "%s", e->text);
        return s->error = code;
    }
    CUDA_STREAM_CHECK(s, cudaSetDevice(((struct cuda_device *)stream->device)->gpu), "wait");
    CHECK(cuda_span_begin(s, "wait", 0, 0, 1));
    CUDA_STREAM_CHECK(s, cudaStreamWaitEvent(s->stream, e->event, 0), "wait");
    return cuda_span_end(s);
}

int cuda_event_sync(struct event *event) {
    struct cuda_event *e = (struct cuda_event *)event;
    const struct device *device = e->head.device;
    CHECK(event_error(e));
    cudaError_t state;
    CHECK(cuda_poll(device, e->event, NULL, &state));
    if (state == cudaErrorNotReady)
        return fail(ERR_TIMEOUT,
                    "event sync: waited %g s for an event of %s: a device or a peer may be stuck; "
                    "see the first error, or " ADVICE_TIMEOUT,
                    device->config.timeout_s, device->name);
    if (state != cudaSuccess) {
        pthread_mutex_lock(&e->lock);
        struct cuda_work behind = e->behind;
        pthread_mutex_unlock(&e->lock);
        return cuda_sync_fail(device, state, &behind);
    }
    CHECK(cuda_watch_look(device, 0));
    return event_error(e);
}

int cuda_event_done(struct event *event) {
    struct cuda_event *e = (struct cuda_event *)event;
    if (__atomic_load_n(&e->error, __ATOMIC_ACQUIRE)) return 1;
    cudaError_t state = cudaEventQuery(e->event);
    if (state == cudaSuccess) return 1;
    cudaGetLastError();
    return state !=
           cudaErrorNotReady; /* a failed event counts as done: its sync returns the error */
}
