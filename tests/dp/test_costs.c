/* What DP costs: which device holds the gathered output, how many bytes cross each link in one
 * step, which phase runs on which device, and that a steady step allocates nothing. */
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

/* Bytes that the device has moved over one link since `before`. */
static uint64_t moved(struct device *device, const struct traffic *before, int from, int to) {
    return device_traffic(device)->bytes[from][to] - before->bytes[from][to];
}

Test(dp_costs, every_link_carries_exactly_this, .timeout = 60) {
    enum { N = 38 };
    for (int loss_in_forward = 0; loss_in_forward < 2; loss_in_forward++)
        for (int devices = 2; devices <= 4; devices++) {
            struct rig rig;
            open_dp(&rig, "lenet", devices, loss_in_forward, 0, 0);
            run(&rig, 0, RIG_BATCH, 1);
            struct traffic before[4];
            for (int r = 0; r < devices; r++)
                before[r] = *device_traffic(rig.device[r]);
            run(&rig, 1, N, 1);

            struct param_range groups[32];
            int group_count;
            uint64_t model_bytes = 0;
            cr_assert_eq(coalesce_params(&rig_replica(&rig, 0)->params->set, 0, COALESCE_BYTES,
                                         groups, &group_count),
                         OK);
            for (int g = 0; g < group_count; g++)
                model_bytes += groups[g].count * sizeof(float);
            cr_assert_geq(model_bytes, 129068 * sizeof(float));
            cr_assert_lt(model_bytes, 129068 * sizeof(float) + 8 * 256);

            for (int d = 0; d < devices; d++)
                for (int a = 0; a < devices; a++)
                    for (int b = 0; b < devices; b++) {
                        uint64_t got = moved(rig.device[d], &before[d], a, b), want = 0, rows = 0;
                        int r = a ? a : b;
                        rows = (uint64_t)(N / devices + (r < N % devices));
                        if (d == 0 && a == 0 && b > 0) /* pixels, parameters, and labels or dL/dy */
                            want = rows * 3136 + model_bytes + rows * (loss_in_forward ? 4 : 40);
                        /* gradients, and one loss and hits or outputs */
                        if (d == 0 && a > 0 && b == 0)
                            want = model_bytes + (loss_in_forward ? 16 : rows * 40);
                        cr_assert_eq(got, want,
                                     "%d devices, loss in forward %d: device %d charged %llu for "
                                     "%d -> %d, not %llu",
                                     devices, loss_in_forward, d, (unsigned long long)got, a, b,
                                     (unsigned long long)want);
                    }
            cr_assert_geq(moved(rig.device[0], &before[0], LINK_HOST, 0), (uint64_t)N * 3140,
                          "the whole batch enters device 0");
            for (int d = 1; d < devices; d++)
                cr_assert_lt(moved(rig.device[d], &before[d], LINK_HOST, d), 256,
                             "nothing but the step block enters device %d", d);
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
