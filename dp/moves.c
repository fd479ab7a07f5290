/* Threads, events and copies of DataParallel; see moves.h. dp.c has a drawing. */
#include "dp/moves.h"

#include "base/clock.h"
#include "base/error.h"

/* The spans of the leading device's next moves have this phase. */
static void enter(struct dp *dp, enum phase phase) {
    stream_set_phase(dp->group.stream, dp->training ? phase : PHASE_EVALUATE, dp->step);
}

/* ---- the parts of a step that run on every device's own thread ---- */

/* Runs a part between the events that order its stream. The last event is recorded even after a
 * failure, so that the next step finds the streams in order. */
static int in_order(void *context, int r) {
    struct dp *dp = context;
    CHECK(device_group_follow(&dp->group, r));
    stream_set_phase(device_compute(dp->group.device[r]), dp->phase, dp->step);
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
    dp->phase = dp->training ? phase : PHASE_EVALUATE;
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
        return fail(ERR_USAGE, "DataParallel: a duet_ddp uses the parameters: free it first");
    if (params->sync)
        return fail(ERR_USAGE, "SyncBatchNorm is only supported within "
                               "torch.nn.parallel.DistributedDataParallel: make parameters that "
                               "are not converted");
    return OK;
}

/* As in PyTorch this is checked before every forward: a program that moves them gets the error. */
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

/* The other devices read buffers in evaluation; changes to their own copies are lost, since the
 * next replicate overwrites them. So a model's buffers are those of device 0, as in PyTorch. */
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
    enter(dp, phase);
    CHECK(broadcast_coalesced(&dp->group, values, dp->groups, dp->group_count));
    return replicate_buffers(dp);
}

int dp_at_output(struct dp *dp, int (*work)(void *context), void *context) {
    struct failures first = {0};
    CHECK(device_group_lead(&dp->group, dp->output_device));
    if (work) failures_add(&first, work(context));
    int back = device_group_lead(&dp->group, 0);
    CHECK(failures_end(&first));
    return back;
}

/* ---- moves ---- */

int dp_scatter(struct dp *dp, enum phase phase, const struct dp_rows *rows, int count) {
    enter(dp, phase);
    for (int i = 0; i < count; i++)
        CHECK(scatter(&dp->group, &rows[i].whole, rows[i].sizes, rows[i].parts));
    return OK;
}

int dp_gather(struct dp *dp, const struct tensor *parts, const int *sizes,
              const struct tensor *to) {
    enter(dp, PHASE_GATHER);
    return gather(&dp->group, parts, sizes, to);
}

static int add_shard(void *context, int r) {
    struct dp *dp = context;
    stream_set_phase(device_compute(dp->group.device[r]), PHASE_REDUCE, dp->step);
    return sharded_reduce_add(&dp->shards, r);
}

int dp_reduce(struct dp *dp) {
    if (dp->sharded) CHECK(run_on_all(dp, PHASE_REDUCE, add_shard));
    enter(dp, PHASE_REDUCE);
    return dp->sharded ? sharded_reduce_collect(&dp->shards)
                       : reduce_add_coalesced(&dp->reduce, dp->grad_groups, dp->grad_group_count);
}
