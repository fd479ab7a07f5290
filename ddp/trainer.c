/* A step of DDP as the command trains: between ddp_begin and ddp_finish, forward and backward of a
 * replica. ddp.h draws it.
 *
 * Where steps are recorded (models/recorded.h) the hook fires only while the step is recorded, and
 * then the events ready[b] alone are recorded with it. A replay records each of them at its
 * place among the kernels. The allreduces are launched right behind the call of the replay, in the
 * same order; each waits for its ready[b], so communication still runs beside backward. The
 * allreduces themselves are no part of the recording. */
#include "ddp/trainer.h"

#include <string.h>

#include "base/error.h"
#include "ddp/state.h"

int ddp_trainer_init(struct ddp_trainer *t, struct comm *comm, struct replica *replica,
                     const struct ddp_config *config) {
    *t = (struct ddp_trainer){.replica = replica};
    CHECK(ddp_init(&t->ddp, comm, replica->params, NULL, config));
    recorded_forget(&replica->recorded); /* a step recorded before has no ready events in it */
    return OK;
}

void ddp_trainer_free(struct ddp_trainer *t) {
    if (!t->ddp) return;
    recorded_forget(&t->replica->recorded); /* recorded steps hold the ddp's events */
    duet_ddp_free(t->ddp);
    t->ddp = NULL;
}

static int forward_and_backward(struct ddp_trainer *t, const struct segments *segments) {
    struct replica *r = t->replica;
    duet_var *output, *loss;
    t->ddp->recording = recorded_is_recording(&r->recorded);
    CHECK(replica_forward(r, segments, 1, &output));
    CHECK(replica_loss(r, output, 1, &loss));
    return replica_backward(r, loss, NULL); /* the hook launches full buckets */
}

static int step(struct ddp_trainer *t, const struct step_block *block, const struct batch *batch) {
    struct replica *r = t->replica;
    int code = OK;
    CHECK(replica_write_step(r, block));
    if (!block->add_grads) CHECK(ddp_begin(t->ddp, r->step_number));
    CHECK(replica_load(r, batch));
    CHECK(ddp_broadcast_buffers(t->ddp, r->step_number));
    if (replica_enter(r, WORK_TRAIN, &batch->segments))
        code = forward_and_backward(t, &batch->segments);
    t->ddp->recording = 0;
    CHECK(replica_leave(r, code));
    if (block->more_passes) return OK; /* nothing is complete yet, so the hook has not fired */
    if (r->recorded.stage != STAGE_PLAIN) CHECK(ddp_launch_replayed(t->ddp));
    CHECK(ddp_finish(t->ddp)); /* waits for the last allreduce */
    return replica_update(r);
}

int ddp_trainer_step(struct ddp_trainer *t, const struct step_block *block,
                     const struct batch *batch) {
    return ddp_ended(t->ddp, step(t, block, batch));
}

/* ---- a rank without input ---- */

static int without_forward(void *trainer) {
    struct ddp_trainer *t = trainer;
    CHECK(ddp_broadcast_buffers(t->ddp, t->replica->step_number));
    CHECK(replica_hash_values(t->replica));
    CHECK(replica_log_nothing(t->replica));
    memset(t->ddp->used, 1, (size_t)t->ddp->params->count); /* the others update all of them */
    return OK;
}

static int shadow(struct ddp_trainer *t, const struct step_block *block, int *active) {
    struct replica *r = t->replica;
    if (t->ddp->config.join == DUET_JOIN_OFF)
        return fail(ERR_USAGE, "ddp: a rank without input: give ddp_config.join");
    CHECK(replica_write_step(r, block));
    CHECK(ddp_shadow_pass(t->ddp, r->step_number, without_forward, t, active));
    return *active ? replica_update(r) : OK;
}

int ddp_trainer_shadow(struct ddp_trainer *t, const struct step_block *block, int *active) {
    return ddp_ended(t->ddp, shadow(t, block, active));
}
