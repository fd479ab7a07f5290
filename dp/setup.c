/* Makes and frees what DataParallel needs: events, threads, and the memory of reduce. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dp/moves.h"

int dp_check_devices(int devices, int output_device) {
    if (devices < 1 || devices > MAX_DEVICES)
        return fail(ERR_USAGE, "DataParallel: %d devices: give 1 to %d", devices, MAX_DEVICES);
    if (output_device < 0 || output_device >= devices)
        return fail(ERR_USAGE, "DataParallel: output device %d: expected 0 to %d", output_device,
                    devices - 1);
    return OK;
}

/* The gradients have the layout of the values, unless a ddp has moved them. */
static int find_groups(struct dp *dp) {
    const struct param_set *set = &dp->params[0]->set;
    for (int i = 0; i < set->count; i++)
        if (set->param[i].grad_offset != set->param[i].value_offset)
            return fail(ERR_USAGE, "DataParallel: the parameters had a duet_ddp, which has moved "
                                   "their gradients: make new ones");
    dp->layout_version = set->layout_version;
    dp->buffer_bytes = dp->params[0]->buffers.bytes;
    dp->groups = malloc(((size_t)set->count + 1) * sizeof *dp->groups);
    dp->grad_groups = malloc(((size_t)set->count + 1) * sizeof *dp->grad_groups);
    if (!dp->groups || !dp->grad_groups)
        return fail(ERR_MEMORY, "DataParallel: out of host memory");
    CHECK(coalesce_params(set, 1, COALESCE_BYTES, dp->grad_groups, &dp->grad_group_count));
    return coalesce_params(set, 0, COALESCE_BYTES, dp->groups, &dp->group_count);
}

static int init_reduce(struct dp *dp, const struct sum_pieces *sums) {
    float *grads[MAX_DEVICES];
    size_t most = 0;
    for (int r = 0; r < dp->count; r++)
        grads[r] = dp->params[r]->set.grads;
    for (int g = 0; g < dp->grad_group_count; g++)
        if (most < dp->grad_groups[g].count) most = dp->grad_groups[g].count;
    if (dp->sharded)
        return sharded_reduce_init(&dp->shards, &dp->group, grads, dp->grad_groups,
                                   dp->grad_group_count, sums);
    return reduce_plan_init(&dp->reduce, &dp->group, 0, grads, most, sums);
}

static int build(struct dp *dp, const struct dp_config *c) {
    CHECK(device_group_init(&dp->group, c->devices, c->device));
    for (int r = 0; r < c->devices; r++)
        CHECK(device_group_ready(&dp->group, r)); /* new parameters have enqueued fills with zero */
    dp->params[0]->in_use = 1;
    CHECK(find_groups(dp));
    CHECK(init_reduce(dp, c->sums));
    return workers_init(&dp->workers, c->devices, c->timeout_s > 0 ? c->timeout_s : DP_TIMEOUT_S);
}

int dp_init(struct dp *dp, const struct dp_config *c) {
    memset(dp, 0, sizeof *dp);
    dp->count = c->devices;
    dp->output_device = c->output_device;
    dp->sharded = c->sharded_reduce;
    dp->context = c->context;
    memcpy(dp->params, c->params, (size_t)c->devices * sizeof *dp->params);
    span_log_init(&dp->waits, c->spans);
    int code = build(dp, c);
    if (code) dp_free(dp);
    return code;
}

/* First the threads end, then the enqueued work, and then the memory is freed. */
int dp_free(struct dp *dp) {
    if (!workers_free(dp->workers)) return 0; /* a lost thread may still use the whole struct */
    for (int r = 0; r < dp->group.count; r++)
        stream_sync(device_compute(dp->group.device[r]));
    reduce_plan_free(&dp->reduce);
    sharded_reduce_free(&dp->shards);
    device_group_free(&dp->group);
    free(dp->groups);
    free(dp->grad_groups);
    span_log_free(&dp->waits);
    memset(dp, 0, sizeof *dp);
    return 1;
}
