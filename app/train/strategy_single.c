/* Single: one device does everything. It is the simplest form of a training step, and the reference
 * for DP and DDP. */
#include <stdlib.h>

#include "base/error.h"
#include "train/session.h"

static int single_open(struct session *s) {
    struct replica *r = s->state = calloc(1, sizeof *r);
    if (!r) return fail(ERR_MEMORY, "single: out of host memory");
    int capacity = batch_capacity(&s->split, s->largest_batch, 1);
    struct replica_config config = session_replica_config(s, capacity);
    CHECK(replica_init(r, s->device[0], &s->model, &config, s->values));
    s->replicas[0] = r;
    CHECK(session_open_sums(s));
    r->params->set.sums = s->sums.in_force;
    return OK;
}

static int single_step(struct session *s, const struct step_block *step,
                       const struct batch *batch) {
    if (!step->add_grads) CHECK(sums_begin_update(&s->sums));
    return replica_step(s->state, step, batch);
}

static int single_hash_values(struct session *s, const struct step_block *step) {
    CHECK(replica_write_other(s->state, step, PHASE_PROOF));
    return replica_hash_values(s->state);
}

static int single_close(struct session *s) {
    replica_free(s->state);
    free(s->state);
    return 1;
}

const struct strategy strategy_single = {.open = single_open,
                                         .step = single_step,
                                         .evaluate = session_evaluate,
                                         .hash_values = single_hash_values,
                                         .close = single_close};
