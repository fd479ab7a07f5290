/* duet_fsdp_wrap shards the parameters of a program. The duet_params owns the fsdp object. */
#include <stdlib.h>

#include "ddp/setup.h"
#include "fsdp/internal.h"
#include "group/group.h"

static int check_fsdp(const duet_group *group, const duet_params *params,
                      const struct duet_fsdp_options *o) {
    CHECK(ddp_check_group("fsdp", group, params));
    if (params->in_use)
        return fail(ERR_USAGE, "fsdp: too late: wrap the parameters before an optimizer or a "
                               "duet_ddp is made of them, and before the first training pass");
    if (o->shard > DUET_SHARD_OPTIMIZER || o->prefetch < -1 || o->prefetch > FSDP_MOST_PREFETCH)
        return fail(ERR_USAGE, "fsdp: shard %d, prefetch %d: see struct duet_fsdp_options",
                    (int)o->shard, o->prefetch);
    return OK;
}

/* Copies rank 0's values to host memory, from which the shards are cut. */
static int read_values(duet_params *params, struct comm *comm, float **values, float *block) {
    struct param_set *set = &params->set;
    if (!values || !block)
        return fail(ERR_MEMORY, "fsdp: out of host memory for %zu numbers", set->total_count);
    CHECK(ddp_check_shapes(comm, set));
    CHECK(ddp_broadcast_values(comm, set));
    for (int i = 0; i < set->count; block += set->param[i++].count) {
        values[i] = block;
        CHECK(param_read_value(set, i, block));
    }
    return OK;
}

int duet_fsdp_wrap(duet_params *params, duet_group *group,
                   const struct duet_fsdp_options *options) {
    const struct duet_fsdp_options o = options ? *options : (struct duet_fsdp_options){.units = ""};
    CHECK(check_fsdp(group, params, &o));
    const struct fsdp_config config = {.shard = FSDP_PARAMETERS - o.shard, /* opposite order */
                                       .units = o.units ? o.units : "",
                                       .prefetch = o.prefetch < 0    ? 0
                                                   : o.prefetch == 0 ? 1
                                                                     : o.prefetch,
                                       .keep = o.no_reshard_after_forward,
                                       .divide = 1,
                                       .segments = o.accumulate ? 1 : 0};
    struct comm *comm = group_comm((struct group *)group);
    struct fsdp *f;
    float **values = calloc((size_t)params->set.count, sizeof *values),
          *block = malloc(params->set.total_count * sizeof *block);
    int code = group_announce((struct group *)group, "FSDP: setup");
    if (!code) code = read_values(params, comm, values, block);
    if (code) comm_abort(comm, code, error_message());
    if (!code) code = fsdp_init(&f, comm, params, group, values, &config);
    free(values);
    free(block);
    return code;
}
