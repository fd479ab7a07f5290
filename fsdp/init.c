/* Makes and frees the object of a sharded model. */
#include <stdlib.h>
#include <string.h>

#include "ddp/setup.h"
#include "fsdp/internal.h"
#include "group/group.h"

/* What is split determines the layout of memory. */
static void choose_layout(struct fsdp *f) {
    const struct fsdp_config *c = &f->config;
    f->shared = c->prefetch + 1 < f->units.count ? c->prefetch + 1 : f->units.count;
    f->shards_in_slots = c->shard < FSDP_PARAMETERS;
    f->whole_values = f->shards_in_slots || c->keep;
    f->whole_grads = c->shard == FSDP_OPTIMIZER || c->segments > 0;
}

/* All ranks must have split the model into the same units. */
static int compare_units(const struct fsdp *f, const int *all) {
    for (int r = 0; r < f->ranks; r++)
        for (int i = 0; i < f->params->count; i++) {
            int theirs = all[(size_t)r * (size_t)f->params->count + (size_t)i];
            if (theirs == f->units.of[i]) continue;
            return fail(ERR_USAGE,
                        "fsdp: %s is in unit %d of rank %d and in unit %d of rank %d: give all "
                        "ranks the same units",
                        f->params->param[i].spec->name, f->units.of[i], f->rank, theirs, r);
        }
    return OK;
}

static int agree(struct fsdp *f) {
    static const char *const names[] = {"shard", "prefetch", "no_reshard_after_forward",
                                        "accumulate"};
    const struct fsdp_config *c = &f->config;
    const double mine[] = {c->shard, c->prefetch, !!c->keep, c->segments > 0};
    CHECK(ddp_check_options(f->comm, "fsdp", names, mine, sizeof mine / sizeof *mine));
    size_t bytes = (size_t)f->params->count * sizeof *f->units.of;
    int *units = malloc(bytes * (size_t)f->ranks);
    int code = units ? OK : fail(ERR_MEMORY, "fsdp: the host is out of memory");
    if (!code) code = comm_gather(f->comm, f->units.of, bytes, units);
    if (!code) code = compare_units(f, units);
    free(units);
    return code;
}

static int make_counters(struct fsdp *f) {
    size_t units = (size_t)f->units.count;
    f->unit = calloc(units, sizeof *f->unit);
    f->is_ready = calloc((size_t)f->params->count + 1, 1);
    return f->unit && f->is_ready ? OK : fail(ERR_MEMORY, "fsdp: the host is out of memory");
}

/* From here on the parameters refer to their shards. */
static int take_over(struct fsdp *f, float *const *values) {
    struct param_set *set = f->params;
    set->shard = &f->shard;
    f->shard.leads = !f->rank;
    set->bring = fsdp_bring;
    set->gather_state = fsdp_gather_state;
    set->context = f;
    for (int i = 0; values && i < set->count; i++)
        CHECK(param_write_value(set, i, values[i]));
    f->owner->reducer = &f->reducer;
    return stream_sync(device_compute(f->device));
}

static int init(struct fsdp *f, float *const *values) {
    f->owner->in_use = 1;
    CHECK(ddp_check_shapes(f->comm, f->params));
    if (!f->params->trained)
        return fail(ERR_FAILED,
                    "fsdp: no parameter requires a gradient, so there is nothing to sum");
    CHECK(fsdp_units_cut(&f->units, f->params, f->ranks, f->config.units));
    f->config.units = NULL;
    CHECK(agree(f));
    CHECK(make_counters(f));
    choose_layout(f);
    param_set_take_apart(f->params);
    CHECK(fsdp_make_layout(f));
    if (f->config.segments && !f->group)
        CHECK(param_set_keep_segments(f->params, f->config.segments));
    if (!f->config.own_buffers)
        CHECK(ddp_buffers_init(&f->buffers, f->comm, group_order(f->group), &f->owner->buffers));
    return take_over(f, values);
}

int fsdp_init(struct fsdp **out, struct comm *comm, duet_params *params, duet_group *group,
              float *const *values, const struct fsdp_config *config) {
    *out = NULL;
    struct fsdp *f = malloc(sizeof *f);
    if (!f) {
        int code = fail(ERR_MEMORY, "fsdp: the host is out of memory");
        comm_abort(comm, code, error_message());
        return code;
    }
    *f = (struct fsdp){.comm = comm,
                       .group = (struct group *)group,
                       .device = params->set.device,
                       .owner = params,
                       .params = &params->set,
                       .config = *config,
                       .scale = config->divide ? 1.0f / (float)comm_world_size(comm) : 1.0f,
                       .rank = comm_rank(comm),
                       .ranks = comm_world_size(comm),
                       .step = -1,
                       .current = {NO_UNIT, NO_UNIT}};
    f->reducer = (struct grad_reducer){.enter = fsdp_enter,
                                       .ready = fsdp_ready,
                                       .finish = fsdp_finish,
                                       .use = fsdp_use,
                                       .free = group ? fsdp_free : NULL,
                                       .context = f};
    int code = fsdp_ended(f, init(f, values));
    if (code)
        fsdp_free(f);
    else
        *out = f;
    return code;
}

void fsdp_free(void *fsdp) {
    struct fsdp *f = fsdp;
    struct failures before = {.code = OK};
    if (!f) return;
    failures_add(&before, ERR_FAILED);
    f->owner->reducer = NULL;
    f->params->shard = NULL;
    f->params->bring = NULL;
    group_announce(f->group, "end of FSDP"); /* fails only if the job has failed */
    ddp_buffers_free(f->buffers);
    fsdp_free_layout(f);
    fsdp_units_free(&f->units);
    free(f->unit);
    free(f->is_ready);
    free(f->order[0].unit);
    free(f->order[1].unit);
    free(f);
    failures_end(&before);
}

int fsdp_unit_bytes(const struct fsdp *f, int64_t *bytes) {
    for (int u = 0; u < f->units.count; u++)
        bytes[u] = 0;
    for (int i = 0; i < f->params->count; i++)
        bytes[f->units.of[i]] += (int64_t)(f->params->param[i].count * sizeof(float));
    return f->units.count;
}
