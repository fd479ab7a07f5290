/* Sharded data parallel as a strategy of the trainer. This rank has a replica, whose parameters
 * fsdp/ gathers unit by unit (fsdp/fsdp.c), and an optimizer for its shard. A step runs the same
 * code as on a single device. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fsdp/fsdp.h"
#include "nn/params/optimizer.h"
#include "syncbn/syncbn.h"
#include "train/session.h"

struct fsdp_strategy {
    struct replica replica;
    struct fsdp *fsdp;
};

static int fsdp_strategy_open(struct session *s) {
    struct fsdp_strategy *d = s->state = calloc(1, sizeof *d);
    if (!d) return fail(ERR_MEMORY, "fsdp: out of host memory");
    struct replica *r = s->replicas[0] = &d->replica;
    const struct run_config *c = s->config;
    struct replica_config config =
        session_replica_config(s, batch_capacity(&s->split, s->largest_batch, 1));
    const struct fsdp_config sharded = {.shard = (enum fsdp_shard)c->fsdp.shard,
                                        .units = c->fsdp.units,
                                        .prefetch = c->fsdp.prefetch,
                                        .keep = c->fsdp.keep,
                                        .nccl = !strcmp(c->ddp.allreduce, "nccl"),
                                        .segments =
                                            c->update.passes > 1 ? s->segments_per_device : 0};
    config.sharded = 1;
    config.optimizer = 0;
    CHECK(replica_init(r, s->device[0], &s->model, &config, s->values));
    CHECK(fsdp_init(&d->fsdp, s->comm, r->params, NULL, s->values, &sharded));
    CHECK(optimizer_of_params(&r->optimizer, r->params, &config.update));
    r->config.optimizer = 1;
    if (!s->model.sync_bn) return OK;
    return syncbn_convert(r->params, s->comm, NULL, s->split.virtual_devices, -1);
}

static int fsdp_strategy_hash_values(struct session *s, const struct step_block *step) {
    struct fsdp_strategy *d = s->state;
    CHECK(replica_write_other(&d->replica, step, PHASE_PROOF));
    CHECK(fsdp_broadcast_buffers(d->fsdp, (int32_t)step->step));
    return replica_hash_values(&d->replica);
}

/* The units take the place of DDP's buckets. */
static void fsdp_strategy_describe(struct session *s) {
    struct fsdp_strategy *d = s->state;
    struct run_record *r = s->record;
    r->bucket_bytes = malloc((size_t)s->model.param_count * sizeof *r->bucket_bytes);
    if (r->bucket_bytes) r->bucket_count = fsdp_unit_bytes(d->fsdp, r->bucket_bytes);
}

static int fsdp_strategy_close(struct session *s) {
    struct fsdp_strategy *d = s->state;
    if (!d) return 1;
    if (d->replica.device) stream_sync(device_compute(d->replica.device));
    duet_optimizer_free(d->replica.optimizer);
    d->replica.optimizer = NULL;
    fsdp_free(d->fsdp);
    replica_free(&d->replica);
    free(d);
    return 1;
}

const struct strategy strategy_fsdp = {.open = fsdp_strategy_open,
                                       .step = session_step,
                                       .evaluate = session_evaluate,
                                       .hash_values = fsdp_strategy_hash_values,
                                       .describe = fsdp_strategy_describe,
                                       .close = fsdp_strategy_close};
