/* Recordings of a GPU's device layer, against the stand-in for the runtime (cuda_stand_in.h):
 * what is recorded, what is refused, and that whatever goes wrong nothing is kept and the
 * stream goes on. Needs CUDA's headers, no GPU. */
#include "tests/device/shared.h"

#ifdef HAVE_CUDA
#include "tests/stand_ins/cuda_stand_in.h"

/* y = 3, 3 more, event, a copy of y to z: what the tests record. */
struct sequence {
    struct device *device;
    float *y, *z;
    struct event *event;
};
static int enqueue_sequence(struct stream *s, const struct sequence *q) {
    CHECK(test_fill(s, q->z, 4, 3));
    CHECK(test_add(s, q->y, q->z, 4));
    CHECK(event_record(q->event, s));
    return copy_peer(s, q->device, q->z, q->device, q->y, 16);
}

static struct device *open_with(struct sequence *q) {
    stand_in_reset();
    struct device *d = open_one(0, 1);
    q->device = d;
    q->y = test_floats(d, 4), q->z = test_floats(d, 4);
    for (int i = 0; i < 4; i++)
        q->y[i] = q->z[i] = 1;
    MUST(event_create(d, &q->event));
    return d;
}

static struct recording *record(struct stream *s, const struct sequence *q) {
    struct recording *r;
    MUST(stream_record_begin(s));
    MUST(enqueue_sequence(s, q));
    MUST(stream_record_end(s, &r));
    cr_assert_not_null(r);
    return r;
}

static void close_all(struct device *d, struct sequence *q) {
    event_destroy(q->event);
    device_close(d);
    cr_assert_eq(stand_in_left(), 0, "%d things left", stand_in_left());
}

Test(record, takes_down_and_replays, .timeout = 30) {
    struct sequence q;
    struct device *d = open_with(&q);
    struct stream *s = device_compute(d);
    struct recording *r = record(s, &q);
    cr_assert(q.y[0] == 1 && q.z[0] == 1, "what is recorded does not run");
    cr_assert_eq(event_done(q.event), 1, "recorded by nobody yet");
    gpu.work_ns = 100000000;
    stream_set_phase(s, PHASE_FORWARD, 5);
    MUST(stream_replay(s, r, "forward"));
    cr_assert_eq(event_done(q.event), 0, "on its way");
    gpu.work_ns = 2000000;
    MUST(stream_wait(device_comm(d), q.event));
    MUST(stream_sync(device_comm(d)));
    cr_assert_eq(event_done(q.event), 1);
    MUST(stream_replay(s, r, "again"));
    MUST(stream_sync(s));
    cr_assert(q.y[3] == 7 && q.z[3] == 7, "%g %g", q.y[3], q.z[3]);
    const struct span_log *spans = stream_spans(s);
    cr_assert_eq(spans->count, 2, "a replay is one span, a recording none");
    cr_assert_str_eq(spans->spans[0].name, "forward");
    cr_assert(spans->spans[0].phase == PHASE_FORWARD && spans->spans[0].step == 5);
    cr_assert_eq(spans->spans[0].flops, 4, "the add's");
    cr_assert_gt(spans->spans[0].end_ns - spans->spans[0].start_ns, 299900000,
                 "three pieces of work");
    MUST(enqueue_sequence(s, &q)); /* the stream launches as before, */
    MUST(stream_sync(s));
    cr_assert_eq(q.z[3], 10);
    cr_assert_eq(stream_spans(s)->count, 5);
    gpu.work_ns = 50000000;
    int64_t begun = now_ns();
    MUST(stream_replay(s, r, "forward"));
    recording_free(r);
    cr_assert_geq(now_ns() - begun, 3 * gpu.work_ns, "freed while it ran");
    recording_free(NULL);
    close_all(d, &q);
}

