/* The step of DistributedDataParallel; ddp.h has the drawing of a step. The core is a count:
 *
 *     pending[b]   parameters of bucket b whose gradient is not ready in this backward
 *     next         the bucket to launch next; all before it are launched
 *
 *     hook(p):     pending[bucket_of[p]]--
 *                  while pending[next] == 0: launch the allreduce of bucket next; next++
 *
 * A pass on the tape calls ddp_enter before backward and ddp_leave after it. ddp_enter sends rank
 * 0's buffers and resets the counters; ddp_leave waits for the last bucket. This holds for a
 * program and for the command.
 *
 * All of this runs on the compute thread. The communication stream shares device memory with the
 * compute stream. Two kinds of event order them: ready[b] (compute to comm, recorded after the last
 * gradient of bucket b) and `reduced` (comm to compute, recorded after the last allreduce). */
#include "ddp/ddp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/advice.h"
#include "base/error.h"
#include "ddp/setup.h"
#include "ddp/state.h"
#include "group/call_trace.h"
#include "group/group.h"

struct ddp_config ddp_config_default(void) {
    struct ddp_config config = {
        .bucket_cap_mb = -1, .first_bucket_mb = -1, .algorithm = ALLREDUCE_AUTO};
    return config;
}

/* All public functions and the hook end here: a rank that gives up ends the job, so that no peer
 * waits for it. */
int ddp_ended(struct duet_ddp *ddp, int code) {
    if (code) comm_abort(ddp->comm, code, error_message());
    return code;
}

/* ---- buckets ---- */

int ddp_make_events(struct duet_ddp *ddp) {
    for (; ddp->events < ddp->plan.bucket_count; ddp->events++)
        CHECK(event_create(ddp->device, &ddp->ready[ddp->events]));
    return OK;
}

/* The final buckets: the gradients move to the order in which they become ready. */
int ddp_plan_in_order(struct duet_ddp *ddp, const int *order) {
    CHECK(buckets_of(&ddp->plan, ddp->params, order, 0, ddp->limits));
    CHECK(ddp_make_events(ddp));
    CHECK(param_set_relayout_grads(ddp->params, ddp->plan.order));
    ddp->rebuilt = 1;
    return OK;
}

/* Rank 0's ready order becomes everybody's. The sync comes first, for two reasons: the gradients
 * are about to move; and before a rank waits outside of its streams, as in the broadcast, they must
 * hold no work that a peer needs. */
static int rebuild(struct duet_ddp *ddp) {
    CHECK(stream_sync(device_compute(ddp->device)));
    CHECK(group_announce(ddp->group, "DDP: order of buckets"));
    CHECK(ddp_broadcast_order(ddp->comm, ddp->ready_order, ddp->params->trained));
    return ddp_plan_in_order(ddp, ddp->ready_order);
}

/* A bucket in the gradient arena, where its parameters are consecutive, each padded with zeros to a
 * multiple of PARAM_ALIGN elements. The pads are summed, too: zeros stay zeros. */
static float *bucket_data(const struct duet_ddp *ddp, const struct bucket *bucket, size_t *count) {
    const struct param_set *params = ddp->params;
    const struct param *first = &params->param[ddp->plan.order[bucket->first]];
    const struct param *last = &params->param[ddp->plan.order[bucket->first + bucket->count - 1]];
    size_t end = last->grad_offset + param_padded(last->count);
    *count = end - first->grad_offset;
    return params->grads + first->grad_offset;
}

int ddp_allreduce_hook(void *context, const struct ddp_bucket *b) {
    (void)context;
    return allreduce_enqueue(b->allreduce, b->stream, b->data, b->count, b->scale, b->index,
                             b->step);
}

int ddp_register_comm_hook(struct duet_ddp *ddp, ddp_comm_hook *hook, void *context) {
    if (!hook) return fail(ERR_USAGE, "Communication hook must be callable: give a function");
    if (ddp->hook_registered)
        return fail(ERR_USAGE,
                    "register_comm_hook or register_builtin_comm_hook can only be called once: "
                    "make another ddp");
    ddp->hook = hook;
    ddp->hook_context = context;
    ddp->hook_registered = 1;
    return OK;
}

/* A hook decides which calls it makes, so a rank without a hook would wait in an allreduce that the
 * others never join. So each step with a hook announces the hook, not the first allreduce. */
