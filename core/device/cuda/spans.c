/* Measures spans of a GPU with events before and after each piece of work, which are read later.
 *
 * cuda_spans_harvest reads them at each sync and when the ring of open spans is full. The work is
 * then long done, so a steady step never waits for them. CUDA reports the time between two events
 * and no absolute time. The link to the host's clock is an anchor, an event on an idle stream that
 * passed between two readings of the host's clock (device/event_clock.h has the arithmetic).
 * CLOCK_MONOTONIC is one time axis for all processes of a machine, so once each device has its
 * anchor the spans of all ranks are aligned. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/cuda/cuda.h"

enum { RING_START = 512 };
/* Two events in a row are some 2 us apart, so a wait that took less than this did not block. */
static const float BLOCKED_MS = 0.005f;

int cuda_spans_anchor(struct cuda_stream *s) {
    struct cuda_device *d = (struct cuda_device *)s->head.device;
    struct cuda_spans *spans = &s->spans;
    int64_t before[CUDA_ANCHOR_TRIES], after[CUDA_ANCHOR_TRIES];
    cudaError_t error = cudaSuccess;
    int interrupted = OK;
    pthread_mutex_lock(&d->service_lock);
    for (int i = 0; i < CUDA_ANCHOR_TRIES && error == cudaSuccess && !interrupted; i++) {
        before[i] = now_ns();
        error = cudaEventRecord(spans->tries[i], d->service);
        if (error == cudaSuccess) interrupted = cuda_poll(&d->head, spans->tries[i], NULL, &error);
        after[i] = now_ns();
    }
    pthread_mutex_unlock(&d->service_lock);
    if (interrupted) return interrupted;
    CUDA_STREAM_CHECK(s, error, "aligning clocks");
    int best = event_clock_anchor(&spans->clock, before, after, CUDA_ANCHOR_TRIES);
    int64_t error_ns = (spans->clock.window_ns + 1) / 2;
    if (error_ns > s->head.clock_error_ns) s->head.clock_error_ns = error_ns;
    cudaEvent_t old = spans->anchor;
    spans->anchor = spans->tries[best];
    spans->tries[best] = old;
    return OK;
}

/* Doubles the ring. Old entries keep their events and their order; new entries get events. */
static int grow(struct cuda_stream *s) {
    struct cuda_spans *spans = &s->spans;
    size_t capacity = spans->capacity ? 2 * spans->capacity : RING_START, open = 0;
    struct cuda_pending *ring = calloc(capacity, sizeof *ring);
    if (!ring) return fail(ERR_MEMORY, "out of host memory: spans of %s", s->head.device->name);
    cudaError_t error = cudaSuccess;
    for (size_t i = spans->capacity; i < capacity && error == cudaSuccess; i++) {
        error = cudaEventCreate(&ring[i].start);
        if (error == cudaSuccess) error = cudaEventCreate(&ring[i].end);
    }
    for (uint64_t i = spans->harvested; open < spans->capacity; i++)
        ring[open++] = spans->pending[i % spans->capacity];
    free(spans->pending);
    spans->pending = ring;
    spans->begun -= spans->harvested;
    spans->harvested = 0;
    spans->capacity = capacity;
    CUDA_STREAM_CHECK(s, error, "events for spans");
    return OK;
}

int cuda_spans_open(struct cuda_stream *s) {
    if (!s->head.spans.on) return OK;
    CUDA_STREAM_CHECK(s, cudaEventCreate(&s->spans.anchor), "an event");
    for (int i = 0; i < CUDA_ANCHOR_TRIES; i++)
        CUDA_STREAM_CHECK(s, cudaEventCreate(&s->spans.tries[i]), "an event");
    CHECK(grow(s));
    return cuda_spans_anchor(s);
}

void cuda_spans_close(struct cuda_stream *s) {
    struct cuda_spans *spans = &s->spans;
    for (size_t i = 0; i < spans->capacity; i++) {
        if (spans->pending[i].start) cudaEventDestroy(spans->pending[i].start);
        if (spans->pending[i].end) cudaEventDestroy(spans->pending[i].end);
    }
    for (int i = 0; i < CUDA_ANCHOR_TRIES; i++)
        if (spans->tries[i]) cudaEventDestroy(spans->tries[i]);
    if (spans->anchor) cudaEventDestroy(spans->anchor);
    free(spans->pending);
    memset(spans, 0, sizeof *spans);
}

/* Reads the times of one finished span. */
static cudaError_t read_span_times(struct cuda_spans *spans, struct cuda_pending *p,
                                   float *length_ms) {
    float start_ms;
    cudaError_t error = cudaEventElapsedTime(&start_ms, spans->anchor, p->start);
    if (error == cudaSuccess) error = cudaEventElapsedTime(length_ms, p->start, p->end);
    if (error != cudaSuccess) return error;
    if (!p->facts.waiting || *length_ms > BLOCKED_MS)
        event_clock_span(&spans->clock, start_ms, *length_ms, &p->facts.start_ns, &p->facts.end_ns);
    return cudaSuccess;
}

int cuda_spans_harvest(struct cuda_stream *s) {
    struct cuda_spans *spans = &s->spans;
    for (; spans->harvested < spans->begun; spans->harvested++) {
        struct cuda_pending *p = &spans->pending[spans->harvested % spans->capacity];
        cudaError_t state = cudaEventQuery(p->end);
        float length_ms = 0;
        if (state == cudaErrorNotReady) {
            cudaGetLastError(); /* not an error: the oldest span's work is not done yet */
            return OK;
        }
        if (state == cudaSuccess) state = read_span_times(spans, p, &length_ms);
        CUDA_STREAM_CHECK(s, state, "reading spans");
        if (!p->facts.waiting || length_ms > BLOCKED_MS) span_add(&s->head.spans, &p->facts);
    }
    return OK;
}

static int is_timed(const struct cuda_stream *s) {
    return s->head.spans.on;
}

int cuda_span_begin(struct cuda_stream *s, const char *name, uint64_t bytes, double flops,
                    int waiting) {
    struct cuda_spans *spans = &s->spans;
    if (!is_timed(s)) return OK;
    if (spans->begun - spans->harvested == spans->capacity) {
        CHECK(cuda_spans_harvest(s));
        if (spans->begun - spans->harvested == spans->capacity) CHECK(grow(s));
    }
    struct cuda_pending *p = &spans->pending[spans->begun % spans->capacity];
    stream_facts(&s->head, name, bytes, &p->facts);
    p->facts.flops = flops;
    p->facts.waiting = (uint8_t)waiting;
    CUDA_STREAM_CHECK(s, cudaEventRecord(p->start, s->stream), name);
    return OK;
}

int cuda_span_end(struct cuda_stream *s) {
    struct cuda_spans *spans = &s->spans;
    if (!is_timed(s)) return OK;
    struct cuda_pending *p = &spans->pending[spans->begun % spans->capacity];
    CUDA_STREAM_CHECK(s, cudaEventRecord(p->end, s->stream), p->facts.name);
    spans->begun++;
    return OK;
}
