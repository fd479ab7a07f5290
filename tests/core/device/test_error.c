/* Failures in device/. An error stays in its stream with its message and reaches every waiter, a
 * wait ends at its deadline, and a close does not wait for queued work. */
#include <pthread.h>

#include "device/host/host.h"
#include "tests/core/device/shared.h"

static int break_down(void *args) {
    return fail(ERR_PEER, "rank %d broke down", *(int *)args);
}

Test(error, stays_in_its_stream_with_its_text, .timeout = 30) {
    for (int k = 0; k < HOST_KINDS; k++) {
        struct device *d = test_open(host_kinds[k], 0), *other = test_open(host_kinds[k], 1);
        struct stream *s = device_comm(d);
        float *x = test_floats(d, 4), *y = test_floats(other, 4);
        struct event *before, *after;
        int rank = 3, ran = 0;
        MUST(event_create(d, &before));
        MUST(event_create(d, &after));
        MUST(event_record(before, s));
        MUST(event_sync(before));
        /* the error may be known already, or not yet */
        stream_call_host(s, "breaks", 0, break_down, &rank, sizeof rank);
        call_count_up(s, &ran);
        event_record(after, s);
        cr_assert_eq(event_sync(after), ERR_PEER, "nobody hangs on a broken stream");
        cr_assert_str_eq(error_message(), "rank 3 broke down");
        cr_assert_eq(ran, 0, "what came after the error was run");
        fail(ERR_FAILED, "something else");
        cr_assert_eq(test_fill(s, x, 4, 1), ERR_PEER);
        MUST_SAY("rank 3 broke down");
        fail(ERR_FAILED, "something else");
        cr_assert_eq(stream_sync(s), ERR_PEER);
        MUST_SAY("rank 3 broke down");
        cr_assert_eq(copy_to_device(s, x, &rank, 4), ERR_PEER);
        cr_assert_eq(stream_write(s, x, &rank, 4), ERR_PEER);
        cr_assert_eq(stream_wait(s, before), ERR_PEER);
        cr_assert_eq(event_record(before, s), ERR_PEER);
        cr_assert_eq(event_sync(before), ERR_PEER);
        cr_assert_eq(event_done(before), 1);
        MUST(test_fill(device_compute(d), x, 4, 1)); /* the other stream still works */
        MUST(stream_sync(device_compute(d)));

        /* a stream that waits for a failed one fails with it */
        stream_wait(device_compute(other), after);
        test_fill(device_compute(other), y, 4, 1);
        cr_assert_eq(stream_sync(device_compute(other)), ERR_PEER);
        MUST_SAY("rank 3 broke down");
        event_destroy(before);
        event_destroy(after);
        device_close(other);
        device_close(d);
    }
}

Test(error, waits_end_at_the_deadline_and_say_where, .timeout = 30) {
    for (int k = 0; k < HOST_KINDS; k++) {
        struct device_config config = test_config(host_kinds[k], 2);
        struct device *d, *patient = test_open(host_kinds[k], 1);
        struct gate gate = {0};
        struct event *event;
        config.timeout_s = 0.05;
        MUST(device_open(&d, &config));
        MUST(event_create(d, &event));
        MUST(block(device_comm(d), &gate));
        MUST(event_record(event, device_comm(d)));
        cr_assert_eq(event_sync(event), ERR_TIMEOUT);
        MUST_SAY("event sync: waited 0.05 s for an event of stream comm of cpu(2)");
        cr_assert_eq(stream_sync(device_comm(d)), ERR_TIMEOUT);
        MUST_SAY("stream comm of cpu(2)");
        stream_wait(device_compute(d), event);
        cr_assert_eq(stream_sync(device_compute(d)), ERR_TIMEOUT);
        MUST_SAY("of cpu(2)");
        gate.open = 1;
        stream_wait(device_compute(patient), event);
        cr_assert_eq(stream_sync(device_compute(patient)), OK, "%s", error_message());
        event_destroy(event);
        device_close(patient);
        device_close(d);
    }
}

/* A job that is being ended: from the second call on the answer is an error. */
struct end_of_job {
    atomic_int looks, begins_at;
};
static int job_ended(void *context) {
    struct end_of_job *job = context;
    if (atomic_fetch_add(&job->looks, 1) < job->begins_at) return OK;
    return fail(ERR_PEER, "rank 1: it fell over");
}

Test(error, a_wait_ends_with_the_job_and_its_words, .timeout = 30) {
    for (int k = 0; k < HOST_KINDS; k++) {
        struct device_config config = test_config(host_kinds[k], 0);
        struct end_of_job job = {.begins_at = 2};
        struct gate gate = {0};
        struct event *event;
        struct device *d;
        config.interrupted = job_ended, config.interrupt_context = &job;
        MUST(device_open(&d, &config));
        MUST(event_create(d, &event));
        MUST(block(device_comm(d), &gate));
        MUST(event_record(event, device_comm(d)));
        int64_t begun = now_ns();
        cr_assert_eq(stream_sync(device_comm(d)), ERR_PEER);
        cr_assert_str_eq(error_message(), "rank 1: it fell over");
        cr_assert_eq(job.looks, 3, "asked %d times: at each pause of a wait", job.looks);
        fail(ERR_FAILED, "something else");
        cr_assert_eq(event_sync(event), ERR_PEER);
        MUST_SAY("rank 1: it fell over");
        /* a waiting stream ends too, and keeps the error */
        stream_wait(device_compute(d), event);
        cr_assert_eq(stream_sync(device_compute(d)), ERR_PEER);
        MUST_SAY("rank 1: it fell over");
        cr_assert_lt(now_ns() - begun, 5000000000,
                     "long before the 20 s that any of them may last");
        gate.open = 1;
        job.begins_at = 1 << 30;
        MUST(stream_sync(device_comm(d))); /* the stream had no error of its own */
        event_destroy(event);
        device_close(d);
    }
}

