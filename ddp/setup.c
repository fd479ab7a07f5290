/* Before the first step the ranks make sure that they hold one and the same model.
 *
 * Shapes are compared first, because all later steps rely on them: values are copied as one arena,
 * and a bucket is a pointer and a count that must mean the same parameters on every rank. Then rank
 * 0's values go to all. Each rank has normally drawn the same numbers from the same seed; the
 * broadcast makes them equal even if a rank has read another file or got another seed.
 *
 * The receivers read rank 0's memory directly, as in all collectives of Duet:
 *
 *     rank 0                                   every other rank
 *     its values are final (sync)
 *     exports the value arena    --- fd --->   imports it
 *                                              copies it into its own arena, syncs
 *     barrier    <-------------------------->  releases the import; barrier
 *     may write its values again
 *
 * A rank whose GPU cannot reach rank 0's takes the values from host memory instead (by_host.h). */
#include "ddp/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allreduce/allreduce.h"
#include "base/error.h"
#include "base/text/text.h"
#include "ddp/by_host.h"

/* ---- shapes ---- */

/* Those that are trained, as in PyTorch, and then all of them. */
static int check_counts(struct comm *comm, const struct param_set *params) {
    const int mine[2] = {params->trained, params->count};
    int all[MAX_DEVICES][2];
    CHECK(comm_exchange(comm, mine, sizeof mine, -1, all, NULL));
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

/* "[5, 3]" */
static void describe_sizes(const struct param_spec *spec, char *text, size_t bytes) {
    snprintf(text, bytes, "[");
    for (int i = 0; i < spec->rank; i++)
        text_append(text, bytes, i ? ", %d" : "%d", spec->dims[i]);
    text_append(text, bytes, "]");
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
        describe_sizes(spec, sizes, sizeof sizes);
        return fail(
            ERR_FAILED,
            "[%d]: params[%d] in this process with sizes %s appears not to match sizes of the same "
            "param in process 0.",
            rank, i, sizes);
    }
    return OK;
}

/* ---- rank 0's bytes to all ---- */

/* A gather, of which only rank 0's part is used. */
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

/* ---- rank 0's values to all ---- */

/* Imports rank 0's arena and copies it on the receiver's compute stream. */
static int receive(struct param_set *params, const struct memory_handle *handle, int fd) {
    struct stream *stream = device_compute(params->device);
    void *imported;
    CHECK(device_import(params->device, handle, fd, &imported));
    stream_set_phase(stream, PHASE_REPLICATE, -1);
    int code = copy_imported(stream, params->values, imported, handle->device,
                             params->arena_count * sizeof(float));
    CHECK_KEEP(stream_sync(stream), code);
    device_unimport(params->device, imported);
    return code;
}

int ddp_broadcast_values(struct comm *comm, struct param_set *params) {
    int rank = comm_rank(comm), world = comm_world_size(comm), fd = -1, fds[MAX_DEVICES];
    int wants[MAX_DEVICES];
    struct memory_handle mine, all[MAX_DEVICES];
    memset(&mine, 0, sizeof mine);
    memset(fds, -1, sizeof fds);
    CHECK(allreduce_meet(comm, params->device));
    /* whatever was enqueued for the values is done */
    CHECK(stream_sync(device_compute(params->device)));
    if (comm_is_spread(comm)) return ddp_values_by_host(comm, params, 1);
    if (rank == 0) CHECK(device_export(params->device, params->values, &mine, &fd));
    CHECK(comm_exchange(comm, &mine, sizeof mine, fd, all, fds));
    int by_host = rank > 0 && !device_reaches(params->device, &all[0]), any_by_host = 0;
    int code = comm_exchange(comm, &by_host, sizeof by_host, -1, wants, NULL);
    for (int r = 0; !code && r < world; r++)
        any_by_host |= wants[r];
    if (!code && any_by_host) code = ddp_values_by_host(comm, params, by_host);
    if (!code && rank > 0 && !by_host) code = receive(params, &all[0], fds[0]);
    for (int r = 0; r < world; r++)
        if (fds[r] >= 0) close(fds[r]);
    CHECK(code);
    return comm_barrier(comm, "broadcast of parameters");
}
