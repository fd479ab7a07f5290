/* The beginning and the end of a ddp: around a replica of the trainer, or around the parameters of
 * a program that runs forward and backward itself. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ddp/setup.h"
#include "ddp/state.h"
#include "group/call_trace.h"
#include "group/group.h"

static int make_counters(struct duet_ddp *ddp) {
    size_t count = (size_t)ddp->params->count;
    ddp->pending = malloc(count * sizeof *ddp->pending); /* at most a bucket per parameter */
    ddp->ready_order = malloc(count * sizeof *ddp->ready_order);
    ddp->is_ready = calloc(count, 1);
    ddp->all_used = calloc(count * (size_t)comm_world_size(ddp->comm), 1);
    ddp->ready = calloc(count, sizeof *ddp->ready);
    if (!ddp->replica) ddp->used = calloc(count, 1);
    if (!ddp->pending || !ddp->ready_order || !ddp->is_ready || !ddp->ready || !ddp->all_used ||
        !ddp->used)
        return fail(ERR_MEMORY, "ddp: counters of %zu parameters: the host is out of memory",
                    count);
    return OK;
}

/* Rank 0's buffers, before any forward and now. */
static int share_buffers(struct duet_ddp *ddp, struct buffer_set *set) {
    if (ddp->config.own_buffers) return OK;
    CHECK(ddp_buffers_check(ddp->comm, set));
    CHECK(ddp_buffers_init(&ddp->buffers, ddp->comm, group_order(ddp->group), set));
    return ddp->replica ? OK : ddp_broadcast_buffers(ddp, -1);
}

/* The replica's backward fires the hook. */
static int attach(struct duet_ddp *ddp) {
    struct replica *r = ddp->replica;
    recorded_forget(&r->recorded); /* a step recorded before this has no ready events in it */
    tape_set_hook(r->tape, ddp_gradient_ready, ddp);
    if (ddp->config.find_unused) r->unused_hook = ddp_gradient_ready;
    r->unused_context = ddp;
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
    CHECK(ddp_plan_first_step(ddp));
    /* A ddp before this one has moved the gradients. */
    if (ddp->params->layout_version) CHECK(param_set_relayout_grads(ddp->params, ddp->plan.order));
    CHECK(ddp_broadcast_values(ddp->comm, ddp->params));
    CHECK(ddp_make_events(ddp));
    CHECK(event_create(ddp->device, &ddp->reduced));
    struct allreduce_config config = allreduce_config_default();
    config.algorithm = ddp->config.algorithm;
    config.any_order = ddp->config.any_order;
    config.group = group_order(ddp->group);
    CHECK(allreduce_init(&ddp->allreduce, ddp->comm, ddp->device, &config));
    CHECK(allreduce_register(ddp->allreduce, ddp->params->grads, ddp->params->grad_count));
    CHECK(share_buffers(ddp, buffers));
    return ddp->replica ? attach(ddp) : OK;
}

int ddp_init(struct duet_ddp **out, struct comm *comm, const struct ddp_model *model,
             const struct ddp_config *config) {
    *out = NULL;
    struct duet_ddp *ddp = malloc(sizeof *ddp);
    if (!ddp) {
        int code = fail(ERR_MEMORY, "ddp: the host is out of memory");
        comm_abort(comm, code, error_message());
        return code;
    }
    *ddp = (struct duet_ddp){.comm = comm,
                             .group = (struct group *)model->group,
                             .device = model->params->set.device,
                             .params = &model->params->set,
                             .used = model->replica ? model->replica->params->has_grad : NULL,
                             .replica = model->replica,
                             .owner = model->params,
                             .hooks = {.group = model->group, .device = model->params->set.device},
                             .step = -1,
                             .config = *config};
    ddp->hook = ddp_allreduce_hook;
    ddp->scale = config->divide ? 1.0f / (float)comm_world_size(comm) : 1.0f;
    ddp_trace_open(ddp);
    int code = ddp_ended(ddp, init(ddp, &model->params->buffers));
    if (code) {
        struct failures first = {0};
        failures_add(&first, code); /* freeing may fail in its own words */
        duet_ddp_free(ddp);
        return failures_end(&first);
    }
    *out = ddp;
    return OK;
}

static void detach(struct replica *r) {
    tape_set_hook(r->tape, NULL, NULL);
    r->unused_hook = NULL;
    recorded_forget(&r->recorded); /* recorded steps hold our events */
}

void duet_ddp_free(struct duet_ddp *ddp) {
    struct failures before = {.code = OK};
    if (!ddp) return;
    failures_add(&before, ERR_FAILED); /* for a program that cleans up before it prints the cause */
    if (ddp->replica) detach(ddp->replica);
    ddp->owner->reducer = NULL;
    group_announce(ddp->group, "end of DDP"); /* it can only fail with the job */
    hooks_free(&ddp->hooks);
    /* an error of the stream has been returned by an earlier call */
    stream_sync(device_comm(ddp->device));
    call_trace_close(ddp->trace);
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
    if (!ddp->replica) free(ddp->used);
    free(ddp);
    failures_end(&before);
}