static void *open_in_a_moment(void *gate) {
    usleep(200000);
    ((struct gate *)gate)->open = 1;
    return NULL;
}

/* A caller whose sync is interrupted frees the memory that the stream uses, so sync still waits a
 * moment for the command that runs. */
Test(error, what_runs_as_the_job_ends_is_waited_for, .timeout = 30) {
    for (int k = 0; k < HOST_KINDS; k++) {
        struct device_config config = test_config(host_kinds[k], 0);
        struct end_of_job job = {.begins_at = 0};
        struct gate gate = {0};
        struct device *d;
        pthread_t thread;
        int ran = 0;
        config.interrupted = job_ended, config.interrupt_context = &job;
        MUST(device_open(&d, &config));
        MUST(block(device_comm(d), &gate));
        MUST(call_count_up(device_comm(d), &ran));
        pthread_create(&thread, NULL, open_in_a_moment, &gate);
        cr_assert_eq(stream_sync(device_comm(d)), ERR_PEER);
        cr_assert_eq(ran, 1, "it was still at work");
        pthread_join(thread, NULL);
        device_close(d);
    }
}

Test(error, who_need_not_wait_is_not_interrupted, .timeout = 30) {
    struct device_config config = test_config(DEVICE_HOST, 0);
    struct end_of_job job = {.begins_at = 0};
    struct device *d;
    config.interrupted = job_ended, config.interrupt_context = &job;
    MUST(device_open(&d, &config));
    MUST(test_fill(device_compute(d), test_floats(d, 4), 4, 1));
    MUST(stream_sync(device_compute(d)));
    MUST(stream_sync(device_comm(d)));
    cr_assert_eq(job.looks, 0);
    device_close(d);
}

/* Opens the gate once close has marked the stream; from then on queued commands must not run. */
struct opener {
    struct host_stream *stream;
    struct gate *gate;
};
static void *open_when_closing(void *argument) {
    struct opener *o = argument;
    while (atomic_load(&o->stream->error.code) == OK)
        usleep(100);
    o->gate->open = 1;
    return NULL;
}

Test(close, drops_what_is_queued, .timeout = 30) {
    for (int k = 0; k < HOST_KINDS; k++) {
        struct device *d = test_open(host_kinds[k], 0);
        struct gate gate = {0};
        struct opener opener = {(struct host_stream *)device_comm(d), &gate};
        struct event *event;
        pthread_t thread;
        int ran = 0;
        MUST(event_create(d, &event));
        MUST(block(device_comm(d), &gate));
        for (int i = 0; i < 3000; i++)
            MUST(call_count_up(device_comm(d), &ran));
        MUST(event_record(event, device_comm(d)));
        while (host_kinds[k] == DEVICE_HOST && !gate.entered)
            usleep(100);
        pthread_create(&thread, NULL, open_when_closing, &opener);
        if (host_kinds[k] ==
            DEVICE_HOST_LATE) { /* nothing blocks close on this kind: let the thread see it first */
            sticky_set(&opener.stream->error, ERR_FAILED, "closed by the test");
            pthread_join(thread, NULL);
        }
        device_close(d);
        if (host_kinds[k] == DEVICE_HOST) pthread_join(thread, NULL);
        cr_assert_eq(ran, 0, "%d commands ran while the device was being closed", ran);
        cr_assert_eq(event_done(event), 1, "a dropped record still signals");
        cr_assert_eq(event_sync(event), ERR_FAILED);
        MUST_SAY("closed");
        event_destroy(event);
    }
}

Test(close, does_not_wait_for_events_that_may_never_come, .timeout = 30) {
    for (int k = 0; k < HOST_KINDS; k++) {
        struct device *stuck = test_open(host_kinds[k], 0), *d = test_open(host_kinds[k], 1);
        struct gate gate = {0};
        struct event *never, *behind;
        MUST(event_create(stuck, &never));
        MUST(event_create(d, &behind));
        MUST(block(device_comm(stuck), &gate));
        MUST(event_record(never, device_comm(stuck)));
        MUST(stream_wait(device_comm(d), never));
        MUST(event_record(behind, device_comm(d)));
        while (!gate.entered)
            event_done(behind); /* on host-late this makes the stream run */
        device_close(
            /* the gate is still shut: only the early end of the wait lets this return within 20
             * s */
            d);
        cr_assert_eq(event_sync(behind), ERR_FAILED);
        gate.open = 1;
        MUST(event_sync(never));
        event_destroy(never);
        event_destroy(behind);
        device_close(stuck);
    }
}
