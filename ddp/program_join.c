/* duet_ddp_join: what a rank of a program does when its batches have run out. join.c says what a
 * shadow is. Shadows do not update their parameters here, since the optimizer is the program's. So
 * after the last step all ranks get the parameters and buffers of a rank that took part in it, as
 * in PyTorch. */
#include "ddp/program.h"

int program_check_join(const struct duet_ddp *d) {
    if (!d->join || !d->params->sync || d->ddp->config.join == DDP_JOIN_THROW) return OK;
    return fail(ERR_USAGE, "join: a rank without batches cannot take part in SyncBatchNorm's "
                           "forward: give DUET_JOIN_THROW");
}

/* Device memory of `bytes`, a multiple of 4, on all ranks alike. Its numbers fit into an int:
 * param_set_init and buffer_set_init refuse more. */
static int broadcast_from(struct duet_ddp *d, void *data, size_t bytes, int root) {
    const int count = (int)(bytes / sizeof(float));
    struct duet_tensor all = {.device = d->params->set.device,
                              .t = tensor_plain(data, DTYPE_F32, 1, &count),
                              .borrowed = 1};
    return count ? duet_broadcast(d->hooks.group, &all, root, NULL) : OK;
}

int program_join_buffers(struct duet_ddp *d) {
    struct buffer_set *set = &d->params->buffers;
    if (d->ddp->config.own_buffers) return OK;
    return ddp_ended(d->ddp, broadcast_from(d, set->arena, set->bytes, d->ddp->source));
}

/* One step of the others. *active 0: nobody has batches, and nothing was done. */
static int shadow(struct duet_ddp *d, int *active) {
    CHECK(ddp_count_active(d->ddp, 0, active));
    if (!*active) return OK;
    CHECK(ddp_open_step(d->ddp, d->step++));
    program_show_gradients(d->params);
    if (d->sync_buffers) CHECK(program_join_buffers(d));
    d->sync_buffers = 1;
    CHECK(ddp_bring_zeros(d->ddp));
    CHECK(ddp_close_step(d->ddp));
    return hooks_finish(&d->hooks);
}

static int join(struct duet_ddp *d) {
    struct param_set *set = &d->params->set;
    int active;
    do
        CHECK(shadow(d, &active));
    while (active);
    CHECK(broadcast_from(d, set->values, set->arena_count * sizeof(float), d->ddp->source));
    return program_join_buffers(d);
}

int duet_ddp_join(duet_ddp *d) {
    if (!d) return fail(ERR_USAGE, "join: no ddp was given");
    if (!d->join) return fail(ERR_USAGE, "join: the ddp was made without: set join in its options");
    if (d->ddp->expecting)
        return fail(ERR_USAGE, "join: in the middle of an update: call duet_backward first");
    return ddp_ended(d->ddp, join(d));
}
