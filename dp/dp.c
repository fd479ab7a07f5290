/* DataParallel. A step goes from top to bottom; every arrow is memory of one device
 * that is copied to, or read by, another, and device 0's stream executes all of them:
 *
 *     thread 0 = the caller, device 0                        thread r, device r = 1 .. W-1
 *     ---------------------------------------------------    -----------------------------------
 *     input         host -> 0     the whole global batch     (asleep)
 *     scatter       0 --- rows of pixels (and labels*) --->  r
 *     replicate     0 --- parameters and buffers, always ->  r
 *     ============================== all threads start =========================================
 *     forward (its own share)                                forward (its own share)
 *     ========================== all threads have come back ====================================
 *     gather        0 <-- output -------------------------   r
 *     loss          over the whole batch, on its own tape    (asleep)
 *     scatter_grad  0 --- rows of dL/dy ------------------>  r
 *     ============================== all threads start =========================================
 *     backward                                               backward
 *     ========================== all threads have come back ====================================
 *     reduce        0 <-- gradients, summed as they are read r
 *     optimizer     on device 0 alone                        (asleep)
 *
 * Device 0 does everything that the others do. Besides, it holds the whole batch, all outputs and
 * their gradient, carries every byte that moves, and computes loss and update while the others
 * sleep. That is why DDP exists (ddp/). Two settings take some of it from device 0, and the bits
 * stay: --output-device D has gather, loss and scatter_grad done by device D (dp/loss.c), and
 * --dp-reduce sharded has every other device add up a part (scatter_gather/shards.h):
 *
 *     ============================== all threads start =========================================
 *     (waits)                                                reads shard r of all gradients,
 *                                                            sums it
 *     ========================== all threads have come back ====================================
 *     reduce        0 <-- the summed shards --------------   r
 *
 * *) With --loss-in-forward labels are scattered too; each device computes its own loss at the end
 * of forward and goes straight on into backward. Gather then fetches S loss sums in place of all
 * outputs, and scatter_grad and the second start are left out. The bits are the same, because the
 * loss and the gradient of a row depend on that row and on 1/B alone. A single device is run in
 * this way too: there is nothing to gather.
 *
 * Who waits for whom. Threads wait at the bars: dp/worker.h. Streams wait for events
 * (scatter_gather/device_group.h): stream 0 waits for ready[r], which thread r records at the end
 * of its part, when all that it reads and writes is enqueued; stream r waits, at the start of its
 * part, for `done`, which stream 0 records behind each collective. What the threads hand over is
 * enqueued, not finished: on an asynchronous device no thread waits for a kernel.
 *
 * Several passes a step (gradient accumulation): each pass goes from input to backward; reduce and
 * optimizer come once, behind the last. PyTorch reduces in every pass, which moves more bytes and
 * adds in another order: (pass 1 over all devices) + (pass 2 over all devices).
 *
 * A device without samples (a short last batch) takes part with 0 rows. Its gradients are exact
 * zeros and are added like any others, as a single device adds an empty segment's: -0 + 0 is +0, so
 * leaving them out would not give the same bits. (PyTorch uses fewer replicas then.) */
#include "dp/dp.h"

#include "base/clock.h"
#include "base/error.h"
#include "dp/state.h"

/* ---- the parts of a step that run on every device's own thread ---- */

/* Runs a part between the events that order its stream. The last event is recorded also after a
 * failure, so that the next step finds the streams in order. */
static int in_order(struct dp *dp, int r, int (*part)(struct dp *, int)) {
    CHECK(group_follow(&dp->group, r));
    int code = part(dp, r);
    if (!code) return group_ready(&dp->group, r);
    struct failures first = {0};
    failures_add(&first, code);
    group_ready(&dp->group, r);
    return failures_end(&first);
}

