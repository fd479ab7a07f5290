/* If a step may leave out parameters or ranks, the ranks meet on the host in every step. They tell
 * each other which ranks have input (join), and which parameters each rank used (find_unused). A
 * rank that waits on the host must not hold work in its streams that a peer needs, so it first
 * waits for its streams. With join, values come from the last rank that had input. */
#include <string.h>

#include "base/error.h"
#include "ddp/state.h"
#include "group/group.h"

/* PyTorch's words, which users search for. The rank that ran out is to blame. */
static int thrown(const struct duet_ddp *ddp, int mine) {
    if (!mine) return fail(ERR_FAILED, "Rank %d exhausted all inputs.", comm_rank(ddp->comm));
    return fail(ERR_PEER,
                "Detected at least one rank that exhausted inputs. Throwing across all ranks.");
}

int ddp_count_active(struct duet_ddp *ddp, int mine, int *active) {
    int all[MAX_DEVICES], world = comm_world_size(ddp->comm);
    *active = world;
    if (ddp->config.join == DUET_JOIN_OFF) return OK;
    CHECK(stream_sync(device_compute(ddp->device)));
    CHECK(group_announce(ddp->group, "DDP: join"));
    CHECK(comm_gather(ddp->comm, &mine, sizeof mine, all));
    *active = 0;
    for (int r = 0; r < world; r++) {
        *active += all[r];
        if (all[r]) ddp->source = r;
    }
    int uneven = *active && *active < world;
    if (ddp->config.join == DUET_JOIN_THROW && uneven) return thrown(ddp, mine);
    if (ddp->config.join == DUET_JOIN_ACTIVE && ddp->config.divide && *active)
        ddp->scale = 1.0f / (float)*active;
    return OK;
}

int ddp_check_join(const struct duet_ddp *ddp) {
    if (!ddp->config.join || !ddp->owner->sync || ddp->config.join == DUET_JOIN_THROW) return OK;
    return fail(ERR_USAGE, "join: a rank without batches cannot take part in SyncBatchNorm's "
                           "forward: give DUET_JOIN_THROW");
}

/* Device memory of `bytes`, a multiple of 4, the same on all ranks. Its numbers fit into an int:
 * param_set_init and buffer_set_init refuse more. */
static int broadcast_from_source(struct duet_ddp *ddp, void *data, size_t bytes) {
    const int count = (int)(bytes / sizeof(float));
    struct duet_tensor all = {
        .device = ddp->device, .t = tensor_plain(data, DTYPE_F32, 1, &count), .borrowed = 1};
    return count ? duet_broadcast(ddp->hooks.group, &all, ddp->source, NULL) : OK;
}

int ddp_join_values(struct duet_ddp *ddp) {
    const struct param_set *set = ddp->params;
    return broadcast_from_source(ddp, set->values, set->arena_count * sizeof(float));
}

int ddp_join_buffers(struct duet_ddp *ddp) {
    const struct buffer_set *set = &ddp->owner->buffers;
    return ddp->config.own_buffers ? OK : broadcast_from_source(ddp, set->arena, set->bytes);
}

/* A parameter that any rank used is updated on all, from the sum in which the others' parts are
 * zero; one that none used is unchanged. Only a rank's host knows what the rank used. */
int ddp_agree_on_used(struct duet_ddp *ddp) {
    size_t count = (size_t)ddp->params->count;
    if (!ddp->config.find_unused) return OK;
    CHECK(stream_sync(device_compute(ddp->device)));
    CHECK(group_announce(ddp->group, "DDP: used parameters"));
    CHECK(comm_gather(ddp->comm, ddp->used, count, ddp->all_used));
    for (int rank = 0; rank < comm_world_size(ddp->comm); rank++) {
        const char *used = ddp->all_used + (size_t)rank * count;
        ddp->found_unused |= param_set_lacks(ddp->params, used);
        for (size_t i = 0; i < count; i++)
            ddp->used[i] |= used[i];
    }
    return OK;
}

int ddp_found_unused(const struct duet_ddp *ddp) {
    return ddp->found_unused;
}
