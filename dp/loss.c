/* What lies between forward and backward on the output device, which is device 0 unless
 * --output-device names another: it gathers the outputs, computes the loss of the whole batch, and
 * scatters dL/dy. It leads the group meanwhile, so the copies run on its stream.
 *
 * With --loss-in-forward it gathers the sums of the losses, which each device computed itself. */
#include "base/error.h"
#include "dp/state.h"

/* The tape of the loss begins before forward: the output device's recorded backward reads dL/dy by
 * address, so the memory of that tape must not move between the two (dp/setup.c has it watched). */
int dp_begin_loss(struct dp *dp) {
    struct tape_step step = {
        .segments = dp->all, .step = dp->replica[dp->output_device].step, .training = dp->training};
    return dp->own_loss ? OK : tape_begin(dp->loss_tape, &step);
}

static int gather_outputs(struct dp *dp, struct tensor *gathered) {
    const int shape[2] = {dp->all->n, dp->replica[0].model->classes};
    struct tensor outputs[MAX_DEVICES];
    for (int r = 0; r < dp->count; r++)
        outputs[r] = *recorded_output(&dp->replica[r].recorded);
    *gathered = tensor_plain(dp->gathered.data, DTYPE_F32, 2, shape);
    dp_enter(dp, PHASE_GATHER);
    return gather(&dp->group, outputs, dp->sizes, gathered);
}

/* The loss of the whole batch, and its gradient dL/dy, which is that of the leaf *y. */
static int loss_of_all(struct dp *dp, const struct tensor *gathered, duet_var **y) {
    struct replica *here = &dp->replica[dp->output_device];
    duet_tape *t = dp->loss_tape;
    void *where = dp->output_device ? dp->labels : here->labels;
    struct tensor labels = model_answers(here->model, where, dp->all->n);
    dp_enter(dp, PHASE_LOSS);
    *y = tape_leaf(t, gathered, 1);
    duet_var *loss = model_loss(here->model, t, *y, &labels);
    CHECK(tape_error(t));
    CHECK(tape_log_loss(t, loss, &here->losses, &here->hits));
    return dp->training ? tape_backward(t, loss, NULL) : OK;
}

/* Each device gets its rows of dL/dy; the output device reads its own where they are. */
static int scatter_grad(struct dp *dp, const struct tensor *dy) {
    void *parts[MAX_DEVICES];
    size_t before = 0; /* rows of the devices below r */
    for (int r = 0; r < dp->count; r++) {
        const int shape[2] = {dp->sizes[r], dy->dims[1]};
        parts[r] = r == dp->output_device ? (float *)dy->data + before * (size_t)dy->dims[1]
                                          : dp->grad_share[r];
        dp->grad_output[r] = tensor_plain(parts[r], DTYPE_F32, 2, shape);
        before += (size_t)dp->sizes[r];
    }
    dp_enter(dp, PHASE_SCATTER_GRAD);
    return scatter(&dp->group, dy, dp->sizes, parts);
}

static int gather_and_loss(struct dp *dp) {
    struct tensor gathered;
    duet_var *y;
    CHECK(gather_outputs(dp, &gathered));
    CHECK(loss_of_all(dp, &gathered, &y));
    return dp->training ? scatter_grad(dp, &y->grad) : OK;
}

/* Row step->slot of a log: device r's first k columns become columns r*k .. of the output
 * device's. */
static int gather_log_row(struct dp *dp, struct tensor *(*log)(struct replica *)) {
    struct tensor rows[MAX_DEVICES];
    int k = dp->segments / dp->count, sizes[MAX_DEVICES];
    for (int r = 0; r < dp->count; r++) {
        const struct tensor *t = log(&dp->replica[r]);
        size_t offset = (size_t)dp->step->slot * (size_t)t->dims[1] * dtype_bytes(t->dtype);
        rows[r] = tensor_plain((char *)t->data + offset, t->dtype, 1, &k);
        sizes[r] = k;
    }
    struct tensor whole = rows[dp->output_device];
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
    dp_enter(dp, PHASE_GATHER);
    CHECK(gather_log_row(dp, losses_of));
    return gather_log_row(dp, hits_of);
}

/* Device 0 leads again afterwards, also after a failure, whose text stays. */
int dp_loss(struct dp *dp) {
    struct failures first = {0};
    CHECK(group_lead(&dp->group, dp->output_device));
    failures_add(&first, dp->own_loss ? gather_loss_sums(dp) : gather_and_loss(dp));
    int back = group_lead(&dp->group, 0);
    CHECK(failures_end(&first));
    return back;
}
