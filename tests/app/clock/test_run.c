/* Tests cases of the modelled clock whose times can be computed by hand. All rates are chosen so
 * that times are integer nanoseconds. */
#include "clock/run.h"

#include <string.h>

#include "tests/harness/harness.h"

/* A GPU whose kernels take as many nanoseconds as they move bytes, and 4 us to launch each. The
 * host takes 3 us for each kernel and copy. */
static const struct gpu_spec gpu = {.name = "made", .fp32 = 1, .gbs = 1, .gib = 1, .reached = 1};
enum { LAUNCH = 3000, START = 5000, KERNEL = 4000 }; /* the last two are cost.c's, in ns */

static struct machine machine;
static struct clock_config config;
static struct schedule *schedule;
static struct span_log spans;

static void join(int a, int b, double gbs, double us) {
    machine.net.link[machine.net.links++] = (struct net_link){.a = a, .b = b, .gbs = gbs, .us = us};
}

static void begin(int devices) {
    memset(&machine, 0, sizeof machine);
    machine = (struct machine){
        .gpus = devices, .scale = 1, .links = 1, .pageable_gbs = 1, .forward_us = 3};
    config = (struct clock_config){
        .gpu = &gpu, .machine = &machine, .devices = devices, .what_if = what_if_none()};
    cr_assert(!schedule_new(&schedule));
    span_log_init(&spans, 1);
}

static void run(void) {
    const struct program *programs;
    int count;
    cr_assert(!schedule_programs(schedule, &programs, &count));
    cr_assert(!clock_run(&config, programs, count, &spans), "it must come to its end");
}

static void end(void) {
    schedule_free(schedule);
    span_log_free(&spans);
}

static struct scheduled entry(enum scheduled_kind kind, int device, enum lane lane) {
    return (struct scheduled){.kind = (uint8_t)kind,
                              .work.eager = 1,
                              .facts = {.device = (int16_t)device,
                                        .rank = (int16_t)device,
                                        .phase = PHASE_FORWARD,
                                        .lane = (uint8_t)lane}};
}

static void kernel(int device, double bytes, const char *name) {
    struct scheduled e = entry(SCHEDULED_KERNEL, device, LANE_COMPUTE);
    e.work.bytes = bytes;
    snprintf(e.facts.name, sizeof e.facts.name, "%s", name);
    schedule_add(schedule, &e);
}

static void copy(int device, enum lane lane, int from, int to, uint64_t bytes, const char *name) {
    struct scheduled e = entry(SCHEDULED_COPY, device, lane);
    e.from = (int16_t)from;
    e.to = (int16_t)to;
    e.bytes = bytes;
    snprintf(e.facts.name, sizeof e.facts.name, "%s", name);
    schedule_add(schedule, &e);
}

static const struct span *span(const char *name) {
    for (size_t i = 0; i < spans.count; i++)
        if (!strcmp(spans.spans[i].name, name)) return &spans.spans[i];
    return NULL;
}

static void expect(const char *name, int64_t start, int64_t stop) {
    const struct span *s = span(name);
    cr_assert_not_null(s, "%s did not run", name);
    cr_assert(s->start_ns == start && s->end_ns == stop, "%s: %lld to %lld, not %lld to %lld", name,
              (long long)s->start_ns, (long long)s->end_ns, (long long)start, (long long)stop);
}

/* Kernels of 4 us, launches of 3: the stream is behind by 1 us a kernel. */
Test(clock_run, kernels_of_a_stream_follow_each_other) {
    begin(1);
    kernel(0, 0, "first");
    kernel(0, 0, "second");
    kernel(0, 50000, "last");
    run();
    expect("second", LAUNCH + START + KERNEL, LAUNCH + START + 2 * KERNEL);
    expect("last", LAUNCH + START + 2 * KERNEL, LAUNCH + START + 3 * KERNEL + 50000);
    end();
}

Test(clock_run, a_copy_runs_beside_a_kernel) {
    begin(1);
    join(0, NET_HOST, 10, 2);
    kernel(0, 100000, "kernel");
    copy(0, LANE_COPY, SCHEDULED_HOST, 0, 200000, "copy");
    run();
    expect("kernel", 8000, 112000);
    expect("copy", 11000, 11000 + 2000 + 20000);
    end();
}

/* Two copies that begin within 3 us of each other, both 300000 bytes at 10 bytes a ns. */
static void two_copies(int shared) {
    begin(3);
    int hub = NET_HOST + 1;
    join(0, hub, shared ? 10 : 1000, 0);
    join(1, hub, 10, 0);
    join(2, hub, 10, 0);
    copy(0, LANE_COMPUTE, 0, 1, 300000, "first");
    copy(0, LANE_COPY, 0, 2, 300000, "second");
    run();
}

