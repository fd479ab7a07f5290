/* Single: one device does all of it. The plainest reading of a training step; DP and DDP are
 * measured against it. */
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

int load_batch(struct replica *r, const struct device_dataset *from,
               const struct loaded_batch *batch) {
    if (batch->samples) return replica_load_samples(r, from, batch->samples, batch->plan.n);
    return replica_load(r, batch->pixels, batch->labels, batch->plan.n);
}

static int single_step(struct session *s, const struct step_block *step,
                       const struct loaded_batch *batch) {
    struct replica *r = s->state;
    CHECK(replica_write_step(r, step));
    CHECK(load_batch(r, &s->train_data, batch));
    CHECK(replica_train(r, &batch->plan.segments)); /* forward, loss, backward */
    return replica_finish(r);                       /* the optimizer */
}

int evaluate_replica(struct session *s, struct replica *r, const struct step_block *step,
                     const struct loaded_batch *batch) {
    CHECK(replica_write_other(r, step, PHASE_EVALUATE));
    CHECK(load_batch(r, &s->test_data, batch));
    return replica_evaluate(r, &batch->plan.segments); /* forward, loss */
}

static int single_evaluate(struct session *s, const struct step_block *step,
                           const struct loaded_batch *batch) {
    return evaluate_replica(s, s->state, step, batch);
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

const struct strategy strategy_single = {
    single_open, single_step, single_evaluate, single_hash_values, NULL, single_close, NULL};