/* Each call that has no place in a recording, with the word its refusal must hold. */
static int forbidden(int i, struct device *d, struct device *other, const struct sequence *q,
                     struct recording *old, const char **word) {
    struct stream *s = device_compute(d);
    float host[4] = {0};
    int count = 0, *counter = &count;
    void *memory;
    switch (i) {
    case 0: return *word = "sync", stream_sync(s);
    case 1: return *word = "sync", stream_sync(device_comm(d));
    case 2: return *word = "event sync", event_sync(q->event);
    case 3: return *word = "wait", stream_wait(s, q->event);
    case 4: return *word = "write", stream_write(s, q->y, host, 4);
    case 5: return *word = "copy to device", copy_to_device(s, q->y, host, 4);
    case 6: return *word = "copy to host", copy_to_host(s, host, q->y, 4);
    case 7: return *word = "copy between devices", copy_peer(s, other, q->y, d, q->z, 4);
    case 8: return *word = "copy between devices", copy_peer(s, d, q->y, other, q->z, 4);
    case 9: return *word = "copy imported", copy_imported(s, q->y, q->z, 1, 4);
    case 10: return *word = "allocation", device_alloc(d, &memory, 4, MEM_INPUT);
    case 11: return *word = "allocation of host memory", device_host_alloc(d, &memory, 4);
    case 12: return *word = "old one", stream_replay(s, old, "old one");
    case 13: return *word = "recording", stream_record_begin(s);
    case 14:
        return *word = "count", stream_call_host(s, "count", 0, count_up, &counter, sizeof counter);
    default: return *word = NULL, OK;
    }
}

Test(record, what_cannot_be_part_is_refused_by_name_and_nothing_is_kept, .timeout = 60) {
    struct sequence q;
    struct device *d = open_with(&q), *other = open_one(1, 2);
    struct stream *s = device_compute(d);
    struct recording *old = record(s, &q), *r;
    const char *word = "";
    MUST(event_record(q.event, s));
    int tried = 0;
    for (;; tried++) {
        char text[600];
        MUST(stream_record_begin(s));
        MUST(test_fill(s, q.y, 4, 3));
        int code = forbidden(tried, d, other, &q, old, &word);
        if (!word) break;
        cr_assert_eq(code, ERR_FAILED, "call %d was not refused", tried);
        MUST_SAY(word);
        MUST_SAY("cannot be part of a recording");
        cr_assert(!gpu.capture->broken, "call %d got as far as CUDA", tried);
        snprintf(text, sizeof text, "%s", error_message());
        MUST(test_fill(s, q.y, 4, 3)); /* which a careless program goes on with */
        cr_assert_eq(stream_record_end(s, &r), ERR_FAILED, "call %d: the recording was kept",
                     tried);
        cr_assert_str_eq(error_message(), text, "the first error is the one that comes back");
        cr_assert_null(r);
        cr_assert_eq(q.y[0], 1);
        MUST(stream_sync(s)); /* usable again */
    }
    cr_assert_eq(tried, 15);
    cr_assert_eq(event_done(q.event), 0, "the question that would break it has an answer");
    MUST(stream_record_end(s, NULL));
    MUST(stream_replay(s, old, "old one"));
    MUST(stream_sync(s));
    cr_assert_eq(q.y[0], 4);
    recording_free(old);
    device_close(other);
    close_all(d, &q);
}

Test(record, a_launch_that_was_refused_leaves_no_hole, .timeout = 30) {
    struct sequence q;
    struct device *d = open_with(&q);
    struct stream *s = device_compute(d);
    struct recording *r;
    float outside[4];
    MUST(stream_record_begin(s));
    cr_assert_eq(test_fill(s, outside, 4, 1), ERR_FAILED);
    MUST(test_fill(s, q.y, 4, 2));
    cr_assert_eq(stream_record_end(s, &r), ERR_FAILED);
    MUST_SAY("fill on cuda(0)");
    cr_assert_null(r);
    MUST(stream_record_begin(s));
    cr_assert_eq(copy_peer(s, d, outside, d, q.y, 4), ERR_FAILED);
    cr_assert_eq(stream_record_end(s, &r), ERR_FAILED);
    MUST_SAY("copy peer");
    r = record(s, &q); /* the next one knows nothing of it */
    recording_free(r);
    close_all(d, &q);
}