Test(clock_run, copies_over_one_link_share_it_and_over_two_do_not) {
    two_copies(1);
    /* alone for 3 us: 30000 bytes; the rest of the first at half the rate, 54 us; then the
     * second, alone again, has 30000 bytes left */
    expect("first", 8000, 8000 + 3000 + 54000);
    expect("second", 11000, 65000 + 3000);
    end();
    two_copies(0);
    expect("first", 8000, 38000);
    expect("second", 11000, 41000);
    end();
}

Test(clock_run, a_wait_holds_its_stream_until_the_record) {
    begin(1);
    struct scheduled record = entry(SCHEDULED_RECORD, 0, LANE_COMPUTE),
                     wait = entry(SCHEDULED_WAIT, 0, LANE_COPY);
    join(0, NET_HOST, 10, 0);
    record.key = wait.key = schedule_new_event(schedule);
    record.value = wait.value = 1;
    kernel(0, 100000, "kernel");
    schedule_add(schedule, &record);
    schedule_add(schedule, &wait);
    copy(0, LANE_COPY, SCHEDULED_HOST, 0, 10000, "copy");
    run();
    expect("kernel", 8000, 112000);
    expect("copy", 112000, 113000);
    end();
}

/* An event that nobody records. */
Test(clock_run, a_schedule_that_cannot_go_on_is_an_error) {
    begin(1);
    struct scheduled wait = entry(SCHEDULED_WAIT, 0, LANE_COMPUTE);
    wait.key = schedule_new_event(schedule);
    wait.value = 1;
    schedule_add(schedule, &wait);
    const struct program *programs;
    int count;
    cr_assert(!schedule_programs(schedule, &programs, &count));
    cr_assert(clock_run(&config, programs, count, &spans) != 0);
    end();
}

/* All ranks meet in a sum; rank 2 comes late by 1 ms. As with NCCL nobody leaves before it. */
Test(clock_run, a_slow_rank_holds_back_all) {
    begin(3);
    for (int r = 0; r < 3; r++)
        join(r, NET_HOST + 1, 10, 0);
    for (int r = 0; r < 3; r++) {
        if (r == 2) kernel(r, 1000000, "late");
        struct scheduled sum = entry(SCHEDULED_GROUP, r, LANE_COMPUTE);
        sum.collective = SCHEDULED_SUM;
        sum.key = 7;
        sum.ranks = 3;
        snprintf(sum.facts.name, sizeof sum.facts.name, "sum %d", r);
        schedule_add(schedule, &sum);
    }
    run();
    int64_t late = span("late")->end_ns;
    cr_assert(late > 1000000);
    for (int r = 0; r < 3; r++) {
        const struct span *s = span((const char *[]){"sum 0", "sum 1", "sum 2"}[r]);
        cr_assert(s->start_ns == (r == 2 ? late : 0) && s->end_ns == span("sum 2")->end_ns);
    }
    cr_assert(span("sum 0")->end_ns >= late);
    end();
}

/* As in a sum of 64 devices' gradients, many pieces each. */
Test(clock_run, thousands_of_moves_share_a_link) {
    enum { MOVES = 5000 };
    begin(2);
    join(0, 1, 10, 0);
    struct scheduled group = entry(SCHEDULED_GROUP, 0, LANE_COMM);
    snprintf(group.facts.name, sizeof group.facts.name, "group");
    schedule_group_begin(schedule, &group);
    for (int i = 0; i < MOVES; i++) {
        struct scheduled move = entry(SCHEDULED_MOVE, 0, LANE_COMM);
        move.from = 1;
        move.bytes = 1000;
        schedule_add(schedule, &move);
    }
    schedule_group_end(schedule, 0);
    run();
    expect("group", 0, MOVES * 1000 / 10);
    end();
}

/* 8 GPUs under one switch, or four each under two roots, all links of 10 bytes a ns; copies of a
 * million bytes. DP's star: 7 copies leave device 0 one after another. An exchange: devices 0 to 6
 * send to the device that is three further on, all at the same time. */
static int64_t took(int star, int roots) {
    begin(8);
    for (int r = 0; r < 8; r++)
        join(r, NET_HOST + 1 + r * roots / 8, 10, 0);
    if (roots == 2) join(NET_HOST + 1, NET_HOST + 2, 10, 0);
    for (int r = 1; r < 8; r++)
        copy(star ? 0 : r - 1, LANE_COMPUTE, star ? 0 : r - 1, star ? r : (r + 2) % 8, 1000000,
             "copy");
    run();
    int64_t latest = 0;
    for (size_t i = 0; i < spans.count; i++)
        if (spans.spans[i].end_ns > latest) latest = spans.spans[i].end_ns;
    end();
    return latest - LAUNCH - START;
}

Test(clock_run, a_star_is_bound_by_device_0_and_an_exchange_by_the_link_between_roots) {
    cr_assert_eq(took(1, 1), 7 * 100000);
    cr_assert_eq(took(1, 2), 7 * 100000);
    cr_assert_eq(took(0, 1), 100000);
    /* 1, 2 and 3 send to the other root over one link */
    cr_assert_eq(took(0, 2), 3 * 100000);
}