/* With its own loss a device goes straight on from forward to backward. */
static int forward_loss_backward(struct dp *dp, int r) {
    struct replica *replica = &dp->replica[r];
    const struct segments *share = &dp->share[r];
    duet_var *output, *loss;
    int code = OK;
    if (replica_enter(replica, dp->training ? WORK_TRAIN : WORK_EVALUATE, share)) {
        code = replica_forward(replica, share, dp->training, &output);
        if (!code) code = replica_loss(replica, output, dp->training, &loss);
        if (!code && dp->training) code = replica_backward(replica, loss, NULL);
    }
    return replica_leave(replica, code);
}

/* Without it forward and backward are the two parts of one recorded step, since gather, loss and
 * scatter_grad lie between them. What those need of a replayed forward, the place of its output, is
 * kept with the recording. Its key is the whole batch, not the share: where device 0's dL/dy lies
 * depends on all of it. */
static int forward_alone(struct dp *dp, int r) {
    struct replica *replica = &dp->replica[r];
    struct recorded *recorded = &replica->recorded;
    struct recorded_key key =
        replica_key(replica, dp->training ? WORK_TRAIN : WORK_EVALUATE, dp->all);
    int code = OK;
    recorded_begin(recorded, &key, dp->training ? 2 : 1);
    if (recorded_enter(recorded, "forward")) {
        code = replica_forward(replica, &dp->share[r], dp->training, &dp->output[r]);
        if (!code) *recorded_output(recorded) = dp->output[r]->value;
    }
    return recorded_leave(recorded, code);
}

static int forward(struct dp *dp, int r) {
    if (r > 0) CHECK(dp_write_step(dp, r));
    return dp->own_loss ? forward_loss_backward(dp, r) : forward_alone(dp, r);
}

static int backward(struct dp *dp, int r) {
    struct replica *replica = &dp->replica[r];
    int code = OK;
    if (recorded_enter(&replica->recorded, "backward"))
        code = replica_backward(replica, dp->output[r], &dp->grad_output[r]);
    return recorded_leave(&replica->recorded, code);
}

static int hash_values(struct dp *dp, int r) {
    if (r > 0) CHECK(replica_write_other(&dp->replica[r], dp->step, PHASE_PROOF));
    return replica_hash_values(&dp->replica[r]);
}

static int forward_task(void *dp, int r) {
    return in_order(dp, r, forward);
}
static int backward_task(void *dp, int r) {
    return in_order(dp, r, backward);
}
static int hash_values_task(void *dp, int r) {
    return in_order(dp, r, hash_values);
}

static int on_all_devices(struct dp *dp, enum phase phase, worker_task *task) {
    struct span wait = {.step = dp->replica[0].step_number,
                        .phase = (uint8_t)(dp->training ? phase : PHASE_EVALUATE),
                        .device = (int16_t)device_index(dp->group.device[0]),
                        .lane = LANE_HOST,
                        .waiting = 1,
                        .name = "wait for replicas"};
    int failed = workers_run(dp->workers, task, dp, &wait.start_ns);
    wait.end_ns = now_ns();
    if (dp->count > 1) span_add(&dp->waits, &wait);
    return failed < 0 ? OK
                      : workers_caught(dp->workers, failed, device_index(dp->group.device[failed]));
}

/* ---- the parts on device 0's thread ---- */

static int begin_row(struct dp *dp, const struct step_block *step, int training) {
    int rows = dp->replica[0].config.log_rows;
    if (step->slot < 0 || step->slot >= rows)
        return fail(ERR_FAILED, "DataParallel: row %d of the logs: they have %d: read them in time",
                    step->slot, rows);
    dp->step = step;
    dp->training = training;
    return OK;
}

/* The words of PyTorch, because users search for them. PyTorch asks it before every forward, and so
 * does this: dp_replica hands out device 0's parameters, and whoever moves them is told. */
static int check_module(struct dp *dp) {
    const struct replica *replica = &dp->replica[0];
    const struct device *first = dp->group.device[0], *found = replica->params.device;
    if (found == first && replica->buffers.count) found = replica->buffers.device;
    if (found == first) return OK;
    return fail(
        ERR_FAILED,
        "module must have its parameters and buffers on device %s (device_ids[0]) but found "
        "one of them on device: %s",
        device_name(first), device_name(found));
}

