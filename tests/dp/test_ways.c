/* Two options take work from device 0: --output-device, whose device gathers the outputs and
 * computes the loss, and --dp-reduce sharded, with which other devices add up the gradients. Every
 * link carries exactly the expected bytes. (tests/app/cli/test_same_bits.c compares the bits.) */
#include "tests/dp/rig.h"

enum { N = 38 };

static void open_way(struct rig *rig, const char *model, int devices, int segments,
                     enum device_kind kind, int loss_in_forward, int output_device, int sharded) {
    rig_open(rig, model, devices, segments, kind, 0);
    struct rig_config config = rig_config(rig, loss_in_forward);
    config.output_device = output_device;
    config.sharded_reduce = sharded;
    cr_assert_eq(rig_init(rig, &config), OK, "%s", error_message());
}

/* ---- bytes ---- */

/* Adds the bytes that the devices have moved from a to b until now, `sign` times. */
static void add_traffic(struct rig *rig, uint64_t sum[4][4], uint64_t sign) {
    for (int r = 0; r < rig->devices; r++) {
        cr_assert_eq(stream_sync(device_compute(rig->device[r])), OK, "%s", error_message());
        for (int a = 0; a < rig->devices; a++)
            for (int b = 0; b < rig->devices; b++)
                sum[a][b] += sign * device_traffic(rig->device[r])->bytes[a][b];
    }
}

/* Bytes that device a sends to b in a step of N samples, over all devices that move them. */
static void step_traffic(struct rig *rig, uint64_t got[4][4]) {
    memset(got, 0, sizeof(uint64_t[4][4]));
    cr_assert_eq(rig_run(rig, 0, RIG_BATCH, 1), OK, "%s", error_message());
    add_traffic(rig, got, (uint64_t)-1);
    cr_assert_eq(rig_run(rig, 1, N, 1), OK, "%s", error_message());
    add_traffic(rig, got, 1);
}

/* The rows of device r. */
static uint64_t rows_of(int r, int devices) {
    return (uint64_t)(N / devices + (r < N % devices));
}

/* lenet lies in one range of the arena, so of n > 2 devices number d adds the units of 256 bytes
 * from (d-1) / (n-1) to d / (n-1) of it. */
static uint64_t shard_bytes(uint64_t model_bytes, int d, int devices) {
    uint64_t units = (model_bytes + 255) / 256, n = (uint64_t)devices, i = (uint64_t)d;
    if (devices == 2) {
        uint64_t half = units / 2 * 256;
        return d == 0 ? half : model_bytes - half;
    }
    if (d == 0) return 0;
    uint64_t from = units * (i - 1) / (n - 1) * 256, to = units * i / (n - 1) * 256;
    return (to < model_bytes ? to : model_bytes) - from;
}

/* The arena without the pads after its last parameter: one range. */
static uint64_t moved_bytes(const struct param_set *set) {
    size_t end = 0;
    for (int p = 0; p < set->count; p++) {
        size_t its_end = set->param[p].value_offset + set->param[p].count;
        if (its_end > end) end = its_end;
    }
    return end * sizeof(float);
}

/* What a step with sharded reduce and output device D moves from a to b. */
static uint64_t expected(int a, int b, int devices, int output, int sharded, int loss_in_forward,
                         uint64_t model_bytes) {
    uint64_t bytes = 0;
    if (a == b) return 0;
    if (a == 0) bytes += rows_of(b, devices) * 3136 + model_bytes; /* scatter, replicate */
    if (loss_in_forward) {
        if (a == 0) bytes += rows_of(b, devices) * 4; /* their labels */
        if (b == output) bytes += 16;                 /* a loss and the hits */
    } else {
        if (a == 0 && b == output) bytes += N * 4;          /* the labels */
        if (b == output) bytes += rows_of(a, devices) * 40; /* outputs */
        if (a == output) bytes += rows_of(b, devices) * 40; /* dL/dy */
    }
    if (!sharded) return bytes + (b == 0 ? model_bytes : 0);
    bytes += shard_bytes(model_bytes, b, devices);             /* b reads it from a, and adds */
    if (b == 0) bytes += shard_bytes(model_bytes, a, devices); /* the sum */
    return bytes;
}

Test(dp_ways, every_link_carries_exactly_this, .timeout = 60) {
    for (int devices = 2; devices <= 4; devices++)
        for (int way = 0; way < 4 * devices; way++) {
            struct rig rig;
            int sharded = way & 1, loss_in_forward = way >> 1 & 1, output = way / 4;
            uint64_t got[4][4];
            open_way(&rig, "lenet", devices, devices, DEVICE_HOST, loss_in_forward, output,
                     sharded);
            step_traffic(&rig, got);
            uint64_t model_bytes = moved_bytes(&rig_replica(&rig, 0)->params->set);
            for (int a = 0; a < devices; a++)
                for (int b = 0; b < devices; b++) {
                    uint64_t want =
                        expected(a, b, devices, output, sharded, loss_in_forward, model_bytes);
                    cr_assert_eq(got[a][b], want,
                                 "%d devices, output device %d, sharded %d, loss in forward %d: "
                                 "%d -> %d carried %llu, not %llu",
                                 devices, output, sharded, loss_in_forward, a, b,
                                 (unsigned long long)got[a][b], (unsigned long long)want);
                }
            rig_free(&rig);
        }
}

Test(dp_ways, the_output_device_holds_the_outputs, .timeout = 60) {
    struct rig rig;
    open_way(&rig, "mlp", 3, 3, DEVICE_HOST, 0, 2, 0);
    cr_assert_eq(rig_run(&rig, 0, RIG_BATCH, 1), OK, "%s", error_message());
    for (int r = 0; r < 3; r++) {
        struct ledger ledger = device_ledger(rig.device[r]);
        cr_assert_eq(ledger.peak[MEM_GATHERED] >= RIG_BATCH * 10 * sizeof(float), r == 2,
                     "device %d: %llu bytes of gathered output", r,
                     (unsigned long long)ledger.peak[MEM_GATHERED]);
        cr_assert_eq(ledger.now[MEM_OPTIMIZER] > 0, r == 0, "the optimizer stays on device 0");
    }
    rig_free(&rig);
}
