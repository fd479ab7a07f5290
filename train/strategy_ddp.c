/* DDP as a strategy of the trainer: this rank's replica and the ddp around it; ddp/ddp.c has the
 * step. */
#include <stdlib.h>

#include "base/error.h"
#include "ddp/ddp.h"
#include "train/session.h"

struct ddp_strategy {
    struct replica replica;
    struct ddp *ddp;
};

static int ddp_strategy_open(struct session *s) {
    struct ddp_strategy *d = s->state = calloc(1, sizeof *d);
    if (!d) return fail(ERR_MEMORY, "ddp: no host memory");
    const struct run_config *c = s->config;
    struct replica_config config =
        session_replica_config(s, batch_capacity(&s->split, s->largest_batch, 1));
    CHECK(replica_init(&d->replica, s->device[0], &s->model, &config, s->values));
    s->replicas[0] = &d->replica;
    struct ddp_config ddp = ddp_config_default();
    ddp.bucket_cap_mb = c->bucket_cap_mb;
    ddp.first_bucket_mb = c->first_bucket_mb;
    ddp.any_order = !s->virtual_devices;
    ddp.no_overlap = c->no_overlap;
    CHECK(allreduce_algorithm_parse(c->allreduce, &ddp.algorithm));
    return ddp_init(&d->ddp, s->comm, &d->replica, &ddp);
}

static int ddp_strategy_step(struct session *s, const struct step_block *step,
                             const struct batch *batch) {
    struct ddp_strategy *d = s->state;
    return ddp_step(d->ddp, step, batch);
}

static int ddp_strategy_evaluate(struct session *s, const struct step_block *step,
                                 const struct batch *batch) {
    struct ddp_strategy *d = s->state;
    return replica_evaluate(&d->replica, step, batch);
}

static int ddp_strategy_hash_values(struct session *s, const struct step_block *step) {
    struct ddp_strategy *d = s->state;
    CHECK(replica_write_other(&d->replica, step, PHASE_PROOF));
    return replica_hash_values(&d->replica);
}

/* Records the sizes of the buckets, and which algorithm the largest takes and why. */
static void ddp_strategy_describe(struct session *s) {
    struct ddp_strategy *d = s->state;
    struct run_record *r = s->record;
    const struct bucket_plan *plan = ddp_buckets(d->ddp);
    uint64_t largest = 0;
    for (int b = 0; b < plan->bucket_count; b++)
        if (largest < plan->bucket[b].bytes) largest = plan->bucket[b].bytes;
    bucket_plan_sizes(plan, r->buckets, sizeof r->buckets);
    ddp_algorithm(d->ddp, largest / sizeof(float), r->choice, sizeof r->choice);
}

static int ddp_strategy_close(struct session *s) {
    struct ddp_strategy *d = s->state;
    if (!d) return 1;
    ddp_free(d->ddp);
    replica_free(&d->replica);
    free(d);
    return 1;
}

const struct strategy strategy_ddp = {.open = ddp_strategy_open,
                                      .step = ddp_strategy_step,
                                      .evaluate = ddp_strategy_evaluate,
                                      .hash_values = ddp_strategy_hash_values,
                                      .describe = ddp_strategy_describe,
                                      .close = ddp_strategy_close};
