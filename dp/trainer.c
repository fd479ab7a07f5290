/* A step of DataParallel as the command takes it: what is cut, brought in and scattered, and what
 * each device does with its share. dp.c has the drawing and the order. */
#include "base/error.h"
#include "dp/trainer_state.h"

/* ---- the parts of a step that run on every device's own thread ---- */

/* With its own loss a device goes straight on from forward to backward. */
static int forward_loss_backward(struct dp_trainer *t, int r) {
    struct replica *replica = &t->replica[r];
    const struct segments *share = &t->share[r];
    duet_var *output, *loss;
    int code = OK;
    if (replica_enter(replica, t->dp.training ? WORK_TRAIN : WORK_EVALUATE, share)) {
        code = replica_forward(replica, share, t->dp.training, &output);
        if (!code) code = replica_loss(replica, output, t->dp.training, &loss);
        if (!code && t->dp.training) code = replica_backward(replica, loss, NULL);
    }
    return replica_leave(replica, code);
}

/* Without it forward and backward are the two parts of one recorded step, since gather, loss and
 * scatter_grad lie between them. What those need of a replayed forward, the place of its output, is
 * kept with the recording. Its key is the whole batch, not the share: where device 0's dL/dy lies
 * depends on all of it. */
static int forward_alone(struct dp_trainer *t, int r) {
    struct replica *replica = &t->replica[r];
    struct recorded *recorded = &replica->recorded;
    struct recorded_key key =
        replica_key(replica, t->dp.training ? WORK_TRAIN : WORK_EVALUATE, t->all);
    int code = OK;
    recorded_begin(recorded, &key, t->dp.training ? 2 : 1);
    if (recorded_enter(recorded, "forward")) {
        code = replica_forward(replica, &t->share[r], t->dp.training, &t->output[r]);
        if (!code) *recorded_output(recorded) = t->output[r]->value;
    }
    return recorded_leave(recorded, code);
}

static int write_step(struct dp_trainer *t, int r) {
    return replica_write_other(&t->replica[r], t->step,
                               t->dp.training ? PHASE_INPUT : PHASE_EVALUATE);
}

int dp_trainer_forward(void *trainer, int r) {
    struct dp_trainer *t = trainer;
    if (r > 0) CHECK(write_step(t, r));
    return t->own_loss ? forward_loss_backward(t, r) : forward_alone(t, r);
}

int dp_trainer_backward(void *trainer, int r) {
    struct dp_trainer *t = trainer;
    struct replica *replica = &t->replica[r];
    int code = OK;
    if (recorded_enter(&replica->recorded, "backward"))
        code = replica_backward(replica, t->output[r], &t->grad_output[r]);
    return recorded_leave(&replica->recorded, code);
}

static int hash_values(void *trainer, int r) {
    struct dp_trainer *t = trainer;
    if (r > 0) CHECK(replica_write_other(&t->replica[r], t->step, PHASE_PROOF));
    return replica_hash_values(&t->replica[r]);
}

/* ---- the parts on device 0's thread ---- */

/* Cuts the batch into the devices' shares: k segments each, device 0's first. */
static int cut(struct dp_trainer *t, const struct segments *all) {
    int k = t->segments / t->dp.count, total = 0;
    if (all->count != t->segments || all->n < 1)
        return fail(ERR_FAILED,
                    "DataParallel: a batch of %d samples in %d segments: it was set up for %d "
                    "segments of at least one sample",
                    all->n, all->count, t->segments);
    for (int r = 0; r < t->dp.count; r++) {
        struct segments *share = &t->share[r];
        share->count = k;
        share->n = 0;
        for (int i = 0; i < k; i++) {
            share->seg[i] = all->seg[r * k + i];
            share->n += share->seg[i].n;
        }
        total += t->sizes[r] = share->n;
        if (share->n > t->replica[r].config.max_samples)
            return fail(ERR_FAILED,
                        "DataParallel: %d samples for device %d: its input buffer holds %d",
                        share->n, r, t->replica[r].config.max_samples);
    }
    if (total != all->n)
        return fail(ERR_FAILED, "DataParallel: segments of %d samples in a batch of %d", total,
                    all->n);
    return OK;
}