static int announce_hook(const struct duet_ddp *ddp) {
    const struct comm_call call = {.collective = "communication hook",
                                   .bucket = 0,
                                   .step = ddp->step,
                                   .group = group_order(ddp->group)};
    return comm_announce(ddp->comm, &call);
}

/* Launches the allreduce of a bucket; its ready event has been recorded. */
static int launch_bucket(struct duet_ddp *ddp, int index) {
    struct stream *comm = device_comm(ddp->device);
    size_t count;
    if (!index && ddp->hook_registered) CHECK(announce_hook(ddp));
    float *data = bucket_data(ddp, &ddp->plan.bucket[index], &count);
    stream_set_phase(comm, PHASE_ALLREDUCE, ddp->step);
    CHECK(stream_wait(comm, ddp->ready[index]));
    struct ddp_bucket bucket = {.stream = comm,
                                .data = data,
                                .count = count,
                                .index = index,
                                .last = index + 1 == ddp->plan.bucket_count,
                                .step = ddp->step,
                                .scale = ddp->scale,
                                .allreduce = ddp->allreduce};
    return ddp->hook(ddp->hook_context, &bucket);
}

/* In index order: a bucket that is full before its turn waits. */
static int launch_full_buckets(struct duet_ddp *ddp) {
    for (; ddp->next < ddp->plan.bucket_count && ddp->pending[ddp->next] == 0; ddp->next++) {
        CHECK(event_record(ddp->ready[ddp->next], device_compute(ddp->device)));
        CHECK(launch_bucket(ddp, ddp->next));
    }
    return OK;
}

/* ---- a step ---- */

/* A backward outside of begin and finish is not reduced. */
int ddp_gradient_ready(void *context, int index) {
    struct duet_ddp *ddp = context;
    if (!ddp->expecting) return OK;
    if (ddp->is_ready[index])
        return ddp_ended(
            ddp,
            fail(ERR_FAILED,
                 "Expected to mark a variable ready only once. Parameter at index %d with name "
                 "%s has been marked as ready twice: run one backward between ddp_begin and "
                 "ddp_finish",
                 index, ddp->params->param[index].spec->name));
    ddp->is_ready[index] = 1;
    ddp->ready_order[ddp->ready_count++] = index;
    ddp->pending[ddp->plan.bucket_of[index]]--;
    return ddp->config.no_overlap ? OK : ddp_ended(ddp, launch_full_buckets(ddp));
}

/* Appends to a list in `text` if it fits. */
static void list(char *text, size_t bytes, const char *separator, const char *item) {
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s%s", used ? separator : "", item);
}

static int is_missing(const struct duet_ddp *ddp, int i) {
    return !ddp->is_ready[i] && param_trains(&ddp->params->param[i]);
}

const char *ddp_unfinished(const struct duet_ddp *ddp, char *text, size_t bytes) {
    int count = ddp->plan.param_count, incomplete = ddp->ready_count && ddp->ready_count < count;
    *text = 0;
    for (int i = 0; incomplete && i < ddp->params->count; i++)
        if (is_missing(ddp, i)) list(text, bytes, ", ", ddp->params->param[i].spec->name);
    return text;
}

static int unfinished(const struct duet_ddp *ddp) {
    char names[256], indices[256] = "", number[16];
    ddp_unfinished(ddp, names, sizeof names);
    for (int i = 0; i < ddp->params->count; i++) {
        if (!is_missing(ddp, i)) continue;
        snprintf(number, sizeof number, "%d", i);
        list(indices, sizeof indices, " ", number);
    }
    return fail(
        ERR_FAILED,
        "Expected to have finished reduction in the prior iteration before starting a new one. "
        "This error indicates that your module has parameters that were not used in producing "
        "loss. You can enable unused parameter detection by " ADVICE_FIND_UNUSED ". "
        "Parameters which did not receive grad for rank %d: %s. "
        "Parameter indices which did not receive grad for rank %d: %s",
        comm_rank(ddp->comm), names, comm_rank(ddp->comm), indices);
}

