/* Duet's ring, as DDP runs it, on modelled links: the plans of all ranks, written into a schedule
 * by the executor of dry devices. */
#include "allreduce/allreduce.h"
#include "clock/run.h"
#include "comm/comm.h"
#include "device/device.h"
#include "tests/harness/harness.h"

enum { RANKS = 4, COUNT = 65536 }; /* elements: 256 KiB, so each part is one slice */

static void issue(struct schedule *schedule, int rank, const char *algorithm) {
    struct comm *comm;
    struct device *device;
    struct allreduce *ar;
    void *data;
    struct device_config config = {.kind = DEVICE_DRY,
                                   .index = rank,
                                   .rank = rank,
                                   .memory_bytes = 1 << 24,
                                   .schedule = schedule};
    struct allreduce_config sums = allreduce_config_default();
    cr_assert(!comm_imagine(&comm, rank, RANKS));
    cr_assert(!device_open(&device, &config));
    cr_assert(!allreduce_algorithm_parse(algorithm, &sums.algorithm));
    cr_assert(!allreduce_init(&ar, comm, device, &sums));
    cr_assert(!device_alloc(device, &data, COUNT * sizeof(float), MEM_GRADS));
    cr_assert(!allreduce_register(ar, data, COUNT));
    cr_assert(!allreduce_enqueue(ar, device_comm(device), data, COUNT, 1, 0, 0));
    allreduce_free(ar);
    device_free(device, data);
    device_close(device);
    comm_close(comm);
}

static int64_t time_of(const char *algorithm) {
    struct machine machine = {.gpus = RANKS, .scale = 1, .links = 1};
    const struct gpu_spec gpu = {.fp32 = 1, .gbs = 1, .gib = 1, .reached = 1};
    struct clock_config config = {
        .gpu = &gpu, .machine = &machine, .devices = RANKS, .what_if = what_if_none()};
    for (int r = 0; r < RANKS; r++)
        machine.net.link[machine.net.links++] =
            (struct net_link){.a = r, .b = (r + 1) % RANKS, .gbs = 64, .us = 2};
    struct schedule *schedule;
    struct span_log spans;
    const struct program *programs;
    int count;
    span_log_init(&spans, 1);
    cr_assert(!schedule_new(&schedule));
    for (int r = 0; r < RANKS; r++)
        issue(schedule, r, algorithm);
    cr_assert(!schedule_programs(schedule, &programs, &count));
    cr_assert_eq(count, RANKS);
    cr_assert(!clock_run(&config, programs, count, &spans));
    cr_assert_eq(spans.count, RANKS);
    int64_t end = 0;
    for (int r = 0; r < RANKS; r++)
        if (spans.spans[r].end_ns > end) end = spans.spans[r].end_ns;
    int64_t took = end - spans.spans[0].start_ns;
    span_log_free(&spans);
    schedule_free(schedule);
    return took;
}

/* 2 (n-1)/n S / B + 2 (n-1) latency, to the nanosecond. */
Test(clock_ring, takes_what_the_formula_says) {
    int64_t bytes = COUNT * 4, want = 2 * (RANKS - 1) * (bytes / RANKS / 64 + 2000);
    int64_t got = time_of("ring");
    cr_assert_eq(got, want, "%lld ns, not %lld", (long long)got, (long long)want);
}
