/* Each device's work in the step of dp.c, on its own thread, and the checks before it. */
#include "dp/dp.h"

#include <stdio.h>

/* ---- forward, on each device's own thread ---- */

static int keep_loss(struct duet_data_parallel *m, struct output *o, int r, duet_var *y) {
    struct duet_tape *t = m->tape[r];
    double sum;
    o->root[r] = y;
    o->is_loss[r] = 1;
    o->rows[r] = 1;
    CHECK(tape_loss_reduction(y, &o->how[r]));
    if (o->how[r] == REDUCE_NONE)
        return fail(ERR_USAGE, "DataParallel: a loss with DUET_NONE: give it DUET_MEAN or "
                               "DUET_SUM, so that each replica has one number");
    CHECK(duet_loss_read(t, y, &sum, NULL));
    o->loss[r] = o->how[r] == REDUCE_MEAN ? sum / m->x[0].sizes[r] : sum;
    return OK;
}

static int keep_output(struct duet_data_parallel *m, struct output *o, int r, duet_var *y) {
    if (!y) return fail(ERR_USAGE, "DataParallel: the forward function has returned NULL");
    if (y->value.dtype != DTYPE_F32) {
        if (m->forward_multi) return keep_loss(m, o, r, y);
        return fail(ERR_USAGE,
                    "DataParallel: forward has returned a loss: return the output, or give "
                    "forward_multi");
    }
    CHECK(data_parallel_check_dim(m, &y->value));
    o->root[r] = data_parallel_turn_var(m, m->tape[r], to_plain(m->tape[r], y), 0);
    CHECK(duet_tape_error(m->tape[r]));
    o->is_loss[r] = 0;
    o->rows[r] = o->root[r]->value.dims[0];
    return OK;
}

/* The loss in forward, which goes to the logs of the command's replica. */
static int compute_loss(struct duet_data_parallel *m, int r, duet_var *y) {
    struct duet_tape *t = m->tape[r];
    duet_var *loss = m->loss(t, y, &m->y.part[r], m->context);
    CHECK(duet_tape_error(t));
    m->output[0].root[r] = loss;
    if (m->pass != DUET_TRAIN) return OK;
    stream_set_phase(t->stream, PHASE_BACKWARD, m->dp.step);
    return duet_backward(t, loss, NULL);
}

/* The program's function, from the replica's rows of the inputs to its outputs. */
static int run_forward(struct duet_data_parallel *m, int r, duet_var **outputs) {
    struct duet_tape *t = m->tape[r];
    const duet_tensor *tensors[MOST_INPUTS];
    duet_var *x[MOST_INPUTS];
    for (int i = 0; i < m->inputs; i++) {
        struct tensor *rows = &m->x[i].part[r].t;
        tensors[i] = &m->x[i].shown[r];
        m->leaf[i][r] = rows->dtype == DTYPE_F32 ? tape_leaf(t, rows, m->input_grad) : NULL;
        x[i] = m->leaf[i][r];
        CHECK(data_parallel_show(m, i, r, &x[i]));
    }
    const struct duet_replica replica = {r, m->inputs, m->outputs, tensors, x};
    CHECK(duet_tape_error(t));
    t->inside_forward = 1;
    if (m->forward_multi)
        m->forward_multi(t, &replica, outputs, m->context);
    else
        outputs[0] = m->forward(t, x[0], m->context);
    t->inside_forward = 0;
    return duet_tape_error(t);
}

int data_parallel_forward_on(void *context, int r) {
    struct duet_data_parallel *m = context;
    duet_var *outputs[MOST_OUTPUTS] = {0};
    if (r >= m->used) return OK;
    CHECK(m->shares ? m->shares->begin(m->shares->context, r)
                    : duet_tape_begin(m->tape[r], m->params[r], m->x[0].sizes[r], m->pass));
    CHECK(run_forward(m, r, outputs));
    if (m->in_forward) return compute_loss(m, r, outputs[0]);
    for (int i = 0; i < m->outputs; i++)
        CHECK(keep_output(m, &m->output[i], r, outputs[i]));
    return OK;
}

/* ---- checks before and after ---- */

int data_parallel_check_tape(const struct duet_data_parallel *m, const duet_tape *t) {
    struct device *output = m->dp.group.device[m->dp.output_device];
    if (t->device != output)
        return fail(ERR_USAGE,
                    "DataParallel: the tape is on %s, the output on %s: make a tape on the output "
                    "device",
                    device_name(t->device), device_name(output));
    if (m->forward_multi)
        return fail(ERR_USAGE, "DataParallel: a forward function of several outputs: call "
                               "duet_data_parallel_forward");
    return OK;
}