int ddp_open_step(struct duet_ddp *ddp, int32_t step) {
    int count = ddp->plan.param_count;
    if (ddp->ready_count && ddp->ready_count < count) return unfinished(ddp);
    if (ddp->ready_count && !ddp->rebuilt && !ddp->config.find_unused) CHECK(rebuild(ddp));
    for (int b = 0; b < ddp->plan.bucket_count; b++)
        ddp->pending[b] = ddp->plan.bucket[b].count;
    memset(ddp->is_ready, 0, (size_t)ddp->params->count);
    ddp->ready_count = ddp->next = 0;
    ddp->step = step;
    ddp->expecting = 1;
    return OK;
}

int ddp_begin(struct duet_ddp *ddp, int32_t step) {
    int active;
    CHECK(ddp_ended(ddp, ddp_count_active(ddp, 1, &active)));
    return ddp_ended(ddp, ddp_open_step(ddp, step));
}

/* With DUET_TRACE sums of buckets are calls, too. All ddps share the log, also larger ones. */
static int record_sums(struct duet_ddp *ddp) {
    struct call_trace *trace = call_trace_of(ddp->group);
    struct span_log *log = stream_spans(device_comm(ddp->device));
    int bucket;
    if (!trace || !log->on) return OK;
    CHECK(stream_sync(device_comm(ddp->device)));
    for (const struct span *s = log->spans; s < log->spans + log->count; s++)
        if (sscanf(s->name, "allreduce bucket %d", &bucket) == 1 && bucket < ddp->plan.bucket_count)
            call_trace_add(trace, s->name, ddp->plan.bucket[bucket].bytes, s->start_ns, s->end_ns);
    log->count = 0;
    return OK;
}

int ddp_close_step(struct duet_ddp *ddp) {
    struct device *device = ddp->device;
    struct stream *compute = device_compute(device);
    ddp->expecting = 0;
    CHECK(launch_full_buckets(ddp)); /* with no_overlap: all buckets; otherwise none is left */
    CHECK(event_record(ddp->reduced, device_comm(device)));
    /* this wait counts as allreduce time */
    stream_set_phase(compute, PHASE_ALLREDUCE, ddp->step);
    CHECK(stream_wait(compute, ddp->reduced));
    CHECK(record_sums(ddp));
    return ddp_agree_on_used(ddp);
}

int ddp_finish(struct duet_ddp *ddp) {
    return ddp_ended(ddp, ddp_close_step(ddp));
}

/* ---- what a pass on the tape calls, besides ddp_gradient_ready: struct grad_reducer ---- */

/* PyTorch's rule: rank 0's buffers come before each forward, also in evaluation, if the previous
 * forward's gradients were summed. With several passes per update the command sends them before
 * every pass, so that all ranks prove the same bits. */
int ddp_enter(void *context, int32_t step, int opens, int reduces) {
    struct duet_ddp *ddp = context;
    int sync = ddp->sync_buffers || ddp->config.buffers_each_pass;
    ddp->sync_buffers = reduces;
    if (opens) {
        CHECK(ddp_ended(ddp, ddp_check_join(ddp)));
        CHECK(ddp_begin(ddp, step < 0 ? ddp->step + 1 : step));
        params_show_gradients(ddp->owner);
    }
    if (!sync) return OK;
    if (opens && ddp->config.join && ddp->group) return ddp_ended(ddp, ddp_join_buffers(ddp));
    return ddp_broadcast_buffers(ddp, step < 0 ? ddp->step : step);
}

/* A backward without ddp_enter is only this rank's. */
int ddp_leave(void *context) {
    struct duet_ddp *ddp = context;
    if (!ddp->expecting) return OK;
    CHECK(ddp_finish(ddp));
    return ddp_ended(ddp, hooks_finish(&ddp->hooks));
}

int ddp_broadcast_buffers(struct duet_ddp *ddp, int32_t step) {
    return ddp_ended(ddp, ddp_buffers_broadcast(ddp->buffers, step));
}

/* ---- questions about it ---- */

const struct bucket_plan *ddp_buckets(const struct duet_ddp *ddp) {
    return &ddp->plan;
}

const int *ddp_ready_order(const struct duet_ddp *ddp) {
    if (ddp->config.find_unused) return NULL;
    return ddp->rebuilt                                ? ddp->plan.order
           : ddp->ready_count == ddp->plan.param_count ? ddp->ready_order
                                                       : NULL;
}

enum allreduce_algorithm ddp_algorithm(const struct duet_ddp *ddp, size_t count, char *text,
                                       size_t text_bytes) {
    return allreduce_algorithm_for(ddp->allreduce, count, text, text_bytes);
}
