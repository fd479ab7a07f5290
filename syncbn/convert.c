/* Gives a duet_params SyncBatchNorm: from then on every tape that begins a pass with it has the
 * exchange of syncbn.c, which batch_norm uses. In duet.h the call is
 * duet_convert_sync_batchnorm. */
#include <stdio.h>
#include <stdlib.h>

#include "group/group.h"
#include "syncbn/syncbn.h"

struct params_sync {
    struct norm_sync api;
    struct syncbn *syncbn; /* NULL: there is one rank */
    struct tape_exchange exchange;
};

static void free_sync(struct norm_sync *api) {
    struct params_sync *s = (struct params_sync *)api;
    syncbn_free(s->syncbn);
    free(s);
}

/* A weight of batch_norm has one dimension, the channels: so no layer has more than the longest
 * such parameter. */
static int most_channels(const struct param_set *set) {
    int most = 0;
    for (int i = 0; i < set->count; i++)
        if (set->param[i].value.rank == 1 && set->param[i].value.dims[0] > most)
            most = set->param[i].value.dims[0];
    return most;
}

/* All ranks share memory of one size. */
static int check_same(struct group *group, int channels) {
    struct comm *comm = group_comm(group);
    int all[MAX_DEVICES];
    CHECK(group_announce(group, "SyncBatchNorm: setup"));
    CHECK(comm_gather(comm, &channels, sizeof channels, all));
    for (int r = 0; r < comm_world_size(comm); r++)
        if (all[r] != channels)
            return fail(ERR_FAILED,
                        "SyncBatchNorm: at most %d channels on this rank, and %d on rank %d: give "
                        "all ranks the same parameters",
                        channels, all[r], r);
    return OK;
}

static int make(struct params_sync *s, const struct syncbn_config *config) {
    if (comm_world_size(config->comm) == 1 || !config->channels) return OK;
    s->api.exchange = &s->exchange;
    return syncbn_init(&s->syncbn, config, &s->exchange);
}

int syncbn_convert(duet_params *params, struct comm *comm, struct announcer *group, int segments,
                   int segment) {
    const struct syncbn_config config = {.comm = comm,
                                         .group = group,
                                         .device = params->set.device,
                                         .segments = segments,
                                         .segment = segment,
                                         .channels = most_channels(&params->set)};
    struct params_sync *s = calloc(1, sizeof *s);
    int code = s ? make(s, &config) : fail(ERR_MEMORY, "SyncBatchNorm: out of host memory");
    if (code) {
        free(s);
        return code;
    }
    s->api.free = free_sync;
    params->sync = &s->api;
    return OK;
}

static int check_convert(const duet_params *params, const duet_group *group) {
    if (!group || !params)
        return fail(ERR_USAGE, "SyncBatchNorm: no %s given",
                    group ? "parameters were" : "group was");
    if (params->sync)
        return fail(ERR_USAGE, "SyncBatchNorm: the parameters have been converted already");
    if (!group_comm((const struct group *)group))
        return fail(ERR_USAGE,
                    "SyncBatchNorm: a group of %d ranks of the job, or in another order: give the "
                    "group of all "
                    "ranks",
                    group_size((const struct group *)group));
    return OK;
}

static int convert(duet_params *params, struct group *group) {
    struct comm *comm = group_comm(group);
    CHECK(check_same(group, most_channels(&params->set)));
    return syncbn_convert(params, comm, group_order(group), comm_world_size(comm), comm_rank(comm));
}

int duet_convert_sync_batchnorm(duet_params *params, duet_group *group) {
    CHECK(check_convert(params, group));
    int code = convert(params, (struct group *)group);
    if (code) comm_abort(group_comm((struct group *)group), code, error_message());
    return code;
}
