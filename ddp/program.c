/* duet_ddp puts DDP around the parameters of a program. ddp.c has the step. */
#include <stdio.h>

#include "base/program_name.h"
#include "ddp/setup.h"
#include "ddp/state.h"
#include "group/call_trace.h"
#include "group/group.h"

/* ---- its life ---- */

static int config_of(const struct duet_ddp_options *options, struct ddp_config *config) {
    *config = ddp_config_default();
    config->divide = 1; /* as in PyTorch: the mean over the ranks */
    if (!options) return OK;
    if (!(options->bucket_cap_mb >= 0 && options->bucket_cap_mb <= 1e6))
        return fail(ERR_USAGE, "ddp: bucket_cap_mb %g: give MiB, or 0 for PyTorch's 25",
                    options->bucket_cap_mb);
    if (options->bucket_cap_mb > 0) config->bucket_cap_mb = options->bucket_cap_mb;
    config->find_unused = options->find_unused_parameters;
    config->no_overlap = options->no_overlap;
    config->own_buffers = options->no_broadcast_buffers;
    if (options->join < DUET_JOIN_OFF || options->join > DUET_JOIN_THROW)
        return fail(ERR_USAGE, "ddp: join %d: see enum duet_join", (int)options->join);
    config->join = options->join;
    return options->allreduce ? allreduce_algorithm_parse(options->allreduce, &config->algorithm)
                              : OK;
}

/* allreduce/ compares the algorithm. */
static int agree(struct group *group, struct comm *comm, const struct ddp_config *config) {
    static const char *const names[] = {"bucket_cap_mb", "join", "find_unused_parameters",
                                        "no_broadcast_buffers"};
    const double mine[] = {config->bucket_cap_mb > 0 ? config->bucket_cap_mb : 0, config->join,
                           !!config->find_unused, !!config->own_buffers};
    CHECK(group_announce(group, "DDP: setup"));
    return ddp_check_options(comm, "ddp", names, mine, sizeof mine / sizeof *mine);
}

/* Rank 0's buffers come now, as in PyTorch. */
static int attach(struct duet_ddp *d) {
    if (call_trace_of(d->group) && device_config(d->device)->kind != DEVICE_CUDA)
        stream_spans(device_comm(d->device))->on = 1;
    params_show_gradients(d->owner);
    d->sync_buffers = 1;
    return ddp_broadcast_buffers(d, -1);
}

int duet_ddp_create(duet_ddp **out, duet_group *group, duet_params *params,
                    const struct duet_ddp_options *options) {
    struct ddp_config config;
    CHECK_OUT(out);
    CHECK(ddp_check_group("ddp", group, params));
    if (params->reducer)
        return fail(ERR_USAGE, "ddp: the parameters already have a duet_ddp: free it first");
    CHECK(config_of(options, &config));
    struct comm *comm = group_comm((struct group *)group);
    int code = agree((struct group *)group, comm, &config);
    if (code) {
        comm_abort(comm, code, error_message());
        return code;
    }
    CHECK(ddp_init(out, comm, params, group, &config));
    code = attach(*out);
    if (code) {
        duet_ddp_free(*out);
        *out = NULL;
        return code;
    }
    const char *fault = device_p2p_fault(params->set.device);
    if (*fault && !comm_rank(comm)) fprintf(stderr, "%s: warning: %s\n", program_name(), fault);
    return OK;
}

int duet_ddp_register_comm_hook(duet_ddp *d,
                                int (*hook)(const struct duet_bucket *bucket, void *context),
                                void *context) {
    if (!d) return fail(ERR_USAGE, "register_comm_hook: no ddp was given");
    CHECK(ddp_register_comm_hook(d, hook ? hooks_call : NULL, &d->hooks));
    d->hooks.hook = hook;
    d->hooks.context = context;
    return OK;
}
