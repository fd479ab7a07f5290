/* device/: streams, events and copies. Most tests run on `host`, on `host-late`, and, if the CUDA
 * runtime is emulated, on `cuda`, since a correct program cannot tell them apart. Some need a host
 * function that blocks a stream, which a GPU lacks. */
#include <pthread.h>

#include "tests/core/device/shared.h"

Test(copy, moves_bytes_and_charges_each_link_once, .timeout = 30) {
    for (int k = 0; k < ALL_KINDS; k++) {
        struct device *a = test_open(all_kinds[k], 0), *b = test_open(all_kinds[k], 5);
        struct stream *s = device_compute(a);
        float *xa = test_floats(a, 1000), *ya = test_floats(a, 1000), *xb = test_floats(b, 1000);
        float source[1000], back[1000] = {0};
        for (int i = 0; i < 1000; i++)
            source[i] = (float)i;
        MUST(copy_to_device(s, xa, source, 4000));
        MUST(copy_peer(s, a, ya, a, xa, 4000)); /* local: free */
        MUST(copy_peer(s, b, xb, a, ya, 3000));
        MUST(copy_peer(s, a, xa, b, xb, 40)); /* a executes the copy, in either direction */
        MUST(copy_to_host(s, back, xa, 4000));
        MUST(copy_to_host(s, back, xa, 0));
        MUST(stream_sync(s));
        cr_assert_arr_eq(back, source, 4000);
        for (int from = 0; from < LINK_COUNT; from++)
            for (int to = 0; to < LINK_COUNT; to++) {
                uint64_t expected = from == LINK_HOST && to == 0   ? 4000
                                    : from == 0 && to == LINK_HOST ? 4000
                                    : from == 0 && to == 5         ? 3000
                                    : from == 5 && to == 0         ? 40
                                                                   : 0;
                cr_assert_eq(device_traffic(a)->bytes[from][to], expected, "%d -> %d", from, to);
                cr_assert_eq(device_traffic(b)->bytes[from][to], 0, "device 5 executed nothing");
            }
        cr_assert_eq(traffic_into(device_traffic(a), 0), 4040);
        cr_assert_eq(traffic_out_of(device_traffic(a), 0), 7000);
        traffic_add(device_traffic_mutable(a), 1, 0, 9);
        cr_assert_eq(traffic_into(device_traffic(a), 0), 4049);
        device_close(b);
        device_close(a);
    }
}

Test(write, takes_the_value_at_the_call, .timeout = 30) {
    for (int k = 0; k < ALL_KINDS; k++) {
        struct device *d = test_open(all_kinds[k], 0);
        void *memory;
        unsigned char value[257], back[256];
        MUST(device_alloc(d, &memory, 256, MEM_WORKSPACE));
        memset(value, 7, sizeof value);
        MUST(stream_write(device_compute(d), memory, value, 256));
        memset(value, 8, sizeof value);
        MUST(copy_to_host(device_compute(d), back, memory, 256));
        MUST(stream_sync(device_compute(d)));
        for (int i = 0; i < 256; i++)
            cr_assert_eq(back[i], 7);
        cr_assert_eq(stream_write(device_compute(d), memory, value, 257), ERR_FAILED);
        cr_assert_eq(device_traffic(d)->bytes[LINK_HOST][0], 256);
        device_close(d);
    }
}

