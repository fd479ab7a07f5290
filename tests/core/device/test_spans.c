/* device/: the spans of a stream show what it ran. */
#include <pthread.h>

#include "tests/core/device/shared.h"

static const struct span *find_span(struct stream *stream, const char *name, size_t from) {
    const struct span_log *log = stream_spans(stream);
    for (size_t i = from; i < log->count; i++)
        if (!strcmp(log->spans[i].name, name)) return &log->spans[i];
    return NULL;
}

Test(spans, tell_what_ran_where_and_when, .timeout = 30) {
    for (int k = 0; k < HOST_KINDS; k++) {
        struct device_config config = test_config(host_kinds[k], 2);
        struct device *d, *peer = test_open(host_kinds[k], 4);
        config.rank = 6;
        MUST(device_open(&d, &config));
        struct stream *s = device_compute(d), *comm = device_comm(d);
        float *x = test_floats(d, 100), *y = test_floats(peer, 100), host[100] = {0};
        int ran = 0;
        int64_t before = now_ns();
        stream_set_phase(s, PHASE_INPUT, 11);
        MUST(copy_to_device(s, x, host, 400));
        stream_set_phase(s, PHASE_FORWARD, 12); /* work already enqueued keeps its phase */
        MUST(test_scale(s, x, 100, 2));
        MUST(copy_peer(s, peer, y, d, x, 80));
        MUST(copy_peer(s, d, x + 50, d, x, 100));
        MUST(stream_sync(s));
        stream_set_phase(comm, PHASE_ALLREDUCE, 12);
        int *counter = &ran;
        MUST(stream_call_host(comm, "a name of more than twenty-nine characters", 123, count_up,
                              &counter, sizeof counter));
        MUST(stream_sync(comm));
        int64_t after = now_ns();

        const struct span_log *log = stream_spans(s);
        const struct {
            const char *name;
            int phase, step;
            uint64_t bytes;
            double flops;
            uint64_t sources, destinations;
            int ends_kind;
        } expected[] = {{"copy to device", PHASE_INPUT, 11, 400, 0, 0, 1 << 2, SPAN_FROM_HOST},
                        {"activation forward", PHASE_FORWARD, 12, 0, 500, 0, 0, 0},
                        {"copy peer", PHASE_FORWARD, 12, 80, 0, 1 << 2, 1 << 4, 0},
                        {"copy peer", PHASE_FORWARD, 12, 0, 0, 1 << 2, 1 << 2, 0}};
        cr_assert_eq(log->count, 4);
        for (int i = 0; i < 4; i++) {
            const struct span *span = &log->spans[i];
            cr_assert_str_eq(span->name, expected[i].name);
            cr_assert_eq(span->phase, expected[i].phase);
            cr_assert_eq(span->step, expected[i].step);
            cr_assert_eq(span->bytes, expected[i].bytes, "%s", span->name);
            cr_assert_eq(span->flops, expected[i].flops, "%s", span->name);
            cr_assert(span->sources == expected[i].sources &&
                          span->destinations == expected[i].destinations &&
                          span->ends_kind == expected[i].ends_kind,
                      "%s", span->name);
            cr_assert(span->rank == 6 && span->device == 2 && span->lane == LANE_COMPUTE &&
                      !span->waiting);
            cr_assert(span->start_ns >= (i ? log->spans[i - 1].end_ns : before) &&
                      span->end_ns >= span->start_ns);
        }
        const struct span *called = &stream_spans(comm)->spans[0];
        cr_assert_str_eq(called->name, "a name of more than twenty-");
        cr_assert(called->lane == LANE_COMM && called->bytes == 123 &&
                  called->phase == PHASE_ALLREDUCE);
        cr_assert(called->start_ns >= log->spans[3].end_ns && called->end_ns <= after);
        device_close(d);
        device_close(peer);
    }
}

static int sleep_a_while(void *unused) {
    (void)unused;
    usleep(20000);
    return OK;
}

