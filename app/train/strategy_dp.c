/* DataParallel as a strategy of the trainer. Its step is that of examples/mlp/data_parallel.c: the
 * whole batch is copied to device 0, duet_data_parallel_call (dp/dp.c) runs the model on all
 * devices, and the loss is on the tape of the output device. The replicas add what a comparison
 * needs: shares in segments, step blocks, logs, hashes.
 *
 * Bits. A batch is split into S segments (base/segment.h), k = S / W for each of the W devices,
 * device 0's first. The segments are the V virtual devices; with --virtual-devices off each device
 * has one segment. If fold_fits(S, W) (base/fold.h), gradients, losses and values are bit for bit
 * those of one device that holds all S segments.
 *
 * Logs of losses and hits are on the output device. In row step->row, column c is segment c of the
 * batch, which is virtual device v = c / k + (c % k) * W. Every replica has hashes of the values,
 * and device 0 also of the gradients. */
#include "train/strategy_dp.h"

#include <stddef.h>

#include "base/error.h"

/* ---- the parts that run in each device's thread ---- */

static int write_step(struct dp_strategy *d, int r) {
    return replica_write_other(&d->replica[r], d->step, d->training ? PHASE_INPUT : PHASE_EVALUATE);
}

int dp_strategy_begin_on(void *strategy, int r) {
    struct dp_strategy *d = strategy;
    if (r > 0) CHECK(write_step(d, r));
    return replica_begin(&d->replica[r], &d->share[r], d->training);
}

duet_var *dp_strategy_forward(duet_tape *t, duet_var *x, void *strategy) {
    const struct dp_strategy *d = strategy;
    return model_forward(d->replica[0].model, t, t->buffers, x);
}

duet_var *dp_strategy_loss(duet_tape *t, duet_var *y, const duet_tensor *labels, void *strategy) {
    struct dp_strategy *d = strategy;
    duet_var *loss = NULL;
    int r = 0;
    (void)labels; /* the replica has its own labels */
    while (d->replica[r].tape != t)
        r++;
    return tape_fail(t, replica_loss(&d->replica[r], y, d->training, &loss)) ? NULL : loss;
}

static int hash_on(void *model, int r) {
    struct dp_strategy *d = ((struct duet_data_parallel *)model)->context;
    if (r > 0) CHECK(replica_write_other(&d->replica[r], d->step, PHASE_PROOF));
    return replica_hash_values(&d->replica[r]);
}

/* ---- the batch ---- */

/* Cuts the batch into the devices' shares: k segments each, device 0's first. */
static void cut(struct dp_strategy *d, const struct segments *all, int devices) {
    int k = d->segments / devices;
    for (int r = 0; r < devices; r++) {
        struct segments *share = &d->share[r];
        share->count = k;
        share->n = 0;
        for (int i = 0; i < k; i++) {
            share->seg[i] = all->seg[r * k + i];
            share->n += share->seg[i].n;
        }
        d->shares.sizes[r] = share->n;
    }
}

/* Spans count updates, not passes. */
static int begin_row(struct dp_strategy *d, const struct step_block *step, int training) {
    int passes = d->replica[0].config.passes;
    d->step = step;
    d->training = training;
    d->shares.step = (int32_t)(step->step / (uint64_t)(passes > 1 ? passes : 1));
    d->shares.more_passes = step->more_passes;
    return dp_begin(&d->model->dp, d->shares.step, training);
}

/* Device 0 receives the whole batch. */
static int begin(struct dp_strategy *d, const struct step_block *step, const struct batch *batch,
                 int training) {
    CHECK(begin_row(d, step, training));
    cut(d, &batch->segments, d->model->dp.count);
    d->all = &batch->segments;
    CHECK(write_step(d, 0));
    return replica_load(&d->replica[0], batch);
}

static struct duet_tensor pixels(const struct dp_strategy *d) {
    const struct replica *first = &d->replica[0];
    const struct model *m = first->model;
    const int shape[4] = {d->all->n, m->channels, m->height, m->width};
    return (struct duet_tensor){.device = first->device,
                                .t = tensor_plain(first->pixels, DTYPE_F32, 4, shape),
                                .borrowed = 1};
}

/* ---- the loss ---- */

/* The labels of the whole batch on the device that gathers outputs: y.to(output_device). */
static int bring_labels(struct dp_strategy *d, struct tensor *labels) {
    const struct replica *first = &d->replica[0];
    int sizes[MAX_DEVICES] = {[0] = 0};
    *labels = model_answers(first->model, first->labels, d->all->n);
    if (!d->output) return OK;
    struct dp_rows rows = {.whole = *labels, .sizes = sizes};
    rows.parts[d->output] = d->labels;
    sizes[d->output] = d->all->n;
    labels->data = d->labels;
    return dp_scatter(&d->model->dp, PHASE_SCATTER, &rows, 1);
}

