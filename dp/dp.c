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
 * stay: --output-device D has gather, loss and scatter_grad done by device D, and
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

void dp_enter(struct dp *dp, enum phase phase) {
    stream_set_phase(dp->group.stream, dp->training ? phase : PHASE_EVALUATE, dp->step);
}

/* ---- the parts of a step that run on every device's own thread ---- */

/* Runs a part between the events that order its stream. The last event is recorded also after a
 * failure, so that the next step finds the streams in order. */
static int in_order(void *context, int r) {
    struct dp *dp = context;
    CHECK(device_group_follow(&dp->group, r));
    int code = dp->part(dp->context, r);
    if (!code) return device_group_ready(&dp->group, r);
    struct failures first = {0};
    failures_add(&first, code);
    device_group_ready(&dp->group, r);
    return failures_end(&first);
}

/* r: a replica that failed; -1: none did. */
static int caught(const struct dp *dp, int r) {
    return r < 0 ? OK : workers_caught(dp->workers, r, device_index(dp->group.device[r]));
}

static int run_on_all(struct dp *dp, enum phase phase, worker_task *task) {
    struct span wait = {.step = dp->step,
                        .phase = (uint8_t)(dp->training ? phase : PHASE_EVALUATE),
                        .device = (int16_t)device_index(dp->group.device[0]),
                        .lane = LANE_HOST,
                        .waiting = 1,
                        .name = "wait for replicas"};
    int failed = workers_run(dp->workers, task, dp, &wait.start_ns);
    wait.end_ns = now_ns();
    if (dp->count > 1) span_add(&dp->waits, &wait);
    return caught(dp, failed);
}

int dp_on_all_devices(struct dp *dp, enum phase phase, worker_task *part) {
    dp->part = part;
    return run_on_all(dp, phase, in_order);
}

/* ---- the parts on device 0's thread ---- */

/* The words of PyTorch, because users search for them. */
int dp_check_module(const duet_params *params, const struct device *first) {
    const struct device *found = params->set.device;
    if (found == first && params->buffers.count) found = params->buffers.device;
    if (found != first)
        return fail(ERR_USAGE,
                    "module must have its parameters and buffers on device %s (device_ids[0]) but "
                    "found one of them on device: %s",
                    device_name(first), device_name(found));
    if (params->reducer)
        return fail(ERR_USAGE, "DataParallel: the parameters have a duet_ddp: free it first");
    if (params->sync)
        return fail(ERR_USAGE, "SyncBatchNorm is only supported within "
                               "torch.nn.parallel.DistributedDataParallel: make parameters that "
                               "are not converted");
    return OK;
}

/* PyTorch asks it before every forward, and so does this: whoever moves them is told. */
int dp_begin(struct dp *dp, int32_t step, int training) {
    CHECK(caught(dp, workers_lost(dp->workers)));
    CHECK(dp_check_module(dp->params[0], dp->group.device[0]));
    if (dp->params[0]->set.layout_version != dp->layout_version)
        return fail(ERR_USAGE, "DataParallel: a duet_ddp has moved the gradients: make new "
                               "parameters");
    if (dp->params[0]->buffers.bytes != dp->buffer_bytes)
        return fail(ERR_USAGE, "DataParallel: buffers were registered after it was made: register "
                               "them before");
    dp->step = step;
    dp->training = training;
    return OK;
}

/* The other devices read buffers in evaluation; what they write to theirs is lost, since the next
 * replicate overwrites it. So a model's buffers are those of device 0, as in PyTorch. */
static int replicate_buffers(struct dp *dp) {
    float *buffers[MAX_DEVICES];
    struct param_range whole = {0, dp->buffer_bytes / sizeof(float)};
    if (!whole.count) return OK;
    for (int r = 0; r < dp->count; r++)
        buffers[r] = dp->params[r]->buffers.arena;
    return broadcast_coalesced(&dp->group, buffers, &whole, 1);
}

int dp_replicate(struct dp *dp, enum phase phase) {
    float *values[MAX_DEVICES];
    for (int r = 0; r < dp->count; r++)
        values[r] = dp->params[r]->set.values;
    dp_enter(dp, phase);
    CHECK(broadcast_coalesced(&dp->group, values, dp->groups, dp->group_count));
    return replicate_buffers(dp);
}

int dp_at_output(struct dp *dp, int (*work)(void *context), void *context) {
    struct failures first = {0};
    CHECK(device_group_lead(&dp->group, dp->output_device));
    failures_add(&first, work(context));
    int back = device_group_lead(&dp->group, 0);
    CHECK(failures_end(&first));
    return back;
}

/* ---- a step ---- */

int dp_forward(struct dp *dp, const struct dp_rows *inputs, int count) {
    dp_enter(dp, PHASE_SCATTER);
    for (int i = 0; i < count; i++)
        CHECK(scatter(&dp->group, &inputs[i].whole, inputs[i].sizes, inputs[i].parts));
    CHECK(dp_replicate(dp, PHASE_REPLICATE)); /* the last update has reached device 0 alone */
    return dp_on_all_devices(dp, PHASE_FORWARD, dp->forward);
}

int dp_gather(struct dp *dp, const struct tensor *parts, const int *sizes,
              const struct tensor *to) {
    dp_enter(dp, PHASE_GATHER);
    return gather(&dp->group, parts, sizes, to);
}

int dp_scatter_grad(struct dp *dp, const struct dp_rows *grad) {
    dp_enter(dp, PHASE_SCATTER_GRAD);
    return scatter(&dp->group, &grad->whole, grad->sizes, grad->parts);
}

int dp_backward(struct dp *dp) {
    return dp_on_all_devices(dp, PHASE_BACKWARD, dp->backward);
}

static int add_shard(void *context, int r) {
    struct dp *dp = context;
    stream_set_phase(device_compute(dp->group.device[r]), PHASE_REDUCE, dp->step);
    return sharded_reduce_add(&dp->shards, r);
}

int dp_reduce(struct dp *dp) {
    if (dp->sharded) CHECK(run_on_all(dp, PHASE_REDUCE, add_shard));
    dp_enter(dp, PHASE_REDUCE);
    return dp->sharded ? sharded_reduce_collect(&dp->shards)
                       : reduce_add_coalesced(&dp->reduce, dp->grad_groups, dp->grad_group_count);
}
