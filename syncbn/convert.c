/* duet_convert_sync_batchnorm: SyncBatchNorm for a program. From then on every tape that begins a
 * pass with these parameters has the exchange of syncbn.c, and its batch_norm uses it. */
#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "group/group.h"
#include "syncbn/syncbn.h"

struct program_sync {
    struct norm_sync api;
    struct syncbn *syncbn; /* NULL: there is one rank */
};

static void free_sync(struct norm_sync *api) {
    struct program_sync *s = (struct program_sync *)api;
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
    CHECK(comm_exchange(comm, &channels, sizeof channels, -1, all, NULL));
    for (int r = 0; r < comm_world_size(comm); r++)
        if (all[r] != channels)
            return fail(ERR_FAILED,
                        "SyncBatchNorm: at most %d channels on this rank, and %d on rank %d: give "
                        "all ranks the same parameters",
                        channels, all[r], r);
    return OK;
}

static int make(struct program_sync *s, struct group *group, struct duet_params *params) {
    struct comm *comm = group_comm(group);
    int channels = most_channels(&params->set);
    CHECK(check_same(group, channels));
    if (comm_world_size(comm) == 1 || !channels) return OK;
    return syncbn_init_alone(&s->syncbn, comm, group_order(group), params->set.device, channels,
                             &s->api.exchange);
}

static int check(const duet_params *params, const duet_group *group) {
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

int duet_convert_sync_batchnorm(duet_params *params, duet_group *group) {
    CHECK(check(params, group));
    struct program_sync *s = calloc(1, sizeof *s);
    int code = s ? make(s, (struct group *)group, params)
                 : fail(ERR_MEMORY, "SyncBatchNorm: no host memory");
    if (!code) {
        s->api.free = free_sync;
        params->sync = &s->api;
        return OK;
    }
    comm_abort(group_comm((struct group *)group), code, error_message());
    free(s);
    return code;
}