/* The loss of the whole batch, as in a program. */
static int forward_and_loss(struct dp_strategy *d, duet_var **loss) {
    struct replica *output = &d->replica[d->output];
    const struct tape_step step = {
        .segments = d->all, .step = output->step, .training = d->training, .once = 1};
    const struct duet_tensor x = pixels(d);
    struct tensor labels;
    CHECK(pass_begin(d->tape, NULL, &step));
    CHECK(bring_labels(d, &labels));
    duet_var *y = duet_data_parallel_call(d->tape, d->model, &x);
    stream_set_phase(device_compute(output->device), d->training ? PHASE_LOSS : PHASE_EVALUATE,
                     d->shares.step);
    *loss = model_loss(output->model, d->tape, y, &labels);
    CHECK(tape_error(d->tape));
    return tape_log_loss(d->tape, *loss, &output->losses, &output->hits);
}

/* Row step->row of a log: device r's first k columns become columns r*k .. in the output device's
 * row. */
static int gather_row(struct dp_strategy *d, size_t log) {
    struct tensor rows[MAX_DEVICES];
    struct dp *dp = &d->model->dp;
    int k = d->segments / dp->count, sizes[MAX_DEVICES];
    for (int r = 0; r < dp->count; r++) {
        const struct tensor *x = (const struct tensor *)((const char *)&d->replica[r] + log);
        size_t offset = (size_t)d->step->row * (size_t)x->dims[1] * dtype_bytes(x->dtype);
        rows[r] = tensor_plain((char *)x->data + offset, x->dtype, 1, &k);
        sizes[r] = k;
    }
    struct tensor whole = rows[d->output];
    whole.dims[0] = d->segments;
    return dp_gather(dp, rows, sizes, &whole);
}

static int gather_losses(void *strategy) {
    CHECK(gather_row(strategy, offsetof(struct replica, losses)));
    return gather_row(strategy, offsetof(struct replica, hits));
}

/* In training the devices have run backward, too. */
static int losses_in_forward(struct dp_strategy *d) {
    const struct replica *first = &d->replica[0];
    const struct duet_tensor x = pixels(d), *inputs = &x,
                             y = {.device = first->device,
                                  .t = model_answers(first->model, first->labels, d->all->n),
                                  .borrowed = 1};
    CHECK(data_parallel_forward(d->model, &inputs, 1, &y, 1,
                                d->training ? DUET_TRAIN : DUET_EVALUATE));
    d->model->can_go_back = d->training;
    return dp_at_output(&d->model->dp, gather_losses, d);
}

/* ---- a step ---- */

int dp_strategy_step(struct session *s, const struct step_block *step, const struct batch *batch) {
    struct dp_strategy *d = s->state;
    duet_var *loss;
    if (!step->add_grads) CHECK(sums_begin_update(&s->sums));
    CHECK(begin(d, step, batch, 1));
    if (d->own_loss) {
        CHECK(losses_in_forward(d));
        CHECK(data_parallel_backward(d->model, NULL, 0, NULL)); /* only the reduce is left to do */
    } else {
        CHECK(forward_and_loss(d, &loss));
        CHECK(duet_backward(d->tape, loss, NULL));
    }
    return step->more_passes ? OK : replica_update(&d->replica[0]);
}

int dp_strategy_evaluate(struct session *s, const struct step_block *step,
                         const struct batch *batch) {
    struct dp_strategy *d = s->state;
    duet_var *loss;
    CHECK(begin(d, step, batch, 0));
    if (d->own_loss) return losses_in_forward(d);
    CHECK(forward_and_loss(d, &loss));
    /* the next batch's labels wait for this loss; in training backward ensures it */
    return dp_at_output(&d->model->dp, NULL, NULL);
}

/* The end of the proof: parameters are replicated once more. */
int dp_strategy_hash_values(struct session *s, const struct step_block *step) {
    struct dp_strategy *d = s->state;
    CHECK(begin_row(d, step, 1));
    CHECK(replica_write_other(&d->replica[0], step, PHASE_PROOF));
    CHECK(dp_replicate(&d->model->dp, PHASE_PROOF));
    return dp_on_all_devices(&d->model->dp, PHASE_PROOF, hash_on);
}

struct span_log *dp_strategy_waits(struct session *s) {
    return &((struct dp_strategy *)s->state)->model->dp.waits;
}