/* Cuts the batch into the devices' shares: k segments each, device 0's first. */
static int cut(struct dp *dp, const struct segments *all) {
    int k = dp->segments / dp->count, total = 0;
    if (all->count != dp->segments || all->n < 1)
        return fail(ERR_FAILED,
                    "DataParallel: a batch of %d samples in %d segments: it was set up for %d "
                    "segments of at least one sample",
                    all->n, all->count, dp->segments);
    for (int r = 0; r < dp->count; r++) {
        struct segments *share = &dp->share[r];
        share->count = k;
        share->n = 0;
        for (int i = 0; i < k; i++) {
            share->seg[i] = all->seg[r * k + i];
            share->n += share->seg[i].n;
        }
        total += dp->sizes[r] = share->n;
        if (share->n > dp->replica[r].config.max_samples)
            return fail(ERR_FAILED,
                        "DataParallel: %d samples for device %d: its input buffer holds %d",
                        share->n, r, dp->replica[r].config.max_samples);
    }
    if (total != all->n)
        return fail(ERR_FAILED, "DataParallel: segments of %d samples in a batch of %d", total,
                    all->n);
    return OK;
}

static int begin(struct dp *dp, const struct step_block *step, const struct batch *batch,
                 int training) {
    CHECK(check_module(dp));
    CHECK(cut(dp, &batch->segments));
    dp->all = &batch->segments;
    dp->loss_sizes[dp->output_device] = dp->all->n;
    return begin_row(dp, step, training);
}

/* ---- a step ---- */

static int add_shard_task(void *context, int r) {
    struct dp *dp = context;
    stream_set_phase(device_compute(dp->group.device[r]), PHASE_REDUCE, dp->replica[0].step_number);
    return sharded_reduce_add(&dp->shards, r);
}

static int reduce(struct dp *dp) {
    if (!dp->sharded) return dp_reduce_to_first(dp);
    CHECK(on_all_devices(dp, PHASE_REDUCE, add_shard_task));
    return dp_collect_shards(dp);
}

int dp_step(struct dp *dp, const struct step_block *step, const struct batch *batch) {
    CHECK(begin(dp, step, batch, 1));
    CHECK(dp_input(dp, batch));
    CHECK(dp_scatter(dp));
    CHECK(dp_begin_loss(dp));
    CHECK(dp_replicate(dp, PHASE_REPLICATE));
    CHECK(on_all_devices(dp, PHASE_FORWARD, forward_task));
    CHECK(dp_loss(dp));
    /* with its own loss forward_task has gone on into backward */
    if (!dp->own_loss) CHECK(on_all_devices(dp, PHASE_BACKWARD, backward_task));
    if (step->more_passes) return OK; /* each device keeps its own sums until the last pass */
    CHECK(reduce(dp));
    for (int r = 1; r < dp->count; r++)
        replica_add_used(&dp->replica[0], dp->replica[r].used);
    return replica_update(&dp->replica[0]);
}

int dp_evaluate(struct dp *dp, const struct step_block *step, const struct batch *batch) {
    CHECK(begin(dp, step, batch, 0));
    CHECK(dp_input(dp, batch));
    CHECK(dp_scatter(dp));
    CHECK(dp_begin_loss(dp));
    CHECK(dp_replicate(dp, PHASE_EVALUATE)); /* the last update has reached device 0 alone */
    CHECK(on_all_devices(dp, PHASE_FORWARD, forward_task));
    return dp_loss(dp);
}

int dp_hash_values(struct dp *dp, const struct step_block *step) {
    CHECK(begin_row(dp, step, 1));
    CHECK(replica_write_other(&dp->replica[0], step, PHASE_PROOF));
    CHECK(dp_replicate(dp, PHASE_PROOF));
    return on_all_devices(dp, PHASE_PROOF, hash_values_task);
}

struct replica *dp_replica(struct dp *dp, int index) {
    return &dp->replica[index];
}

struct span_log *dp_waits(struct dp *dp) {
    return &dp->waits;
}