/* Spans count updates, not passes. */
static int begin_row(struct dp_trainer *t, const struct step_block *step, int training) {
    const struct replica_config *c = &t->replica[0].config;
    if (step->row < 0 || step->row >= c->log_rows)
        return fail(ERR_FAILED, "DataParallel: row %d of the logs: they have %d: read them in time",
                    step->row, c->log_rows);
    t->step = step;
    return dp_begin(&t->dp, (int32_t)(step->step / (uint64_t)(c->passes > 1 ? c->passes : 1)),
                    training);
}

static int begin(struct dp_trainer *t, const struct step_block *step, const struct batch *batch,
                 int training) {
    CHECK(begin_row(t, step, training));
    CHECK(cut(t, &batch->segments));
    t->all = &batch->segments;
    t->loss_sizes[t->dp.output_device] = t->all->n;
    return OK;
}

/* Device 0 takes in the whole batch. Pixels must be there before they are scattered, so a batch
 * that is an index is unpacked here, not in forward. */
static int input(struct dp_trainer *t, const struct batch *batch) {
    CHECK(write_step(t, 0));
    CHECK(replica_load(&t->replica[0], batch));
    return replica_unpack(&t->replica[0]);
}

static struct dp_rows pixels_of(struct dp_trainer *t) {
    const struct model *m = t->replica[0].model;
    const int shape[4] = {t->all->n, m->channels, m->height, m->width};
    struct dp_rows s = {.whole = tensor_plain(t->replica[0].pixels, DTYPE_F32, 4, shape),
                        .sizes = t->sizes};
    for (int r = 0; r < t->dp.count; r++)
        s.parts[r] = t->replica[r].pixels;
    return s;
}

/* Labels go to where the loss is computed: their rows to every device, or all to the output device,
 * where they already are if that is device 0. */
static struct dp_rows labels_of(struct dp_trainer *t) {
    struct replica *first = &t->replica[0];
    struct dp_rows s = {.whole = model_answers(first->model, first->labels, t->all->n),
                        .sizes = t->own_loss ? t->sizes : t->loss_sizes};
    for (int r = 0; r < t->dp.count; r++)
        s.parts[r] =
            t->own_loss || r != t->dp.output_device || r == 0 ? t->replica[r].labels : t->labels;
    return s;
}

/* ---- a step ---- */

/* From the input to the loss, and with its own loss to the end of backward. */
static int pass(struct dp_trainer *t, const struct step_block *step, const struct batch *batch,
                int training) {
    CHECK(begin(t, step, batch, training));
    CHECK(input(t, batch));
    CHECK(dp_trainer_begin_loss(t));
    const struct dp_rows inputs[] = {pixels_of(t), labels_of(t)};
    CHECK(dp_forward(&t->dp, inputs, 2));
    return dp_at_output(&t->dp, dp_trainer_loss, t);
}

int dp_trainer_step(struct dp_trainer *t, const struct step_block *step,
                    const struct batch *batch) {
    CHECK(pass(t, step, batch, 1));
    if (!t->own_loss) CHECK(dp_backward(&t->dp));
    if (step->more_passes) return OK; /* each device keeps its own sums until the last pass */
    CHECK(dp_reduce(&t->dp));
    for (int r = 1; r < t->dp.count; r++)
        replica_add_used(&t->replica[0], &t->replica[r]);
    return replica_update(&t->replica[0]);
}

int dp_trainer_evaluate(struct dp_trainer *t, const struct step_block *step,
                        const struct batch *batch) {
    return pass(t, step, batch, 0);
}

int dp_trainer_hash_values(struct dp_trainer *t, const struct step_block *step) {
    CHECK(begin_row(t, step, 1));
    CHECK(replica_write_other(&t->replica[0], step, PHASE_PROOF));
    CHECK(dp_replicate(&t->dp, PHASE_PROOF));
    return dp_on_all_devices(&t->dp, PHASE_PROOF, hash_values);
}

struct replica *dp_trainer_replica(struct dp_trainer *t, int index) {
    return &t->replica[index];
}

struct span_log *dp_trainer_waits(struct dp_trainer *t) {
    return &t->dp.waits;
}
