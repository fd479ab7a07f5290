/* Before the first step the ranks check that they hold the same model.
 *
 * Shapes are compared first, because all later steps rely on them: values are copied as one arena,
 * and a bucket is a pointer and a count that must mean the same parameters on every rank. Then rank
 * 0's values are copied to all. Each rank has normally drawn the same numbers from the same seed;
 * the broadcast makes them equal even if a rank has a different file or seed. */
#include "ddp/setup.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/text.h"
#include "group/group.h"

/* ---- options ---- */

int ddp_check_options(struct comm *comm, const char *who, const char *const *names,
                      const double *mine, int count) {
    double own[DDP_MOST_OPTIONS] = {0}, all[MAX_DEVICES][DDP_MOST_OPTIONS];
    memcpy(own, mine, (size_t)count * sizeof *own);
    CHECK(comm_gather(comm, own, sizeof own, all));
    for (int r = 0; r < comm_world_size(comm); r++)
        for (int i = 0; i < count; i++)
            if (all[r][i] != mine[i])
                return fail(ERR_USAGE,
                            "%s: %s is %g on rank %d and %g on rank %d: give all ranks the same",
                            who, names[i], mine[i], comm_rank(comm), all[r][i], r);
    return OK;
}

int ddp_check_group(const char *who, const duet_group *group, const duet_params *params) {
    if (!group || !params)
        return fail(ERR_USAGE, "%s: no %s given", who, group ? "parameters were" : "group was");
    if (group_comm((const struct group *)group)) return OK;
    return fail(ERR_USAGE,
                "%s: a group of %d ranks of the job, or in another order: give the group of all "
                "ranks",
                who, group_size((const struct group *)group));
}

/* ---- shapes ---- */

/* Compares the trained parameters, as in PyTorch, and then all. */
static int check_counts(struct comm *comm, const struct param_set *params) {
    const int mine[2] = {params->trained, params->count};
    int all[MAX_DEVICES][2];
    CHECK(comm_gather(comm, mine, sizeof mine, all));
    for (int r = 0; r < comm_world_size(comm); r++) {
        int k = all[r][0] == mine[0];
        if (all[r][k] == mine[k]) continue;
        return fail(
            ERR_FAILED,
            "DDP expects same model across all ranks, but Rank %d has %d params, while rank %d has "
            "inconsistent %d params.",
            comm_rank(comm), mine[k], r, all[r][k]);
    }
    return OK;
}

struct shape {
    int rank, dims[MAX_RANK], frozen;
};

static struct shape shape_of(const struct param_spec *spec) {
    struct shape shape = {.rank = spec->rank, .frozen = spec->frozen};
    memcpy(shape.dims, spec->dims, (size_t)spec->rank * sizeof *shape.dims);
    return shape;
}

static int compare_shapes(const struct param_set *params, int rank, const struct shape *theirs) {
    for (int i = 0; i < params->count; i++) {
        const struct param_spec *spec = params->param[i].spec;
        struct shape mine = shape_of(spec);
        char sizes[64];
        if (!memcmp(&mine, &theirs[i], sizeof mine)) continue;
        if (mine.frozen != theirs[i].frozen)
            return fail(ERR_FAILED,
                        "[%d]: params[%d] in this process is %sfrozen, unlike that of process 0: "
                        "freeze the same ones on all ranks",
                        rank, i, mine.frozen ? "" : "not ");
        return fail(ERR_FAILED,
                    "[%d]: params[%d] in this process with sizes [%s] appears not to match sizes "
                    "of the same "
                    "param in process 0.",
                    rank, i, text_sizes(sizes, sizeof sizes, spec->rank, spec->dims));
    }
    return OK;
}

/* ---- rank 0's bytes to all ---- */

/* A gather; only rank 0's part is used. */
static int broadcast_bytes(struct comm *comm, void *bytes, size_t count) {
    char *all = malloc(count * (size_t)comm_world_size(comm) + 1);
    int code =
        all ? OK : fail(ERR_MEMORY, "ddp: %zu bytes to gather: the host is out of memory", count);
    if (!code) code = comm_gather(comm, bytes, count, all);
    if (!code) memcpy(bytes, all, count);
    free(all);
    return code;
}

int ddp_check_shapes(struct comm *comm, const struct param_set *params) {
    CHECK(check_counts(comm, params));
    struct shape *shapes = calloc((size_t)params->count + 1, sizeof *shapes);
    if (!shapes)
        return fail(ERR_MEMORY, "ddp: shapes of %d parameters: the host is out of memory",
                    params->count);
    for (int i = 0; i < params->count; i++)
        shapes[i] = shape_of(params->param[i].spec);
    int code = broadcast_bytes(comm, shapes, (size_t)params->count * sizeof *shapes);
    if (!code) code = compare_shapes(params, comm_rank(comm), shapes);
    free(shapes);
    return code;
}

int ddp_broadcast_order(struct comm *comm, int *order, int count) {
    return broadcast_bytes(comm, order, (size_t)count * sizeof *order);
}

/* ---- rank 0's arena to all ---- */

int ddp_share(struct allreduce **out, struct comm *comm, struct announcer *group,
              struct device *device, float *data, size_t count) {
    struct allreduce_config config = allreduce_config_default();
    config.algorithm = ALLREDUCE_DIRECT; /* a broadcast adds nothing, so it needs no scratch */
    config.any_order = 1;
    config.group = group;
    CHECK(allreduce_init(out, comm, device, &config));
    return allreduce_register(*out, data, count);
}

int ddp_broadcast_values(struct comm *comm, struct param_set *params) {
    struct stream *stream = device_compute(params->device);
    struct allreduce *copies = NULL;
    struct failures first = {.code = OK};
    failures_first(&first, ddp_share(&copies, comm, NULL, params->device, params->values,
                                     params->arena_count));
    stream_set_phase(stream, PHASE_REPLICATE, -1);
    if (!first.code)
        failures_first(&first,
                       broadcast_enqueue(copies, stream, params->values, params->arena_count, -1));
    failures_first(&first, stream_sync(stream));
    if (first.code) comm_abort(comm, first.code, first.text); /* closing must not wait for a peer */
    allreduce_free(copies);
    return failures_end(&first);
}
