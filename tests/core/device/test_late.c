/* device/: host-late runs work only when something waits for it. So it exposes a program that reads
 * too early, and gives a correct program the bits of `host`. */
#include "tests/core/device/shared.h"

Test(late, nothing_happens_before_somebody_waits, .timeout = 30) {
    struct device *d = test_open(DEVICE_HOST_LATE, 0);
    struct stream *streams[2] = {device_compute(d), device_comm(d)};
    for (int i = 0; i < 2; i++) {
        int ran = 0;
        MUST(call_count_up(streams[i], &ran));
        usleep(20000); /* enough time for a thread to run it */
        cr_assert_eq(ran, 0, "stream %d ran without being asked", i);
        MUST(stream_sync(streams[i]));
        cr_assert_eq(ran, 1);
    }
    device_close(d);
}

Test(late, catches_the_program_that_reads_too_early, .timeout = 30) {
    for (int k = 0; k < HOST_KINDS; k++) {
        struct device *d = test_open(host_kinds[k], 0);
        struct event *copied;
        float *x = test_floats(d, 4), early[4], host[4] = {1, 2, 3, 4};
        MUST(event_create(d, &copied));
        MUST(test_fill(device_compute(d), x, 4, 7));
        MUST(stream_sync(device_compute(d)));
        MUST(copy_to_device(device_compute(d), x, host, 16));
        MUST(event_record(copied, device_compute(d)));
        /* too early: the copy may not have read it yet */
        host[0] = 99;
        /* and comm was not told to wait for compute */
        MUST(copy_to_host(device_comm(d), early, x, 16));
        MUST(stream_sync(device_comm(d)));
        MUST(event_sync(copied));
        if (host_kinds[k] == DEVICE_HOST) { /* on this kind the wrong program happens to work */
            cr_assert(early[0] == 1 && x[0] == 1);
        } else {
            cr_assert(early[0] == 7 && x[0] == 99, "the mistakes were not shown: %g, %g", early[0],
                      x[0]);
        }
        event_destroy(copied);
        device_close(d);
    }
}

Test(late, an_event_forces_what_is_before_it_and_no_more, .timeout = 30) {
    struct device *d = test_open(DEVICE_HOST_LATE, 0);
    struct stream *a = device_compute(d), *b = device_comm(d);
    int before = 0, after = 0, other_before = 0, other_after = 0;
    struct event *middle, *end;
    MUST(event_create(d, &middle));
    MUST(event_create(d, &end));
    MUST(call_count_up(a, &before));
    MUST(event_record(middle, a));
    MUST(call_count_up(a, &after));
    MUST(call_count_up(b, &other_before));
    MUST(stream_wait(b, middle)); /* b will demand it when it reaches this wait */
    MUST(event_record(end, b));
    MUST(call_count_up(b, &other_after));
    MUST(event_sync(end));
    usleep(20000);
    cr_assert(before == 1 && other_before == 1, "what the event needs was not run");
    cr_assert(after == 0 && other_after == 0, "more was run than the event needs");
    event_destroy(middle);
    event_destroy(end);
    device_close(d);
}

Test(late, whoever_polls_gets_there, .timeout = 30) {
    struct device *d = test_open(DEVICE_HOST_LATE, 0);
    struct event *event;
    int ran = 0, asked = 0;
    MUST(event_create(d, &event));
    for (int round = 0; round < 3; round++) {
        MUST(call_count_up(device_comm(d), &ran));
        MUST(event_record(event, device_comm(d)));
        for (int i = 0; i < 10; i++)
            cr_assert_eq(event_done(event), 0, "the first answers are no");
        for (asked = 0; !event_done(event); asked++)
            usleep(10);
        cr_assert_geq(asked, 10);
        cr_assert_eq(ran, round + 1);
    }
    event_destroy(event);
    device_close(d);
}

/* A small training step over two streams: fill, scale, send, add, with the events it needs. */
static void program(enum device_kind kind, float result[64]) {
    struct device *d = test_open(kind, 0);
    struct stream *compute = device_compute(d), *comm = device_comm(d);
    float *w = test_floats(d, 64), *g = test_floats(d, 64), *sum = test_floats(d, 64), host[64];
    struct event *ready, *reduced, *staged;
    MUST(event_create(d, &ready));
    MUST(event_create(d, &reduced));
    MUST(event_create(d, &staged));
    MUST(test_fill(compute, w, 64, 1));
    for (int step = 0; step < 50; step++) {
        MUST(event_sync(staged)); /* before the staging memory is written again */
        for (int i = 0; i < 64; i++)
            host[i] = (float)(step * 64 + i) / 1000;
        MUST(stream_wait(compute, reduced)); /* g and sum may be written again */
        MUST(copy_to_device(compute, g, host, sizeof host));
        MUST(event_record(staged, compute));
        MUST(test_add(compute, g, w, 64));
        MUST(event_record(ready, compute));
        MUST(stream_wait(comm, ready));
        MUST(copy_peer(comm, d, sum, d, g, sizeof host));
        MUST(test_scale(comm, sum, 64, -0.03f));
        MUST(event_record(reduced, comm));
        MUST(stream_wait(compute, reduced));
        MUST(test_add(compute, w, sum, 64));
    }
    MUST(copy_to_host(compute, result, w, 64 * sizeof *result));
    MUST(stream_sync(compute));
    event_destroy(ready);
    event_destroy(reduced);
    event_destroy(staged);
    device_close(d);
}

Test(late, the_right_program_has_the_same_bits, .timeout = 60) {
    float on_host[64], on_late[64];
    program(DEVICE_HOST, on_host);
    program(DEVICE_HOST_LATE, on_late);
    cr_assert_arr_eq(on_host, on_late, sizeof on_host);
    cr_assert(isfinite(on_host[63]) && on_host[63] != 1, "the program did nothing");
}