Test(stream, runs_in_order_however_long_its_queue_grows, .timeout = 60) {
    enum { COUNT = 5000 };
    for (int k = 0; k < HOST_KINDS; k++) {
        struct device *d = test_open(host_kinds[k], 0);
        struct stream *s = device_comm(d);
        struct gate gate = {0};
        float *x = test_floats(d, 1), *one = test_floats(d, 1), result;
        double expected = 0;
        for (int i = 0; i < 40; i++)
            MUST(test_fill(s, one, 1, 1)); /* the oldest command is not at index 0 of the ring */
        MUST(stream_sync(s));
        MUST(block(s, &gate));
        MUST(test_fill(s, x, 1, 0));
        for (int i = 0; i < COUNT;
             i++) { /* x = (x + 1) * 0.5 now and then: the result shows the order */
            MUST(test_add(s, x, one, 1));
            if (i % 7 == 0) MUST(test_scale(s, x, 1, 0.5f));
            expected = (expected + 1) * (i % 7 == 0 ? 0.5 : 1);
        }
        gate.open = 1;
        MUST(copy_to_host(s, &result, x, sizeof result));
        MUST(stream_sync(s));
        cr_assert_float_eq(result, expected, 1e-4, "%g, not %g", result, expected);
        device_close(d);
    }
}

Test(stream, comm_runs_beside_the_caller, .timeout = 30) {
    struct device *d = test_open(DEVICE_HOST, 0);
    struct gate gate = {0};
    struct event *event;
    MUST(event_create(d, &event));
    cr_assert_eq(event_done(event), 1, "an event never recorded counts as done");
    MUST(event_sync(event));
    MUST(stream_wait(device_comm(d), event));
    MUST(block(device_comm(d), &gate));
    MUST(event_record(event, device_comm(d)));
    while (!gate.entered)
        usleep(100);
    cr_assert_eq(event_done(event), 0);
    gate.open = 1;
    MUST(event_sync(event));
    cr_assert_eq(event_done(event), 1);
    event_destroy(event);
    device_close(d);
}

Test(event, orders_streams_and_devices, .timeout = 60) {
    for (int k = 0; k < ALL_KINDS; k++) {
        struct device *d[2] = {test_open(all_kinds[k], 0), test_open(all_kinds[k], 1)};
        struct stream *s[4] = {device_compute(d[0]), device_comm(d[0]), device_compute(d[1]),
                               device_comm(d[1])};
        float *x[2] = {test_floats(d[0], 8), test_floats(d[1], 8)}, result[8];
        struct event *e[4];
        double expected = 1;
        for (int i = 0; i < 4; i++)
            MUST(event_create(d[i / 2], &e[i]));
        MUST(test_fill(s[0], x[0], 8, 1));
        for (int round = 0; round < 200; round++) {
            int i = round % 4, next = (round + 1) % 4; /* one bucket goes around all four streams */
            MUST(test_scale(s[i], x[i / 2], 8, round % 3 ? 1.5f : 0.5f));
            expected *= round % 3 ? 1.5 : 0.5;
            if (i / 2 != next / 2)
                MUST(copy_peer(s[i], d[next / 2], x[next / 2], d[i / 2], x[i / 2], 32));
            MUST(event_record(e[i], s[i]));
            MUST(stream_wait(s[next], e[i]));
        }
        MUST(copy_to_host(s[0], result, x[0], 32));
        MUST(stream_sync(s[0]));
        for (int i = 0; i < 8; i++)
            cr_assert_float_eq(result[i] / expected, 1, 1e-5, "%g, not %g", result[i], expected);
        for (int i = 0; i < 4; i++)
            event_destroy(e[i]);
        device_close(d[1]);
        device_close(d[0]);
    }
}

/* Two threads with a device each pass a value back and forth. Each waits only for events of the
 * other. */
struct player {
    struct device *own, *other;
    float *mine, *theirs;
    struct event *mine_done, *theirs_done;
    pthread_barrier_t *barrier;
    int first;
};

static void *play(void *argument) {
    struct player *p = argument;
    struct stream *s = device_comm(p->own);
    for (int round = 0; round < 100; round++) {
        if (round % 2 ==
            /* the other's half of the last round is recorded: wait for it, then work and send */
            p->first) {
            MUST(stream_wait(s, p->theirs_done));
            MUST(test_scale(s, p->mine, 4, round % 8 < 4 ? 2 : 0.5f));
            MUST(copy_peer(s, p->other, p->theirs, p->own, p->mine, 16));
            MUST(event_record(p->mine_done, s));
        }
        pthread_barrier_wait(
            p->barrier); /* this says that the event is recorded, not that the work is done */
    }
    MUST(event_sync(p->theirs_done)); /* both threads demand the chain from its two ends at once */
    return NULL;
}

