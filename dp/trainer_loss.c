/* What lies between forward and backward on the output device, which is device 0 unless
 * --output-device names another: it gathers the outputs, computes the loss of the whole batch, and
 * scatters dL/dy. It leads the group meanwhile, so the copies run on its stream.
 *
 * With --loss-in-forward it gathers the sums of the losses, which each device computed itself. */
#include "base/error.h"
#include "dp/trainer_state.h"

/* The tape of the loss begins before forward: the output device's recorded backward reads dL/dy by
 * address, so the memory of that tape must not move between the two. It is watched for that
 * (trainer_setup.c). */
int dp_trainer_begin_loss(struct dp_trainer *t) {
    struct tape_step step = {.segments = t->all,
                             .step = t->replica[t->dp.output_device].step,
                             .training = t->dp.training,
                             .once = 1};
    return t->own_loss ? OK : tape_begin(t->loss_tape, &step);
}

static int gather_outputs(struct dp_trainer *t, struct tensor *gathered) {
    const int shape[2] = {t->all->n, t->replica[0].model->classes};
    struct tensor outputs[MAX_DEVICES];
    for (int r = 0; r < t->dp.count; r++)
        outputs[r] = *recorded_output(&t->replica[r].recorded);
    *gathered = tensor_plain(t->gathered.data, DTYPE_F32, 2, shape);
    dp_enter(&t->dp, PHASE_GATHER);
    return gather(&t->dp.group, outputs, t->sizes, gathered);
}

/* The loss of the whole batch, and its gradient dL/dy, which is that of the leaf *y. */
static int loss_of_all(struct dp_trainer *t, const struct tensor *gathered, duet_var **y) {
    struct replica *here = &t->replica[t->dp.output_device];
    duet_tape *tape = t->loss_tape;
    void *where = t->dp.output_device ? t->labels : here->labels;
    struct tensor labels = model_answers(here->model, where, t->all->n);
    dp_enter(&t->dp, PHASE_LOSS);
    *y = tape_leaf(tape, gathered, 1);
    duet_var *loss = model_loss(here->model, tape, *y, &labels, &here->class_weights);
    CHECK(tape_error(tape));
    CHECK(tape_log_loss(tape, loss, &here->losses, &here->hits));
    return t->dp.training ? tape_backward(tape, loss, NULL) : OK;
}

/* Each device gets its rows of dL/dy; the output device reads its own where they are. */
static int scatter_grad(struct dp_trainer *t, const struct tensor *dy) {
    void *parts[MAX_DEVICES];
    size_t before = 0; /* rows of the devices below r */
    for (int r = 0; r < t->dp.count; r++) {
        const int shape[2] = {t->sizes[r], dy->dims[1]};
        parts[r] = r == t->dp.output_device ? (float *)dy->data + before * (size_t)dy->dims[1]
                                            : t->grad_share[r];
        t->grad_output[r] = tensor_plain(parts[r], DTYPE_F32, 2, shape);
        before += (size_t)t->sizes[r];
    }
    dp_enter(&t->dp, PHASE_SCATTER_GRAD);
    return scatter(&t->dp.group, dy, t->sizes, parts);
}

static int gather_and_loss(struct dp_trainer *t) {
    struct tensor gathered;
    duet_var *y;
    CHECK(gather_outputs(t, &gathered));
    CHECK(loss_of_all(t, &gathered, &y));
    return t->dp.training ? scatter_grad(t, &y->grad) : OK;
}

/* Row step->row of a log: device r's first k columns become columns r*k .. of the output
 * device's. */
static int gather_log_row(struct dp_trainer *t, struct tensor *(*log)(struct replica *)) {
    struct tensor rows[MAX_DEVICES];
    int k = t->segments / t->dp.count, sizes[MAX_DEVICES];
    for (int r = 0; r < t->dp.count; r++) {
        const struct tensor *x = log(&t->replica[r]);
        size_t offset = (size_t)t->step->row * (size_t)x->dims[1] * dtype_bytes(x->dtype);
        rows[r] = tensor_plain((char *)x->data + offset, x->dtype, 1, &k);
        sizes[r] = k;
    }
    struct tensor whole = rows[t->dp.output_device];
    whole.dims[0] = t->segments;
    return gather(&t->dp.group, rows, sizes, &whole);
}

static struct tensor *losses_of(struct replica *r) {
    return &r->losses;
}
static struct tensor *hits_of(struct replica *r) {
    return &r->hits;
}

static int gather_loss_sums(struct dp_trainer *t) {
    dp_enter(&t->dp, PHASE_GATHER);
    CHECK(gather_log_row(t, losses_of));
    return gather_log_row(t, hits_of);
}

int dp_trainer_loss(void *trainer) {
    struct dp_trainer *t = trainer;
    return t->own_loss ? gather_loss_sums(t) : gather_and_loss(t);
}