Test(record, a_capture_broken_from_outside_says_where, .timeout = 30) {
    struct sequence q;
    struct device *d = open_with(&q);
    struct stream *s = device_compute(d);
    struct recording *r;
    void *memory;
    for (int seen_at_launch = 0; seen_at_launch < 2; seen_at_launch++) {
        MUST(stream_record_begin(s));
        MUST(test_fill(s, q.y, 4, 2));
        cr_assert_eq(cudaMalloc(&memory, 4), cudaErrorStreamCaptureUnsupported);
        if (seen_at_launch) {
            cr_assert_eq(test_scale(s, q.y, 4, 2), ERR_FAILED);
            MUST_SAY("scale, being recorded on cuda(0)");
        }
        cr_assert_eq(stream_record_end(s, &r), ERR_FAILED);
        MUST_SAY("it came behind fill");
        MUST_SAY("a call that cannot be recorded");
        cr_assert_null(r);
        MUST(test_fill(s, q.z, 4, 9)); /* no error stays in the stream */
        MUST(stream_sync(s));
        cr_assert(q.z[0] == 9 && q.y[0] == 1);
    }
    close_all(d, &q);
}

/* What still runs as a recording begins may fault then. Nothing of the recording has run, so it
 * is not to blame. */
Test(record, a_fault_of_what_ran_before_names_it_and_its_step, .timeout = 30) {
    struct sequence q;
    struct device *d = open_with(&q);
    struct stream *s = device_compute(d);
    stream_set_phase(s, PHASE_FORWARD, 17);
    MUST(test_fill(s, q.y, 4, 1));
    MUST(stream_record_begin(s));
    gpu.fault = cudaErrorIllegalAddress;
    cr_assert_eq(test_scale(s, q.y, 4, 2), ERR_FAILED);
    MUST_SAY("scale, being recorded on cuda(0): cudaErrorIllegalAddress");
    MUST_SAY("or a fault up to fill of step 17: it came behind the begin");
    gpu.fault = cudaSuccess;
    cr_assert_eq(stream_record_end(s, NULL), ERR_FAILED);
    close_all(d, &q);
}

Test(record, whatever_call_fails_nothing_is_left_and_the_stream_goes_on, .timeout = 60) {
    int failed = 0, recorded = 0;
    for (int k = 1; !recorded && k < 100; k++) {
        struct sequence q;
        struct device *d = open_with(&q);
        struct stream *s = device_compute(d);
        struct recording *r = NULL;
        gpu.fail_at = k;
        int code = stream_record_begin(s);
        if (!code) {
            code = enqueue_sequence(s, &q);
            CHECK_KEEP(stream_record_end(s, &r), code);
        }
        recorded = gpu.fail_at > 0; /* fewer calls than k: none failed */
        gpu.fail_at = 0;
        cr_assert_eq(!code, recorded, "call %d", k);
        cr_assert_eq(!r, !recorded, "call %d", k);
        cr_assert_null(gpu.capture);
        failed += !recorded;
        MUST(stream_sync(s));
        cr_assert_eq(q.y[0], 1);
        MUST(enqueue_sequence(s, &q));
        MUST(stream_sync(s));
        cr_assert_eq(q.y[0], 4, "call %d: %g", k, q.y[0]);
        recording_free(r);
        close_all(d, &q);
    }
    cr_assert(recorded);
    cr_assert_gt(failed, 10);
}

Test(record, a_fault_reaches_who_waits_for_a_recorded_event, .timeout = 30) {
    struct sequence q;
    struct device *d = open_with(&q);
    struct stream *s = device_compute(d);
    struct recording *r = record(s, &q);
    gpu.fault = cudaErrorIllegalAddress;
    cr_assert_eq(stream_replay(s, r, "forward"), ERR_FAILED);
    MUST_SAY("cudaErrorIllegalAddress");
    gpu.fault = cudaSuccess;
    cr_assert_eq(event_done(q.event), 1);
    fail(ERR_FAILED, "something else");
    cr_assert_eq(stream_wait(device_comm(d), q.event), ERR_FAILED);
    MUST_SAY("cudaErrorIllegalAddress");
    cr_assert_eq(stream_record_begin(s), ERR_FAILED, "a broken stream");
    MUST_SAY("cudaErrorIllegalAddress");
    recording_free(r);
    close_all(d, &q);
}

