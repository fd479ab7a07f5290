/* Single: one device does all of it. The plainest reading of a training step; DP and DDP are measured against
 * it. */
#include <stdlib.h>

#include "base/error.h"
#include "train/session.h"

static int single_open(struct session *s) {
    struct replica *r = s->state = calloc(1, sizeof *r);
    if (!r) return fail(ERR_MEMORY, "single: no host memory");
    int capacity = batch_capacity(&s->split, s->config->batch_size, 1);
    struct replica_config config = session_replica_config(s, capacity);
    CHECK(replica_init(r, s->device[0], &s->model, &config, s->values));
    s->replicas[0] = r;
    return OK;
}

static int single_step(struct session *s, const struct step_block *step, const struct loaded_batch *batch) {
    struct replica *r = s->state;
    struct var *output, *loss;
    CHECK(replica_write_step(r, step));
    CHECK(replica_load(r, batch->pixels, batch->labels, batch->plan.n));
    CHECK(replica_hash_values(r));
    CHECK(replica_forward(r, &batch->plan.segments, 1, &output));
    CHECK(replica_loss(r, output, 1, &loss));
    CHECK(replica_backward(r, loss, NULL));
    CHECK(replica_hash_grads(r));
    return replica_update(r);
}

int evaluate_replica(struct replica *r, const struct step_block *step, const struct loaded_batch *batch) {
    struct var *output, *loss;
    CHECK(replica_write_step(r, step));
    CHECK(replica_load(r, batch->pixels, batch->labels, batch->plan.n));
    CHECK(replica_forward(r, &batch->plan.segments, 0, &output));
    return replica_loss(r, output, 0, &loss);
}

static int single_evaluate(struct session *s, const struct step_block *step,
                           const struct loaded_batch *batch) {
    return evaluate_replica(s->state, step, batch);
}

static int single_hash_values(struct session *s, const struct step_block *step) {
    CHECK(replica_write_step(s->state, step));
    return replica_hash_values(s->state);
}

static void single_close(struct session *s) {
    replica_free(s->state);
    free(s->state);
}

const struct strategy strategy_single = {single_open,        single_step, single_evaluate,
                                         single_hash_values, NULL,        single_close};