/* The gradients of the replicas overwrite all others of this backward. */
int data_parallel_check_params(const duet_tape *t, const struct duet_params *params) {
    for (int i = 0; i < params->set.count; i++)
        if (t->use[i].total)
            return fail(ERR_USAGE,
                        "DataParallel: the tape uses parameter %d (%s) outside of the replicas, "
                        "too: give those layers other parameters",
                        i, params->set.param[i].spec->name);
    return OK;
}

/* A parameter with a gradient keeps it, even if the last pass of the update lacks this node. */
void data_parallel_mark_on_tape(duet_tape *t, const struct duet_params *params) {
    for (int i = 0; i < params->set.count; i++)
        if (params->has_grad[i]) t->has_grad[i] = 1;
}

/* ---- a pass begins ---- */

static int check_input(const struct duet_data_parallel *m, const char *what, const duet_tensor *x) {
    struct device *first = m->dp.group.device[0];
    if (!x) return fail(ERR_USAGE, "DataParallel: no %s was given", what);
    if (x->device != first)
        return fail(ERR_USAGE,
                    "DataParallel: %s is on %s: bring it to %s, the first device, with "
                    "duet_tensor_to",
                    what, device_name(x->device), device_name(first));
    return OK;
}

static int check_inputs(const struct duet_data_parallel *m, const duet_tensor *const *x, int inputs,
                        int outputs) {
    char what[16] = "x";
    if (inputs < 1 || inputs > MOST_INPUTS || outputs < 1 || outputs > MOST_OUTPUTS || !x)
        return fail(ERR_USAGE, "DataParallel: %d inputs, %d outputs: give 1 to %d of each", inputs,
                    outputs, (int)MOST_INPUTS);
    for (int i = 0; i < inputs; i++) {
        if (inputs > 1) snprintf(what, sizeof what, "input %d", i);
        CHECK(check_input(m, what, x[i]));
    }
    if (m->forward_multi) return OK;
    if (inputs > 1 || outputs > 1)
        return fail(ERR_USAGE,
                    "DataParallel: %d inputs, %d outputs for a forward function of one each: give "
                    "forward_multi instead",
                    inputs, outputs);
    if (x[0]->t.dtype == DTYPE_F32) return OK;
    return fail(ERR_USAGE, "DataParallel: x is of type %s: must be float32",
                dtype_name(x[0]->t.dtype));
}

int data_parallel_begin(struct duet_data_parallel *m, const duet_tensor *const *x, int inputs,
                        const duet_tensor *y, int outputs, enum duet_pass pass,
                        struct dp_rows *rows) {
    m->can_go_back = 0;
    m->output[0].on_tape = NULL;
    m->has_input_grad = 0;
    CHECK(dp_begin(&m->dp, m->shares ? m->shares->step : NO_STEP, pass == DUET_TRAIN));
    CHECK(check_inputs(m, x, inputs, outputs));
    m->inputs = inputs;
    m->outputs = outputs;
    m->pass = pass;
    m->in_forward = y != NULL;
    CHECK(data_parallel_take(m, x, inputs, y, rows));
    return OK;
}

int data_parallel_begin_backward(struct duet_data_parallel *m, const duet_tensor *const *grads,
                                 int count) {
    if (!m->can_go_back)
        return fail(ERR_USAGE,
                    "DataParallel: backward: no forward in DUET_TRAIN since the last backward");
    CHECK(dp_begin(&m->dp, m->shares ? m->shares->step : NO_STEP, 1));
    if (!m->in_forward) CHECK(data_parallel_check_grads(m, grads, count));
    m->can_go_back = 0;
    return OK;
}

/* ---- backward ---- */

static int backward_from_outputs(struct duet_data_parallel *m, int r) {
    const duet_tensor *grads[MOST_OUTPUTS];
    duet_var *roots[MOST_OUTPUTS];
    int count = 0;
    for (int i = 0; i < m->outputs; i++) {
        struct output *o = &m->output[i];
        if (!o->grad) continue;
        grads[count] = &o->grads.part[r];
        roots[count++] = o->root[r];
    }
    return duet_backward_all(m->tape[r], roots, grads, count);
}

int data_parallel_backward_on(void *context, int r) {
    struct duet_data_parallel *m = context;
    if (r < m->used) return backward_from_outputs(m, r);
    return param_set_zero_unused(&m->params[r]->set, NULL);
}