/* A thread that sleeps uses no core, as one that another device's thread keeps from its core. On
 * the compute lane the CPU time says so; elsewhere it would count spinning as work, so it is not
 * taken. */
Test(spans, cpu_time_counts_on_the_compute_lane, .timeout = 30) {
    for (int k = 0; k < HOST_KINDS; k++) {
        struct device_config config = test_config(host_kinds[k], 0);
        struct device *d;
        int unused = 0;
        MUST(device_open(&d, &config));
        for (int lane = LANE_COMPUTE; lane <= LANE_COMM; lane++) {
            struct stream *s = lane == LANE_COMPUTE ? device_compute(d) : device_comm(d);
            MUST(stream_call_host(s, "sleep", 0, sleep_a_while, &unused, sizeof unused));
            MUST(stream_sync(s));
            const struct span *span = find_span(s, "sleep", 0);
            int64_t wall = span->end_ns - span->start_ns;
            cr_assert_geq(wall, 20000000);
            if (lane == LANE_COMM) {
                cr_assert_eq(span->cpu_ns, 0);
                cr_assert_eq(span_busy_ns(span), wall);
            } else {
                cr_assert(span->cpu_ns > 0 && span->cpu_ns < wall / 2, "%ld of %ld ns",
                          (long)span->cpu_ns, (long)wall);
                cr_assert_eq(span_busy_ns(span), span->cpu_ns);
            }
        }
        device_close(d);
    }
}

/* Opens the gate from inside the wait for it, which asks this function now and then whether its job
 * was interrupted. So the wait always blocks, however late a thread may be. On `host` the caller
 * itself waits; on `host-late` the stream's thread waits, and the caller, which asks too, waits for
 * that thread. */
struct opener {
    struct gate *gate;
    pthread_t caller;
    int by_caller;
};
static int open_in_wait(void *context) {
    struct opener *o = context;
    int is_caller = pthread_equal(pthread_self(), o->caller) != 0;
    if (is_caller != o->by_caller) return OK;
    usleep(1000); /* far longer than the shortest wait that leaves a span */
    o->gate->open = 1;
    return OK;
}

Test(spans, a_wait_that_blocked_is_one_marked_span, .timeout = 30) {
    for (int k = 0; k < HOST_KINDS; k++) {
        struct device_config config = test_config(host_kinds[k], 0);
        struct gate gate = {0};
        struct opener opener = {&gate, pthread_self(), host_kinds[k] == DEVICE_HOST};
        struct device *d;
        struct event *event;
        config.interrupted = open_in_wait, config.interrupt_context = &opener;
        MUST(device_open(&d, &config));
        struct stream *s = device_compute(d);
        MUST(event_create(d, &event));
        MUST(block(device_comm(d), &gate));
        MUST(event_record(event, device_comm(d)));
        stream_set_phase(s, PHASE_REDUCE, 3);
        MUST(stream_wait(s, event));
        MUST(stream_wait(s, event)); /* is there already */
        MUST(stream_sync(s));
        const struct span *wait = find_span(s, "wait", 0);
        cr_assert_not_null(wait);
        cr_assert(wait->waiting == 1 && wait->phase == PHASE_REDUCE && wait->step == 3 &&
                  wait->bytes == 0);
        cr_assert_geq(wait->end_ns - wait->start_ns, 1000000);
        if (host_kinds[k] == DEVICE_HOST) cr_assert_eq(stream_spans(s)->count, 1);
        event_destroy(event);
        device_close(d);
    }
}

Test(spans, off_records_nothing, .timeout = 30) {
    for (int k = 0; k < ALL_KINDS; k++) {
        struct device_config config = test_config(all_kinds[k], 0);
        struct device *d;
        config.spans = 0;
        MUST(device_open(&d, &config));
        MUST(test_fill(device_compute(d), test_floats(d, 10), 10, 1));
        MUST(stream_sync(device_compute(d)));
        cr_assert_eq(stream_spans(device_compute(d))->count, 0);
        device_close(d);
    }
}
