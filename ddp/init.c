/* Makes and frees a ddp. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ddp/setup.h"
#include "ddp/state.h"
#include "group/group.h"

static int make_counters(struct duet_ddp *ddp) {
    size_t count = (size_t)ddp->params->count;
    ddp->pending = malloc(count * sizeof *ddp->pending); /* at most a bucket per parameter */
    ddp->ready_order = malloc(count * sizeof *ddp->ready_order);
    ddp->is_ready = calloc(count, 1);
    ddp->all_used = calloc(count * (size_t)comm_world_size(ddp->comm), 1);
    ddp->ready = calloc(count, sizeof *ddp->ready);
    if (!ddp->pending || !ddp->ready_order || !ddp->is_ready || !ddp->ready || !ddp->all_used)
        return fail(ERR_MEMORY, "ddp: counters of %zu parameters: the host is out of memory",
                    count);
    return OK;
}

static int init(struct duet_ddp *ddp, struct buffer_set *buffers) {
    ddp->owner->in_use = 1;
    CHECK(ddp_check_shapes(ddp->comm, ddp->params));
    if (!ddp->params->trained)
        return fail(
            ERR_FAILED,
            "DistributedDataParallel is not needed when a module doesn't have any parameter that "
            "requires a gradient.");
    CHECK(bucket_limits(ddp->config.bucket_cap_mb, ddp->config.first_bucket_mb, ddp->limits));
    CHECK(make_counters(ddp));
    CHECK(buckets_of(&ddp->plan, ddp->params, NULL, ddp->config.find_unused, ddp->limits));
    /* An earlier ddp has moved the gradients. */
    if (ddp->params->layout_version) CHECK(param_set_relayout_grads(ddp->params, ddp->plan.order));
    if (ddp->config.order && !ddp->config.find_unused)
        CHECK(ddp_plan_in_order(ddp, ddp->config.order));
    CHECK(ddp_broadcast_values(ddp->comm, ddp->params));
    CHECK(ddp_make_events(ddp));
    CHECK(event_create(ddp->device, &ddp->reduced));
    struct allreduce_config config = allreduce_config_default();
    config.algorithm = ddp->config.algorithm;
    config.any_order = ddp->config.any_order;
    config.group = group_order(ddp->group);
    CHECK(allreduce_init(&ddp->allreduce, ddp->comm, ddp->device, &config));
    CHECK(allreduce_register(ddp->allreduce, ddp->params->grads, ddp->params->grad_count));
    if (ddp->config.own_buffers) return OK;
    return ddp_buffers_init(&ddp->buffers, ddp->comm, group_order(ddp->group), buffers);
}

int ddp_init(struct duet_ddp **out, struct comm *comm, duet_params *params, duet_group *group,
             const struct ddp_config *config) {
    *out = NULL;
    struct duet_ddp *ddp = malloc(sizeof *ddp);
    if (!ddp) {
        int code = fail(ERR_MEMORY, "ddp: the host is out of memory");
        comm_abort(comm, code, error_message());
        return code;
    }
    *ddp = (struct duet_ddp){.comm = comm,
                             .group = (struct group *)group,
                             .device = params->set.device,
                             .params = &params->set,
                             .used = params->has_grad,
                             .owner = params,
                             .hooks = {.group = group, .device = params->set.device},
                             .step = -1,
                             .config = *config};
    ddp->hook = ddp_allreduce_hook;
    ddp->scale = config->divide ? 1.0f / (float)comm_world_size(comm) : 1.0f;
    ddp->reducer = (struct grad_reducer){.enter = ddp_enter,
                                         .ready = ddp_gradient_ready,
                                         .finish = ddp_leave,
                                         .finds_unused = config->find_unused,
                                         .context = ddp};
    int code = ddp_ended(ddp, init(ddp, &params->buffers));
    if (code) {
        duet_ddp_free(ddp);
        return code;
    }
    params->reducer = &ddp->reducer; /* from here on every backward of these parameters calls it */
    *out = ddp;
    return OK;
}

void duet_ddp_free(struct duet_ddp *ddp) {
    struct failures before = {.code = OK};
    if (!ddp) return;
    failures_add(&before, ERR_FAILED); /* keeps the cause for a program that has yet to print it */
    ddp->owner->reducer = NULL;
    group_announce(ddp->group, "end of DDP"); /* fails only if the job has failed */
    hooks_free(&ddp->hooks);
    /* an earlier call has returned any error of the stream */
    stream_sync(device_comm(ddp->device));
    allreduce_free(ddp->allreduce);
    ddp_buffers_free(ddp->buffers);
    for (int b = 0; b < ddp->events; b++)
        event_destroy(ddp->ready[b]);
    free(ddp->ready);
    event_destroy(ddp->reduced);
    bucket_plan_free(&ddp->plan);
    free(ddp->pending);
    free(ddp->ready_order);
    free(ddp->is_ready);
    free(ddp->all_used);
    free(ddp);
    failures_end(&before);
}
