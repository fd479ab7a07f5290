/* Uneven inputs, like PyTorch's join. A rank that has used up its batches shadows the collectives
 * of the others, so that none of them waits for it.
 *
 *     step             0       1       2       3
 *     rank 0           step    step    step    step      has four batches
 *     rank 1           step    step    shadow  shadow    has two
 *     active ranks     2       2       1       1
 *
 * At the beginning of each step the ranks count how many have input. A shadow launches the same
 * buckets in the same order, with zeros, and then updates from the sums like all other ranks. So
 * all ranks hold the same parameters and the same optimizer state at every step. (PyTorch does not
 * update joined ranks, and at the end broadcasts the parameters of a rank that was active to the
 * last; the momentum of the others stays old. duet_ddp_join does the same at the end.) */
#include <string.h>

#include "base/error.h"
#include "ddp/state.h"

/* The gradients of a rank without input: zeros, ready at once in the order of the buckets. */
static int bring_zeros(struct duet_ddp *ddp) {
    struct param_set *params = ddp->params;
    int count = (int)params->grad_count; /* param_set_init refuses more */
    struct op_args args = {.out[0] = tensor_plain(params->grads, DTYPE_F32, 1, &count)};
    CHECK(launch(device_compute(ddp->device), OP_FILL, &args));
    if (ddp->config.find_unused) memset(ddp->used, 0, (size_t)params->count);
    for (int i = 0; i < ddp->plan.param_count; i++)
        CHECK(ddp_gradient_ready(ddp, ddp->plan.order[i]));
    return OK;
}

int ddp_shadow_pass(struct duet_ddp *ddp, int32_t step, int (*forward)(void *context),
                    void *context, int *active) {
    CHECK(ddp_count_active(ddp, 0, active));
    if (!*active) return OK;
    CHECK(ddp_open_step(ddp, step));
    CHECK(forward(context));
    CHECK(bring_zeros(ddp));
    return ddp_close_step(ddp);
}

/* ---- programs: duet_ddp_join ----
 *
 * Shadows do not update their parameters here, since the optimizer is the program's. So after the
 * last step all ranks get the parameters and buffers of a rank that took part in it. */

static int program_shadows(void *context) {
    struct duet_ddp *d = context;
    int sync = d->sync_buffers;
    params_show_gradients(d->owner);
    d->sync_buffers = 1;
    return sync ? ddp_join_buffers(d) : OK;
}

/* One step of the others. *active 0: nobody has batches, and nothing was done. */
static int shadow_one(struct duet_ddp *d, int *active) {
    CHECK(ddp_shadow_pass(d, d->step + 1, program_shadows, d, active));
    return *active ? hooks_finish(&d->hooks) : OK;
}

static int join(struct duet_ddp *d) {
    int active;
    do
        CHECK(shadow_one(d, &active));
    while (active);
    CHECK(ddp_join_values(d));
    return ddp_join_buffers(d);
}

int duet_ddp_join(duet_ddp *d) {
    if (!d) return fail(ERR_USAGE, "join: no ddp was given");
    if (!d->config.join)
        return fail(ERR_USAGE, "join: the ddp was made without join: set join in its options");
    if (d->expecting)
        return fail(ERR_USAGE, "join: in the middle of an update: call duet_backward first");
    return ddp_ended(d, join(d));
}
