/* See buffers.h. The broadcast is a plan as an allreduce is (allreduce/plans/copies.c), by an
 * object of its own: it runs on the compute stream, and an object's calls all go on one stream. */
#include "ddp/buffers.h"

#include <stdlib.h>

#include "allreduce/allreduce.h"
#include "base/error.h"

struct ddp_buffers {
    struct buffer_set *set;
    struct allreduce *collectives;
};

/* A broadcast needs no scratch; any algorithm by name has an executor that runs plans. */
static int init(struct ddp_buffers *b, struct comm *comm) {
    struct allreduce_config config = allreduce_config_default();
    config.algorithm = ALLREDUCE_DIRECT;
    CHECK(allreduce_init(&b->collectives, comm, b->set->device, &config));
    return allreduce_register(b->collectives, b->set->arena, b->set->bytes / sizeof(float));
}

int ddp_buffers_init(struct ddp_buffers **out, struct comm *comm, struct buffer_set *set) {
    *out = NULL;
    if (!set->count) return OK;
    struct ddp_buffers *b = calloc(1, sizeof *b);
    if (!b) return fail(ERR_MEMORY, "ddp: buffers: the host is out of memory");
    b->set = set;
    *out = b; /* the caller frees it, also after a failure */
    return init(b, comm);
}

int ddp_buffers_broadcast(struct ddp_buffers *b, int32_t step) {
    if (!b) return OK;
    return broadcast_enqueue(b->collectives, device_compute(b->set->device), b->set->arena,
                             b->set->bytes / sizeof(float), step);
}

void ddp_buffers_free(struct ddp_buffers *b) {
    if (!b) return;
    allreduce_free(b->collectives);
    free(b);
}
