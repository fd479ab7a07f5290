/* Uneven inputs, as PyTorch's join: a rank whose batches are used up shadows the collectives of the
 * others, so that none of them waits for it.
 *
 *     step             0       1       2       3
 *     rank 0           step    step    step    step      has four batches
 *     rank 1           step    step    shadow  shadow    has two
 *     active ranks     2       2       1       1
 *
 * At the beginning of each step the ranks count who has input. A shadow launches the same buckets
 * in the same order, with zeros, and then updates from the sums like everybody else: so all ranks
 * hold the same parameters and the same state of the optimizer at every step. (PyTorch leaves
 * joined ranks behind and at the end broadcasts the parameters of a rank that was active to the
 * last; the momentum of the others stays behind. program_join.c does so too, for programs.) */
#include <string.h>

#include "base/error.h"
#include "ddp/state.h"

int ddp_bring_zeros(struct ddp *ddp) {
    struct param_set *params = ddp->params;
    int count = (int)params->arena_count; /* param_set_init refuses more */
    struct op_args args = {.out[0] = tensor_plain(params->grads, DTYPE_F32, 1, &count)};
    CHECK(launch(device_compute(ddp->device), OP_FILL, &args));
    memset(ddp->used, !ddp->config.find_unused, (size_t)params->count);
    for (int i = 0; i < params->count; i++)
        CHECK(ddp_count_gradient(ddp, ddp->plan.order[i]));
    return OK;
}

static int shadow(struct ddp *ddp, const struct step_block *block, int *active) {
    struct replica *r = ddp->replica;
    if (ddp->config.join == DDP_JOIN_OFF)
        return fail(ERR_USAGE, "ddp: a rank without input: give ddp_config.join");
    CHECK(replica_write_step(r, block));
    CHECK(ddp_count_active(ddp, 0, active));
    if (!*active) return OK;
    CHECK(ddp_open_step(ddp, r->step_number));
    CHECK(ddp_broadcast_buffers(ddp, r->step_number));
    CHECK(replica_hash_values(r));
    CHECK(replica_log_nothing(r));
    CHECK(ddp_bring_zeros(ddp));
    CHECK(ddp_close_step(ddp));
    return replica_update(r);
}

int ddp_shadow(struct ddp *ddp, const struct step_block *block, int *active) {
    return ddp_ended(ddp, shadow(ddp, block, active));
}
