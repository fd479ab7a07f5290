/* DataParallel, told in one file. One step, from top to bottom; every arrow is memory of one
 * device copied to, or read by, another, and all arrows are executed by device 0's stream:
 *
 *     thread 0 = the caller, device 0                           thread r, device r = 1 .. W-1
 *     -------------------------------------------------------   -------------------------------------------
 *     input         host -> 0     the whole global batch        (asleep)
 *     scatter       0 --- rows of pixels (and labels*) ------>  r
 *     replicate     0 --- all parameters, at EVERY step ----->  r
 *     ============================== all threads start ====================================================
 *     forward (its own share)                                   forward (its own share)
 *     ========================== all threads have come back ===============================================
 *     gather        0 <-- output ----------------------------   r
 *     loss          over the whole batch, on its own tape       (asleep)
 *     scatter_grad  0 --- rows of dL/dy --------------------->  r
 *     ============================== all threads start ====================================================
 *     backward                                                  backward
 *     ========================== all threads have come back ===============================================
 *     reduce        0 <-- gradients, summed as they are read -  r
 *     optimizer     on device 0 alone                           (asleep)
 *
 * Device 0 does everything the others do, and besides holds the whole batch, all outputs and
 * their gradient, carries every byte that moves, and computes loss and update while the others
 * sleep. That is why DDP exists (ddp/).
 *
 * *) --loss-in-forward: labels are scattered too, each device computes its own loss at the end of forward and
 * goes on into backward at once; gather fetches S loss sums instead of all outputs, scatter_grad
 * and the second start are gone. The bits are the same: a row's loss and gradient depend on that
 * row and 1/B alone. A single device is run in this way, too: there is nothing to gather.
 *
 * Who waits for whom. Threads: the bars, dp/worker.h. Streams: stream 0 waits for ready[r],
 * which thread r records at the end of its part (all it read, wrote and produced is then
 * complete); stream r waits for done, which stream 0 records behind each collective, at the
 * start of its part (scatter_gather/device_group.h). The threads hand over what was enqueued,
 * not what is done: on an asynchronous device no thread waits for a kernel.
 *
 * A device without samples (a short last batch) walks the same path with 0 rows. Its gradients
 * are exact zeros and are added like any others, as a single device adds an empty segment's: -0
 * + 0 is +0, so leaving them out would not be the same. (PyTorch uses fewer replicas then.) */
#include "dp/dp.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "dp/state.h"

static struct stream *enter(struct dp *dp, enum phase phase) {
    stream_set_phase(dp->group.stream, dp->training ? phase : PHASE_EVALUATE,
                     (int32_t)dp->step->step);
    return dp->group.stream;
}

/* ---- the parts of a step that run on every device's own thread ---- */

/* Begins and ends a part in its stream's order, and ends it also after a failure, so that the
 * next step is in order again. */
static int in_order(struct dp *dp, int r, int (*part)(struct dp *, int)) {
    CHECK(group_follow(&dp->group, r));
    int code = part(dp, r);
    if (!code) return group_ready(&dp->group, r);
    char text[512];
    /* the first failure is the one to be told */
    snprintf(text, sizeof text, "%s", error_message());
    group_ready(&dp->group, r);
    return fail(code, "%s", text);
}

/* Forward and backward of plain DP are two parts of one recorded step, since gather, loss and
 * scatter of dL/dy lie between; what those need of a replayed forward, where its output lies, is
 * kept with the recording. */
struct part {
    struct dp *dp;
    int r;
};

static int forward_part(void *context) {
    struct part *part = context;
    struct dp *dp = part->dp;
    struct replica *replica = &dp->replica[part->r];
    if (dp->training) CHECK(replica_hash_values(replica));
    CHECK(replica_forward(replica, &dp->share[part->r], dp->training, &dp->output[part->r]));
    *recorded_output(&replica->recorded) = dp->output[part->r]->value;
    return OK;
}

static int backward_part(void *context) {
    struct part *part = context;
    struct dp *dp = part->dp;
    return replica_backward(&dp->replica[part->r], dp->output[part->r], &dp->grad_output[part->r]);
}

static int write_step(struct dp *dp, int r) {
    return replica_write_other(&dp->replica[r], dp->step,
                               dp->training ? PHASE_INPUT : PHASE_EVALUATE);
}

static int forward(struct dp *dp, int r) {
    struct replica *replica = &dp->replica[r];
    struct part part = {dp, r};
    if (r > 0) CHECK(write_step(dp, r));
    if (dp->own_loss)
        return dp->training ? replica_train(replica, &dp->share[r])
                            : replica_evaluate(replica, &dp->share[r]);
    /* The whole batch, not the share: where device 0's dL/dy lies depends on all of it. */
    struct recorded_key key = {.kind = dp->training ? WORK_TRAIN : WORK_EVALUATE,
                               .segments = *dp->all};
    recorded_begin(&replica->recorded, &key, dp->training ? 2 : 1);
    return recorded_part(&replica->recorded, "forward", forward_part, &part);
}

static int backward(struct dp *dp, int r) {
    struct part part = {dp, r};
    return recorded_part(&dp->replica[r].recorded, "backward", backward_part, &part);
}

