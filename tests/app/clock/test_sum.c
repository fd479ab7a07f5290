/* Computes the clock's time of NCCL's allreduce by hand: 4 GPUs in a ring of 64 GB/s links, with
 * memory so fast that buckets cost nothing. clock/cost.c has the formulas. */
#include "clock/cost.h"
#include "tests/harness/harness.h"

enum { GPUS = 4 };

static void expect_call(enum scheduled_collective what, double link_us, double nodes, double bytes,
                        double us) {
    const struct gpu_spec gpu = {.fp32 = 1, .gbs = 1e12, .gib = 1, .reached = 1};
    struct machine machine = {
        .gpus = GPUS, .scale = 1, .links = 1, .network = {"", 1000, 10}, .cards = GPUS};
    struct clock_config config = {.gpu = &gpu,
                                  .machine = &machine,
                                  .devices = GPUS,
                                  .nodes = nodes,
                                  .what_if = what_if_none()};
    for (int r = 0; r < GPUS; r++)
        machine.net.link[machine.net.links++] =
            (struct net_link){.a = r, .b = (r + 1) % GPUS, .gbs = 64, .us = link_us};
    int64_t ns = cost_sum(&config, GPUS, (uint64_t)bytes, what);
    double off = (double)ns - us * 1e3; /* rounded up */
    cr_expect(off > -0.01 && off < 1.01, "%lld ns, not %.1f us", (long long)ns, us);
}

Test(sum, gathers_and_scatters_of_blocks_go_around_once) {
    const double us = 8.4 + 3 * 2 + 0.75 * 64e6 / 64e3;
    expect_call(SCHEDULED_ALL_GATHER, 2, 1, 64e6, us);
    expect_call(SCHEDULED_REDUCE_SCATTER, 2, 1, 64e6, us);
    expect_call(SCHEDULED_BROADCAST, 2, 1, 64e6, 8.4 + 3 * 2 + 64e6 / 64e3);
    /* 32 ranks: 24 hops and 7 of the network */
    expect_call(SCHEDULED_ALL_GATHER, 2, 8, 640e6,
                8.4 + 24 * 2 + 7 * 10 + 31.0 / 32 * 640e6 / 64e3);
}

Test(sum, the_fastest_algorithm_and_protocol_by_hand) {
    /* a ring with Simple: 8.4 + 6 hops; 2 3/4 S over the link */
    expect_call(SCHEDULED_SUM, 2, 1, 64e6, 8.4 + 6 * 2 + 1.5 * 64e6 / 64e3);
    /* few bytes, LL: half of the rate, hops of 0.18 */
    expect_call(SCHEDULED_SUM, 2, 1, 256, 6.6 + 6 * 2 * 0.18 + 1.5 * 256 / 32e3);
    /* between the two, LL128; over links as slow as PCIe's it is Simple */
    expect_call(SCHEDULED_SUM, 3.9, 1, 1e6, 14 + 6 * 3.9 * 0.5 + 1.5 * 1e6 / (64e3 * 0.92));
    expect_call(SCHEDULED_SUM, 4.1, 1, 1e6, 8.4 + 6 * 4.1 + 1.5 * 1e6 / 64e3);
    /* a tree, LL, 8 nodes: log2(8) steps of the network up, as many down; each byte twice */
    expect_call(SCHEDULED_SUM, 2, 8, 256,
                6.8 + 6 * 2 * 0.18 + 2 * 3 * 10 * 0.36 + 2 * 256 / (64e3 / 3.8));
    /* a ring of 32 ranks: 24 hops and 7 of the network to and fro, 31/32 of the bytes twice */
    expect_call(SCHEDULED_SUM, 2, 8, 640e6, 8.4 + 48 * 2 + 14 * 10 + 2 * 31.0 / 32 * 640e6 / 64e3);
}