/* The caller's name may be gone when a fault shows. It is asked for in two places: the stream's
 * own sync, and that of an event recorded behind the work. */
Test(record, a_name_is_copied_by_the_call_that_takes_it, .timeout = 30) {
    for (int by_event = 0; by_event < 2; by_event++) {
        struct sequence q;
        struct device *d = open_with(&q);
        struct stream *s = device_compute(d);
        struct recording *r = record(s, &q);
        char name[] = "forward";
        stream_set_phase(s, PHASE_FORWARD, 3);
        MUST(stream_replay(s, r, name));
        MUST(event_record(q.event, s));
        memset(name, '?', sizeof name - 1);
        gpu.fault = cudaErrorIllegalAddress;
        cr_assert_eq(by_event ? event_sync(q.event) : stream_sync(s), ERR_FAILED);
        MUST_SAY("forward of step 3;");
        gpu.fault = cudaSuccess;
        recording_free(r);
        close_all(d, &q);
    }
}

static void *end_it(void *stream) {
    struct recording *r;
    int code = stream_record_end(stream, &r);
    return (void *)(intptr_t)code;
}

Test(record, rules_of_use_are_checked, .timeout = 30) {
    struct sequence q;
    struct device *d = open_with(&q), *other = open_one(1, 2);
    struct stream *s = device_compute(d);
    struct recording *r;
    pthread_t thread;
    void *code;
    cr_assert_eq(stream_record_begin(device_comm(d)), ERR_FAILED);
    MUST_SAY("compute");
    cr_assert_eq(stream_record_end(s, &r), ERR_FAILED);
    MUST_SAY("nothing is being recorded");
    MUST(stream_record_begin(s));
    pthread_create(&thread, NULL, end_it, s);
    pthread_join(thread, &code);
    cr_assert_eq((intptr_t)code, ERR_FAILED);
    MUST(stream_record_end(s, &r)); /* an empty one */
    MUST(stream_replay(s, r, "nothing"));
    cr_assert_eq(stream_replay(device_compute(other), r, "elsewhere"), ERR_FAILED);
    MUST_SAY("another stream");
    recording_free(r);
    MUST(stream_record_begin(s)); /* left open: close ends it */
    MUST(enqueue_sequence(s, &q));
    device_close(other);
    close_all(d, &q);
}

Test(record, two_events_one_twice, .timeout = 30) {
    struct sequence q;
    struct device *d = open_with(&q);
    struct stream *s = device_compute(d);
    struct event *second;
    struct recording *r;
    MUST(event_create(d, &second));
    MUST(stream_record_begin(s));
    MUST(event_record(q.event, s));
    MUST(event_record(second, s));
    MUST(event_record(q.event, s));
    MUST(stream_record_end(s, &r));
    cr_assert_eq(((struct cuda_recording *)r)->event_count, 2);
    MUST(stream_replay(s, r, "events"));
    MUST(stream_sync(s));
    recording_free(r);
    event_destroy(second);
    close_all(d, &q);
}
#else
Test(record, needs_the_headers_of_cuda, .timeout = 10) {
    cr_skip_test("no CUDA here: the files under test are not built");
}
#endif

Test(record, emulated_devices_cannot_and_say_so, .timeout = 30) {
    for (int k = 0; k < HOST_KINDS; k++) {
        struct device *d = test_open(host_kinds[k], 0);
        struct recording *r = (struct recording *)d;
        cr_assert_eq(device_can_record(d), 0);
        cr_assert_eq(stream_record_begin(device_compute(d)), ERR_FAILED);
        MUST_SAY("recording on cpu");
        cr_assert_eq(stream_record_end(device_compute(d), &r), ERR_FAILED);
        cr_assert_null(r);
        MUST(stream_sync(device_compute(d)));
        device_close(d);
    }
}