static int hash_values(struct dp *dp, int r) {
    if (r > 0) CHECK(replica_write_other(&dp->replica[r], dp->step, PHASE_PROOF));
    return replica_hash_values(&dp->replica[r]);
}

static int forward_task(void *dp, int r) {
    return in_order(dp, r, forward);
}
static int backward_task(void *dp, int r) {
    return in_order(dp, r, backward);
}
static int hash_values_task(void *dp, int r) {
    return in_order(dp, r, hash_values);
}

/* PyTorch's words for a replica's exception; users search for them. */
static int caught(struct dp *dp, int r) {
    int code = workers_code(dp->workers, r);
    const char *what = code == ERR_MEMORY    ? "OutOfMemoryError"
                       : code == ERR_TIMEOUT ? "TimeoutError"
                                             : "RuntimeError";
    return fail(code, "Caught %s in replica %d on device %d. %s", what, r,
                device_index(dp->group.device[r]), workers_text(dp->workers, r));
}

static int on_all_devices(struct dp *dp, enum phase phase, worker_task *task) {
    struct span wait = {.step = (int32_t)dp->step->step,
                        .phase = (uint8_t)(dp->training ? phase : PHASE_EVALUATE),
                        .device = (int16_t)device_index(dp->group.device[0]),
                        .lane = LANE_HOST,
                        .waiting = 1,
                        .name = "wait for replicas"};
    int failed = workers_run(dp->workers, task, dp, &wait.start_ns);
    wait.end_ns = now_ns();
    if (dp->count > 1) span_add(&dp->waits, &wait);
    return failed < 0 ? OK : caught(dp, failed);
}

/* ---- the parts on device 0's thread ---- */

static int begin_row(struct dp *dp, const struct step_block *step, int training) {
    int rows = dp->replica[0].config.log_rows;
    if (step->slot < 0 || step->slot >= rows)
        return fail(ERR_FAILED, "DataParallel: row %d of the logs: they have %d: read them in time",
                    step->slot, rows);
    dp->step = step;
    dp->training = training;
    return OK;
}

static int begin(struct dp *dp, const struct dp_batch *batch, const struct step_block *step,
                 int training) {
    const struct segments *all = batch->segments;
    int k = dp->segments / dp->count, total = 0;
    dp->all = all;
    if (all->count != dp->segments || all->n < 1)
        return fail(ERR_FAILED,
                    "DataParallel: a batch of %d samples in %d segments: it was set up for %d "
                    "segments of at "
                    "least one sample",
                    all->n, all->count, dp->segments);
    for (int r = 0; r < dp->count; r++) {
        struct segments *share = &dp->share[r];
        share->count = k;
        share->n = 0;
        for (int i = 0; i < k; i++) {
            share->seg[i] = all->seg[r * k + i];
            share->n += share->seg[i].n;
        }
        total += dp->sizes[r] = share->n;
        if (share->n > dp->replica[r].config.max_samples)
            return fail(ERR_FAILED,
                        "DataParallel: %d samples for device %d: its input buffer holds %d",
                        share->n, r, dp->replica[r].config.max_samples);
    }
    if (total != all->n)
        return fail(ERR_FAILED, "DataParallel: segments of %d samples in a batch of %d", total,
                    all->n);
    return begin_row(dp, step, training);
}

static int load_and_scatter(struct dp *dp, const struct dp_batch *batch) {
    struct replica *first = &dp->replica[0];
    const struct model *m = first->model;
    int n = batch->segments->n;
    void *pixels[MAX_DEVICES], *labels[MAX_DEVICES];
    if (batch->from) {
        CHECK(replica_load_samples(first, batch->from, batch->samples, n));
        CHECK(replica_make_rows(first, n));
    } else {
        CHECK(replica_load(first, batch->pixels, batch->labels, n));
    }
    for (int r = 0; r < dp->count; r++) {
        pixels[r] = dp->replica[r].pixels;
        labels[r] = dp->replica[r].labels;
    }
    enter(dp, PHASE_SCATTER);
    int shape[4] = {n, m->channels, m->height, m->width};
    struct tensor all = tensor_plain(first->pixels, DTYPE_F32, 4, shape);
    CHECK(scatter(&dp->group, &all, dp->sizes, pixels));
    if (!dp->own_loss) return OK;
    all = tensor_plain(first->labels, DTYPE_I32, 1, &n);
    return scatter(&dp->group, &all, dp->sizes, labels);
}

static int replicate(struct dp *dp, enum phase phase) {
    float *values[MAX_DEVICES];
    for (int r = 0; r < dp->count; r++)
        values[r] = dp->replica[r].params.values;
    enter(dp, phase);
    return broadcast_coalesced(&dp->group, values, dp->groups, dp->group_count);
}

/* Before forward: device 0's backward, recorded, reads dL/dy where it lay, so the tape's memory
 * must not move between the two (dp/setup.c has it watched). */
static int begin_loss(struct dp *dp, const struct segments *segments) {
    struct tape_step begun = {
        .segments = segments, .step = dp->replica[0].step, .training = dp->training};
    return dp->own_loss ? OK : tape_begin(dp->loss_tape, &begun);
}

