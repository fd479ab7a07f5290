/* The beginning and the end of a DataParallel run: replicas, the buffers of device 0 and of the
 * output device, the events, and the threads. */
#include <stdlib.h>

#include "base/error.h"
#include "dp/state.h"

static const double DEFAULT_TIMEOUT_S = 300;
/* the waits inside a replica end first, so that the error says which of them it was */
static const double JOIN_GRACE_S = 5;

static int check(const struct dp_config *c) {
    if (c->devices < 1 || c->devices > MAX_DEVICES)
        return fail(ERR_USAGE, "DataParallel: %d devices: give 1 to %d", c->devices, MAX_DEVICES);
    if (c->segments < c->devices || c->segments > MAX_DEVICES || c->segments % c->devices)
        return fail(ERR_USAGE,
                    "DataParallel: %d segments over %d devices: give a multiple, at most %d",
                    c->segments, c->devices, MAX_DEVICES);
    if (c->max_samples < 1 || c->log_rows < 1)
        return fail(ERR_USAGE,
                    "DataParallel: batches of %d samples, logs of %d rows: give at least 1 each",
                    c->max_samples, c->log_rows);
    if (c->output_device < 0 || c->output_device >= c->devices)
        return fail(ERR_USAGE, "DataParallel: output device %d: there are devices 0 to %d",
                    c->output_device, c->devices - 1);
    return OK;
}

/* Device 0 holds the whole batch. Another device never gets more than k segments of ceil(batch / S)
 * samples each. */
static int init_replica(struct dp *dp, const struct dp_config *c, int r) {
    int k = c->segments / c->devices, most = (c->max_samples + c->segments - 1) / c->segments * k;
    struct replica_config config = {
        .max_samples = r ? most : c->max_samples,
        .log_rows = c->log_rows,
        .log_segments = r == dp->output_device ? c->segments
                        : dp->own_loss         ? k
                                               : 0,
        .hashes = c->hashes,
        .passes = c->passes,
        .pass_segments = k,
        .optimizer = r == 0,
        .update = c->update,
        .blocking_copies = c->blocking_copies,
        .graph = c->graph,
    };
    CHECK(replica_init(&dp->replica[r], c->device[r], c->model, &config, r ? NULL : c->values));
    if (r == dp->output_device || dp->own_loss) return OK;
    return device_alloc(c->device[r], (void **)&dp->grad_share[r],
                        (size_t)most * (size_t)c->model->classes * sizeof(float), MEM_ACTIVATIONS);
}

static int init_loss(struct dp *dp, const struct dp_config *c) {
    struct device *output = c->device[dp->output_device];
    struct tensor labels = model_answers(c->model, NULL, c->max_samples);
    if (dp->own_loss) return OK;
    dp->gathered = tensor_plain(NULL, DTYPE_F32, 2, (int[]){c->max_samples, c->model->classes});
    CHECK(device_alloc(output, &dp->gathered.data, tensor_bytes(&dp->gathered), MEM_GATHERED));
    if (dp->output_device > 0)
        CHECK(device_alloc(output, &dp->labels, tensor_bytes(&labels), MEM_INPUT));
    CHECK(tape_init(&dp->loss_tape, output));
    tape_set_cause(dp->loss_tape, MEM_GATHERED); /* dL/dy and the losses of the gathered rows */
    recorded_watch(&dp->replica[dp->output_device].recorded, dp->loss_tape);
    return OK;
}

static size_t largest_range(const struct param_range *groups, int count) {
    size_t most = 0;
    for (int g = 0; g < count; g++)
        if (most < groups[g].count) most = groups[g].count;
    return most;
}

static int init_moves(struct dp *dp, const struct dp_config *c) {
    float *grads[MAX_DEVICES];
    CHECK(device_group_init(&dp->group, c->devices, c->device));
    for (int r = 0; r < c->devices; r++) {
        CHECK(group_ready(&dp->group, r)); /* a new replica has enqueued zeros */
        grads[r] = dp->replica[r].params.grads;
    }
    dp->groups = malloc(((size_t)c->model->param_count + 1) * sizeof *dp->groups);
    if (!dp->groups) return fail(ERR_MEMORY, "DataParallel: no host memory");
    CHECK(coalesce_params(&dp->replica[0].params, 0, COALESCE_BYTES, dp->groups, &dp->group_count));
    if (dp->sharded)
        return sharded_reduce_init(&dp->shards, &dp->group, grads, dp->groups, dp->group_count);
    return reduce_plan_init(&dp->reduce, &dp->group, 0, grads,
                            largest_range(dp->groups, dp->group_count));
}

int dp_init(struct dp **out, const struct dp_config *c) {
    int code = OK;
    *out = NULL;
    CHECK(check(c));
    struct dp *dp = calloc(1, sizeof *dp);
    if (!dp) return fail(ERR_MEMORY, "DataParallel: no host memory");
    dp->count = c->devices;
    dp->segments = c->segments;
    dp->own_loss = c->loss_in_forward || c->devices == 1;
    dp->output_device = c->output_device;
    dp->sharded = c->sharded_reduce;
    span_log_init(&dp->waits, device_config(c->device[0])->spans);
    for (int r = 0; r < c->devices; r++)
        CHECK_GOTO(init_replica(dp, c, r), code, failed);
    CHECK_GOTO(init_loss(dp, c), code, failed);
    CHECK_GOTO(init_moves(dp, c), code, failed);
    double timeout_s = (c->timeout_s > 0 ? c->timeout_s : DEFAULT_TIMEOUT_S) + JOIN_GRACE_S;
    CHECK_GOTO(workers_init(&dp->workers, c->devices, timeout_s), code, failed);
    *out = dp;
    return OK;

failed:
    dp_free(dp);
    return code;
}

/* First the threads end, then what is enqueued, and then the memory is freed. */
int dp_free(struct dp *dp) {
    if (!dp) return 1;
    if (!workers_free(dp->workers)) return 0; /* a lost thread may still use everything */
    for (int r = 0; r < dp->count; r++)
        if (dp->replica[r].device) stream_sync(device_compute(dp->replica[r].device));
    reduce_plan_free(&dp->reduce);
    sharded_reduce_free(&dp->shards);
    device_group_free(&dp->group);
    duet_tape_free(dp->loss_tape);
    for (int r = 0; r < dp->count; r++) {
        if (!dp->replica[r].device) continue;
        if (r == dp->output_device) device_free(dp->replica[r].device, dp->gathered.data);
        if (r == dp->output_device) device_free(dp->replica[r].device, dp->labels);
        device_free(dp->replica[r].device, dp->grad_share[r]);
        replica_free(&dp->replica[r]);
    }
    free(dp->groups);
    span_log_free(&dp->waits);
    free(dp);
    return 1;
}