Test(event, two_threads_may_wait_for_each_other, .timeout = 60) {
    for (int k = 0; k < ALL_KINDS; k++) {
        struct device *d[2] = {test_open(all_kinds[k], 0), test_open(all_kinds[k], 1)};
        float *x[2] = {test_floats(d[0], 4), test_floats(d[1], 4)}, result[4];
        struct event *e[2];
        pthread_barrier_t barrier;
        pthread_t threads[2];
        struct player players[2];
        pthread_barrier_init(&barrier, NULL, 2);
        for (int i = 0; i < 2; i++)
            MUST(event_create(d[i], &e[i]));
        MUST(test_fill(device_compute(d[0]), x[0], 4, 3));
        MUST(event_record(e[0], device_compute(d[0])));
        MUST(event_sync(e[0]));
        for (int i = 0; i < 2; i++) {
            players[i] =
                (struct player){d[i], d[1 - i], x[i], x[1 - i], e[i], e[1 - i], &barrier, i};
            pthread_create(&threads[i], NULL, play, &players[i]);
        }
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        MUST(copy_to_host(device_comm(d[0]), result, x[0], 16));
        MUST(stream_sync(device_comm(d[0])));
        cr_assert_eq(result[3], 48, "%g", result[3]); /* 3 * 2^(52 - 48) */
        for (int i = 0; i < 2; i++)
            event_destroy(e[i]);
        for (int i = 0; i < 2; i++)
            device_close(d[i]);
        pthread_barrier_destroy(&barrier);
    }
}

Test(event, rules_of_use_are_checked, .timeout = 30) {
    struct device *a = test_open(DEVICE_HOST, 0), *b = test_open(DEVICE_HOST, 1);
    struct gate gate = {0};
    struct event *event;
    MUST(event_create(a, &event));
    cr_assert_eq(event_record(event, device_comm(b)), ERR_FAILED, "another device's stream");
    MUST(block(device_comm(a), &gate));
    MUST(event_record(event, device_comm(a)));
    cr_assert_eq(event_record(event, device_compute(a)), ERR_FAILED, "pending on another stream");
    gate.open = 1;
    MUST(event_sync(event));
    MUST(event_record(event, device_compute(a)));
    event_destroy(event);
    event_destroy(NULL);
    device_close(b);
    device_close(a);
}

Test(event, may_go_while_it_is_queued_and_outlive_its_device, .timeout = 30) {
    for (int k = 0; k < HOST_KINDS; k++) {
        struct device *d = test_open(host_kinds[k], 0);
        struct gate gate = {0};
        struct event *gone, *late;
        MUST(event_create(d, &gone));
        MUST(event_create(d, &late));
        MUST(block(device_comm(d), &gate));
        MUST(event_record(gone, device_comm(d)));
        MUST(event_record(late, device_comm(d)));
        MUST(stream_wait(device_comm(d), gone));
        event_destroy(gone);
        gate.open = 1;
        device_close(d);
        event_destroy(late);
    }
}

Test(call, copies_its_arguments_within_the_limit, .timeout = 30) {
    for (int k = 0; k < HOST_KINDS; k++) {
        struct device *d = test_open(host_kinds[k], 0);
        char args[513] = {0};
        int ran = 0, *counter = &ran;
        MUST(call_count_up(device_comm(d), counter));
        counter = NULL;
        MUST(stream_sync(device_comm(d)));
        cr_assert_eq(ran, 1);
        cr_assert_eq(stream_call_host(device_comm(d), "large", 0, count_up, args, sizeof args),
                     ERR_FAILED);
        MUST_SAY("large on cpu(0)");
        device_close(d);
    }
}