/* The loss of the whole batch on device 0, and dL/dy handed out. */
static int gather_and_loss(struct dp *dp, const struct segments *segments) {
    struct replica *first = &dp->replica[0];
    int n = segments->n, classes = first->model->classes;
    struct tensor outputs[MAX_DEVICES], labels = tensor_plain(first->labels, DTYPE_I32, 1, &n);
    struct tensor gathered = tensor_plain(dp->gathered.data, DTYPE_F32, 2, (int[]){n, classes});
    for (int r = 0; r < dp->count; r++)
        outputs[r] = *recorded_output(&dp->replica[r].recorded);
    enter(dp, PHASE_GATHER);
    CHECK(gather(&dp->group, outputs, dp->sizes, &gathered));

    enter(dp, PHASE_LOSS);
    struct tape *t = dp->loss_tape;
    struct var *y = tape_leaf(t, &gathered, 1);
    struct var *loss = model_loss(first->model, t, y, &labels);
    CHECK(tape_error(t));
    CHECK(tape_log_loss(t, loss, &first->losses, &first->hits));
    if (!dp->training) return OK;
    CHECK(tape_backward(t, loss, NULL));

    void *parts[MAX_DEVICES];
    for (int r = 0; r < dp->count; r++) {
        parts[r] = r ? dp->grad_share[r] : y->grad.data; /* device 0's rows are the first: a view */
        dp->grad_output[r] = tensor_plain(parts[r], DTYPE_F32, 2, (int[]){dp->sizes[r], classes});
    }
    enter(dp, PHASE_SCATTER_GRAD);
    return scatter(&dp->group, &y->grad, dp->sizes, parts);
}

/* Row step->slot of a log: device r's first k columns become columns r*k .. of device 0's. */
static int gather_log_row(struct dp *dp, struct tensor *(*log)(struct replica *)) {
    struct tensor rows[MAX_DEVICES];
    int k = dp->segments / dp->count, sizes[MAX_DEVICES];
    for (int r = 0; r < dp->count; r++) {
        const struct tensor *t = log(&dp->replica[r]);
        size_t offset = (size_t)dp->step->slot * (size_t)t->dims[1] * dtype_bytes(t->dtype);
        rows[r] = tensor_plain((char *)t->data + offset, t->dtype, 1, &k);
        sizes[r] = k;
    }
    struct tensor whole = rows[0];
    whole.dims[0] = dp->segments;
    return gather(&dp->group, rows, sizes, &whole);
}

static struct tensor *losses_of(struct replica *r) {
    return &r->losses;
}
static struct tensor *hits_of(struct replica *r) {
    return &r->hits;
}

static int gather_loss_sums(struct dp *dp) {
    enter(dp, PHASE_GATHER);
    CHECK(gather_log_row(dp, losses_of));
    return gather_log_row(dp, hits_of);
}

int dp_step(struct dp *dp, const struct dp_batch *batch, const struct step_block *step) {
    struct replica *first = &dp->replica[0];
    CHECK(begin(dp, batch, step, 1));
    CHECK(write_step(dp, 0));
    CHECK(load_and_scatter(dp, batch));
    CHECK(begin_loss(dp, batch->segments));
    CHECK(replicate(dp, PHASE_REPLICATE));
    CHECK(on_all_devices(dp, PHASE_FORWARD, forward_task)); /* with loss in forward: and backward */
    if (dp->own_loss) {
        CHECK(gather_loss_sums(dp));
    } else {
        CHECK(gather_and_loss(dp, batch->segments));
        CHECK(on_all_devices(dp, PHASE_BACKWARD, backward_task));
    }
    enter(dp, PHASE_REDUCE);
    CHECK(reduce_add_coalesced(&dp->reduce, dp->groups, dp->group_count));
    return replica_finish(first);
}

int dp_evaluate(struct dp *dp, const struct dp_batch *batch, const struct step_block *step) {
    CHECK(begin(dp, batch, step, 0));
    CHECK(write_step(dp, 0));
    CHECK(load_and_scatter(dp, batch));
    CHECK(begin_loss(dp, batch->segments));
    CHECK(replicate(dp, PHASE_EVALUATE)); /* the last update has reached device 0 alone */
    CHECK(on_all_devices(dp, PHASE_FORWARD, forward_task));
    return dp->own_loss ? gather_loss_sums(dp) : gather_and_loss(dp, batch->segments);
}

int dp_hash_values(struct dp *dp, const struct step_block *step) {
    CHECK(begin_row(dp, step, 1));
    CHECK(replica_write_other(&dp->replica[0], step, PHASE_PROOF));
    CHECK(replicate(dp, PHASE_PROOF));
    return on_all_devices(dp, PHASE_PROOF, hash_values_task);
}

struct replica *dp_replica(struct dp *dp, int index) {
    return &dp->replica[index];
}

int dp_column_v(const struct dp *dp, int column) {
    int k = dp->segments / dp->count;
    return column / k + column % k * dp->count;
}

struct span_log *dp_waits(struct dp *dp) {
    return &dp->waits;
}
