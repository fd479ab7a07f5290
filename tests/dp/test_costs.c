/* The costs of DP: which device holds the gathered output, how many bytes cross each link in a
 * step, and which phase runs on which device. Also, a steady step allocates nothing. */
#include "tests/dp/rig.h"

#include "scatter_gather/scatter_gather.h"
#include "tests/core/device/full.h"

static void open_dp(struct rig *rig, const char *model, int devices, int loss_in_forward,
                    int hashes, int spans) {
    rig_open(rig, model, devices, devices, DEVICE_HOST, spans);
    struct rig_config config = rig_config(rig, loss_in_forward);
    config.hashes = hashes;
    cr_assert_eq(rig_init(rig, &config), OK, "%s", error_message());
}

static void run(struct rig *rig, int step, int n, int training) {
    cr_assert_eq(rig_run(rig, step, n, training), OK, "step %d: %s", step, error_message());
    for (int r = 0; r < rig->devices; r++)
        cr_assert_eq(stream_sync(device_compute(rig->device[r])), OK, "%s", error_message());
}

Test(dp_costs, only_device_0_holds_the_gathered_output, .timeout = 60) {
    for (int loss_in_forward = 0; loss_in_forward < 2; loss_in_forward++)
        for (int devices = 1; devices <= 4; devices++) {
            struct rig rig;
            open_dp(&rig, "lenet", devices, loss_in_forward, 0, 0);
            run(&rig, 0, RIG_BATCH, 1);
            for (int r = 0; r < devices; r++) {
                struct ledger ledger = device_ledger(rig.device[r]);
                int holds = r == 0 && devices > 1 && !loss_in_forward;
                uint64_t least = holds ? RIG_BATCH * 10 * sizeof(float) : 0;
                cr_assert(
                    holds ? ledger.peak[MEM_GATHERED] >= least : ledger.peak[MEM_GATHERED] == 0,
                    "%d devices, loss in forward %d: device %d held %llu bytes of gathered output",
                    devices, loss_in_forward, r, (unsigned long long)ledger.peak[MEM_GATHERED]);
                cr_assert_eq(ledger.now[MEM_OPTIMIZER] > 0, r == 0,
                             "the optimizer lives on device 0 alone");
                if (r > 0)
                    cr_assert_lt(ledger.now[MEM_INPUT],
                                 device_ledger(rig.device[0]).now[MEM_INPUT]);
            }
            rig_free(&rig);
        }
}

Test(dp_costs, a_steady_step_allocates_nothing, .timeout = 60) {
    struct rig rig;
    open_dp(&rig, "lenet", 3, 0, 1, 0);
    uint64_t held[3];
    struct filling filling[3];
    for (int step = 0; step < 6; step++) {
        run(&rig, step, RIG_BATCH, 1);
        for (int r = 0; r < 3; r++) {
            if (step == 2) {
                fill_device(rig.device[r], &filling[r]);
                held[r] = device_ledger(rig.device[r]).total;
            }
            if (step < 2) continue;
            cr_assert_eq(device_ledger(rig.device[r]).total, held[r], "device %d in step %d", r,
                         step);
        }
    }
    for (int r = 0; r < 3; r++)
        empty_device(rig.device[r], &filling[r]);
    rig_free(&rig);
}

/* Bit p is set where phase p has a span on that device's compute lane in step `step`. */
static unsigned phases(struct rig *rig, int r, int step) {
    const struct span_log *log = stream_spans(device_compute(rig->device[r]));
    unsigned seen = 0;
    for (size_t i = 0; i < log->count; i++)
        if (log->spans[i].step == step && !log->spans[i].waiting) seen |= 1u << log->spans[i].phase;
    return seen;
}

#define P(phase) (1u << PHASE_##phase)

Test(dp_costs, each_phase_runs_where_it_should, .timeout = 60) {
    unsigned leader = P(INPUT) | P(SCATTER) | P(REPLICATE) | P(FORWARD) | P(GATHER) | P(LOSS) |
                      P(BACKWARD) | P(REDUCE) | P(OPTIMIZER);
    unsigned follower = P(INPUT) | P(FORWARD) | P(BACKWARD); /* input: the step block alone */
    for (int loss_in_forward = 0; loss_in_forward < 2; loss_in_forward++) {
        struct rig rig;
        open_dp(&rig, "mlp", 3, loss_in_forward, 0, 1);
        run(&rig, 0, RIG_BATCH, 1);
        run(&rig, 1, RIG_BATCH, 0);
        cr_assert_eq(phases(&rig, 0, 0), leader | (loss_in_forward ? 0 : P(SCATTER_GRAD)),
                     "device 0: %x", phases(&rig, 0, 0));
        for (int r = 1; r < 3; r++) {
            unsigned want = follower | (loss_in_forward ? P(LOSS) : 0);
            cr_assert_eq(phases(&rig, r, 0), want, "device %d: %x", r, phases(&rig, r, 0));
            cr_assert_eq(phases(&rig, r, 1), (unsigned)P(EVALUATE), "device %d evaluates: %x", r,
                         phases(&rig, r, 1));
        }
        cr_assert_eq(phases(&rig, 0, 1), (unsigned)P(EVALUATE), "device 0 evaluates: %x",
                     phases(&rig, 0, 1));
        const struct span_log *waits = strategy_dp.waits(&rig.session);
        const enum phase first[] = {
            PHASE_FORWARD, loss_in_forward ? PHASE_EVALUATE : PHASE_BACKWARD, PHASE_EVALUATE};
        cr_assert_eq(waits->count, loss_in_forward ? 2 : 3,
                     "one wait for each time the threads come back");
        for (size_t i = 0; i < waits->count; i++)
            cr_assert(waits->spans[i].phase == first[i] && waits->spans[i].waiting &&
                      waits->spans[i].lane == LANE_HOST &&
                      waits->spans[i].end_ns >= waits->spans[i].start_ns);
        rig_free(&rig);
    }
}
