/* Times of transfers by formula, on records made by hand; and the words of --link. */
#include "base/error.h"
#include "report/transfer.h"
#include "tests/harness/harness.h"

#define SAME 1e-12 /* a few roundings of a double */

static struct run_record record_of(enum run_mode mode, int devices) {
    return (struct run_record){.mode = mode, .devices = devices, .steps = 2, .computed = 1};
}

static void moves(struct run_record *r, int device, enum phase phase, uint64_t bytes,
                  int64_t transfers) {
    r->device[device].phase_bytes[phase] = bytes;
    r->device[device].phase_moves[phase] = transfers;
}

static void near(double seconds, double right) {
    cr_expect_float_eq(seconds, right, SAME * right, "%.17g, not %.17g", seconds, right);
}

/* 2 GB/s and 10 us; sums are over 2 steps. */
static const struct link_speed link_of_test = {"test", 2, 10};

Test(transfer, of_dp, .timeout = 10) {
    struct run_record r = record_of(MODE_DP, 3);
    moves(&r, 0, PHASE_INPUT, 1000000, 2); /* from the host */
    moves(&r, 0, PHASE_SCATTER, 8000000, 4);
    moves(&r, 1, PHASE_REDUCE, 2000000, 2); /* a sharded reduce: at the same time */
    moves(&r, 2, PHASE_REDUCE, 4000000, 2);
    near(transfer_seconds(&r, PHASE_INPUT, &link_of_test), 0);
    near(transfer_seconds(&r, PHASE_SCATTER, &link_of_test), 4e6 / 2e9 + 2 * 10e-6);
    near(transfer_seconds(&r, PHASE_REDUCE, &link_of_test), 2e6 / 2e9 + 1 * 10e-6);
    near(transfer_seconds_a_step(&r, &link_of_test), 6e6 / 2e9 + 3 * 10e-6);
}

/* A ring over 4 ranks waits 2 x 3 + 1 times one after another. Rank 0 sends its buffers three
 * times. */
Test(transfer, of_ddp, .timeout = 10) {
    struct run_record r = record_of(MODE_DDP, 4);
    snprintf(r.choice, sizeof r.choice, "ring: asked for by name");
    for (int d = 0; d < 4; d++) {
        moves(&r, d, PHASE_INPUT, 500, 2);
        moves(&r, d, PHASE_ALLREDUCE, 6000000, 4);
        if (d) moves(&r, d, PHASE_REPLICATE, 20000, 2);
        r.device[d].bytes_in = 6000000 + 500 + (d ? 20000 : 0);
        r.device[d].bytes_out = 6000000 + (d ? 0 : 3 * 20000);
    }
    near(transfer_seconds(&r, PHASE_ALLREDUCE, &link_of_test), 3e6 / 2e9 + 2 * 7 * 10e-6);
    near(transfer_seconds(&r, PHASE_REPLICATE, &link_of_test), 3 * 10000 / 2e9 + 1 * 10e-6);
    r.device[2].bytes_out += 1000000; /* the busiest link counts */
    near(transfer_seconds(&r, PHASE_ALLREDUCE, &link_of_test), 3.5e6 / 2e9 + 2 * 7 * 10e-6);
}

Test(transfer, of_one_device, .timeout = 10) {
    struct run_record r = record_of(MODE_SINGLE, 1);
    moves(&r, 0, PHASE_INPUT, 1000, 1);
    near(transfer_seconds_a_step(&r, &link_of_test), 0);
}

Test(transfer, words_of_links, .timeout = 10) {
    static const char *const wrong[] = {"nvlink5", "12", "12,", ",5", "0,5", "12,-1", "12,5,6", ""};
    struct link_speed link;
    double before = 0;
    for (int i = 0; link_known(i); i++) {
        cr_expect_eq(link_parse("--link", link_known(i)->name, &link), OK);
        cr_expect(link.gbs > before && link.us > 0, "the slowest first");
        before = link.gbs;
    }
    cr_expect_eq(link_parse("--link", "12.5,3", &link), OK);
    cr_expect(link.gbs == 12.5 && link.us == 3 && !strcmp(link.name, "12.5,3"));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect_eq(link_parse("--link", wrong[i], &link), ERR_USAGE, "'%s'", wrong[i]);
    cr_expect(strstr(error_message(), "--link: "), "%s", error_message());
}
