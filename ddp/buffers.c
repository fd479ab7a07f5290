/* See buffers.h. The broadcast is a plan like an allreduce (allreduce/plans/copies.c). It has its
 * own object, because all calls of an object use one stream, here the compute stream. */
#include "ddp/buffers.h"

#include <stdlib.h>

#include "base/error.h"
#include "ddp/setup.h"

struct ddp_buffers {
    struct buffer_set *set;
    struct allreduce *collectives;
};

static int check_buffers(struct comm *comm, const struct buffer_set *set) {
    const uint64_t mine[2] = {(uint64_t)set->count, set->bytes};
    uint64_t all[MAX_DEVICES][2];
    CHECK(comm_gather(comm, mine, sizeof mine, all));
    for (int r = 0; r < comm_world_size(comm); r++)
        if (all[r][0] != mine[0] || all[r][1] != mine[1])
            return fail(ERR_FAILED,
                        "DDP expects same model across all ranks, but Rank %d has %d buffers of "
                        "%zu bytes, while rank %d has inconsistent %d buffers of %zu bytes.",
                        comm_rank(comm), set->count, set->bytes, r, (int)all[r][0],
                        (size_t)all[r][1]);
    return OK;
}

int ddp_buffers_init(struct ddp_buffers **out, struct comm *comm, struct announcer *group,
                     struct buffer_set *set) {
    *out = NULL;
    CHECK(check_buffers(comm, set));
    if (!set->count) return OK;
    struct ddp_buffers *b = calloc(1, sizeof *b);
    if (!b) return fail(ERR_MEMORY, "ddp: buffers: the host is out of memory");
    b->set = set;
    *out = b; /* the caller frees it, also after a failure */
    return ddp_share(&b->collectives, comm, group, set->device, set->arena,
                     set->bytes / sizeof(float));
}

int ddp_buffers_broadcast(struct ddp_buffers *b, int32_t step) {
    if (!b) return OK;
    struct stream *stream = device_compute(b->set->device);
    stream_set_phase(stream, PHASE_REPLICATE, step);
    return broadcast_enqueue(b->collectives, stream, b->set->arena, b->set->bytes / sizeof(float),
                             step);
}

void ddp_buffers_free(struct ddp_buffers *b) {
    if (!b) return;
    allreduce_free(b->collectives);
    free(b);
}
