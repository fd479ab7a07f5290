/* duet_data_parallel: one forward and one backward of DataParallel around a forward function.
 *
 *     the calling thread, device 0                          the thread of device r
 *     ---------------------------------------------------   ------------------------------
 *     scatter    0 --- rows of x (and y) ---------------->   r
 *     replicate  0 --- parameters ----------------------->   r
 *     ======================== all threads start ===========================================
 *     forward (its own share)                               forward (and loss)
 *     =================== all threads have come back =======================================
 *     gather     output device <-- outputs (or losses) ---   r
 *
 *     scatter    output device --- rows of the gradient ->   r
 *     ======================== all threads start ===========================================
 *     backward                                              backward
 *     =================== all threads have come back =======================================
 *     reduce     0 <-- gradients, summed in fold order ---   r
 *
 * dp.c is the step of the command, and says more about each part. Here the calling thread records
 * and waits for the events of all devices, since the other threads sleep between the parts. */
#include "dp/program.h"

#include <stdio.h>
#include <string.h>

/* ---- order ---- */

/* Around a collective: the leading stream waits for what all devices have enqueued, and they wait
 * for the collective. */
static int all_ready(struct duet_data_parallel *dp) {
    for (int r = 0; r < dp->count; r++)
        CHECK(group_ready(&dp->group, r));
    return OK;
}

static int all_follow(struct duet_data_parallel *dp) {
    for (int r = 0; r < dp->count; r++)
        CHECK(group_follow(&dp->group, r));
    return OK;
}

int data_parallel_led_by(struct duet_data_parallel *dp, int lead,
                         int (*collective)(struct duet_data_parallel *dp, void *what), void *what) {
    struct failures first = {0};
    CHECK(all_ready(dp));
    CHECK(group_lead(&dp->group, lead));
    int code = collective(dp, what);
    if (!code) code = all_follow(dp);
    failures_add(&first, code);
    int back = group_lead(&dp->group, 0);
    CHECK(failures_end(&first));
    return back;
}

/* r: a replica that failed; -1: none did. */
static int caught(const struct duet_data_parallel *dp, int r) {
    return r < 0 ? OK : workers_caught(dp->workers, r, device_index(dp->group.device[r]));
}

static int on_all_devices(struct duet_data_parallel *dp, worker_task *task) {
    return caught(dp, workers_run(dp->workers, task, dp, NULL));
}

/* ---- replicate ---- */

/* What the replicas change in theirs is lost: a model's buffers are those of device 0. */
static int replicate_buffers(struct duet_data_parallel *dp) {
    float *buffers[MAX_DEVICES];
    struct param_range whole = {0, dp->buffer_bytes / sizeof(float)};
    if (!whole.count) return OK;
    for (int r = 0; r < dp->count; r++)
        buffers[r] = dp->params[r]->buffers.arena;
    return broadcast_coalesced(&dp->group, buffers, &whole, 1);
}

static int replicate(struct duet_data_parallel *dp, void *nothing) {
    float *values[MAX_DEVICES];
    (void)nothing;
    for (int r = 0; r < dp->count; r++)
        values[r] = dp->params[r]->set.values;
    CHECK(broadcast_coalesced(&dp->group, values, dp->groups, dp->group_count));
    return replicate_buffers(dp);
}

/* ---- forward, on each device's own thread ---- */

static int keep_loss(struct duet_data_parallel *dp, struct output *o, int r, duet_var *y) {
    struct duet_tape *t = dp->tape[r];
    double sum;
    CHECK(tape_loss_reduction(y, &o->how[r]));
    if (o->how[r] == REDUCE_NONE)
        return fail(ERR_USAGE, "DataParallel: a loss with DUET_NONE: give it DUET_MEAN or "
                               "DUET_SUM, so that each replica has one number");
    CHECK(duet_loss_read(t, y, &sum, NULL));
    o->loss[r] = o->how[r] == REDUCE_MEAN ? sum / dp->x[0].sizes[r] : sum;
    o->root[r] = y;
    o->is_loss[r] = 1;
    o->rows[r] = 1;
    return OK;
}

static int keep_output(struct duet_data_parallel *dp, struct output *o, int r, duet_var *y) {
    if (!y) return fail(ERR_USAGE, "DataParallel: the forward function has returned NULL");
    if (y->value.dtype != DTYPE_F32) {
        if (dp->forward_multi) return keep_loss(dp, o, r, y);
        return fail(ERR_USAGE,
                    "DataParallel: forward has returned a loss: return the output, or give a loss "
                    "function and call duet_data_parallel_loss");
    }
    o->root[r] = to_plain(dp->tape[r], y);
    CHECK(duet_tape_error(dp->tape[r]));
    o->is_loss[r] = 0;
    o->rows[r] = o->root[r]->value.dims[0];
    return OK;
}

/* The loss of duet_data_parallel_loss. */
static int compute_loss(struct duet_data_parallel *dp, int r, duet_var *y) {
    struct duet_tape *t = dp->tape[r];
    if (!y) return fail(ERR_USAGE, "DataParallel: the forward function has returned NULL");
    t->inside_forward = 1;
    duet_var *loss = dp->loss(t, y, &dp->y.part[r], dp->context);
    t->inside_forward = 0;
    CHECK(duet_tape_error(t));
    if (!loss) return fail(ERR_USAGE, "DataParallel: the loss function has returned NULL");
    return keep_loss(dp, &dp->output[0], r, loss);
}

/* The program's function, from the replica's rows of the inputs to its outputs. */
static int run_forward(struct duet_data_parallel *dp, int r, duet_var **outputs) {
    struct duet_tape *t = dp->tape[r];
    const duet_tensor *tensors[MOST_INPUTS];
    duet_var *x[MOST_INPUTS];
    for (int i = 0; i < dp->inputs; i++) {
        struct tensor *rows = &dp->x[i].part[r].t;
        tensors[i] = &dp->x[i].part[r];
        dp->leaf[i][r] = rows->dtype == DTYPE_F32 ? tape_leaf(t, rows, dp->input_grad) : NULL;
        x[i] = dp->leaf[i][r];
    }
    const struct duet_replica replica = {r, dp->inputs, dp->outputs, tensors, x};
    CHECK(duet_tape_error(t));
    t->inside_forward = 1;
    if (dp->forward_multi)
        dp->forward_multi(t, &replica, outputs, dp->context);
    else
        outputs[0] = dp->forward(t, x[0], dp->context);
    t->inside_forward = 0;
    return duet_tape_error(t);
}

static int forward_task(void *context, int r) {
    struct duet_data_parallel *dp = context;
    duet_var *outputs[MOST_OUTPUTS] = {0};
    if (r >= dp->used) return OK;
    CHECK(duet_tape_begin(dp->tape[r], dp->params[r], dp->x[0].sizes[r], dp->pass));
    CHECK(run_forward(dp, r, outputs));
    if (dp->in_forward) return compute_loss(dp, r, outputs[0]);
    for (int i = 0; i < dp->outputs; i++)
        CHECK(keep_output(dp, &dp->output[i], r, outputs[i]));
    return OK;
}

static int gather_losses(struct duet_data_parallel *dp, duet_tensor **losses) {
    data_parallel_warn_of_scalars(dp);
    return duet_tensor_create(losses, (duet_device *)dp->group.device[dp->output_device], DUET_F64,
                              1, &dp->used, dp->output[0].loss);
}

/* ---- the calls ---- */

static int check_input(const struct duet_data_parallel *dp, const char *what,
                       const duet_tensor *x) {
    struct device *first = dp->group.device[0];
    if (!x) return fail(ERR_USAGE, "DataParallel: no %s was given", what);
    if (x->device != first)
        return fail(ERR_USAGE,
                    "DataParallel: %s lies on %s: bring it to %s, the first device, with "
                    "duet_tensor_to",
                    what, device_name(x->device), device_name(first));
    return OK;
}

/* Before anything is touched: a thread that is lost may still use it. PyTorch, too, asks the rest
 * before every forward. */
static int check_ready(const struct duet_data_parallel *dp) {
    CHECK(caught(dp, workers_lost(dp->workers)));
    CHECK(data_parallel_check_module(dp->params[0], dp->group.device[0]));
    if (dp->params[0]->set.layout_version != dp->layout_version)
        return fail(ERR_USAGE, "DataParallel: a duet_ddp has moved the gradients: make new "
                               "parameters");
    if (dp->params[0]->buffers.bytes != dp->buffer_bytes)
        return fail(ERR_USAGE, "DataParallel: buffers were registered after it was made: register "
                               "them before");
    return OK;
}

static int check_inputs(const struct duet_data_parallel *dp, const duet_tensor *const *x,
                        int inputs, int outputs) {
    char what[16] = "x";
    if (inputs < 1 || inputs > MOST_INPUTS || outputs < 1 || outputs > MOST_OUTPUTS || !x)
        return fail(ERR_USAGE, "DataParallel: %d inputs, %d outputs: give 1 to %d of each", inputs,
                    outputs, (int)MOST_INPUTS);
    for (int i = 0; i < inputs; i++) {
        if (inputs > 1) snprintf(what, sizeof what, "input %d", i);
        CHECK(check_input(dp, what, x[i]));
    }
    if (dp->forward_multi) return OK;
    if (inputs > 1 || outputs > 1)
        return fail(ERR_USAGE,
                    "DataParallel: %d inputs, %d outputs for a forward function of one "
                    "each: make it by duet_data_parallel_create_multi",
                    inputs, outputs);
    if (x[0]->t.dtype == DTYPE_F32) return OK;
    return fail(ERR_USAGE, "DataParallel: x is of type %d: must be float",
                (int)duet_tensor_type(x[0]));
}

/* x, and with the loss in forward y, are on device 0. */
int data_parallel_forward(struct duet_data_parallel *dp, const duet_tensor *const *x, int inputs,
                          const duet_tensor *y, int outputs, enum duet_pass pass) {
    dp->roots = NO_ROOTS;
    dp->output[0].on_tape = NULL;
    dp->has_input_grad = 0;
    CHECK(check_ready(dp));
    CHECK(check_inputs(dp, x, inputs, outputs));
    data_parallel_cut(dp, x, inputs);
    dp->inputs = inputs;
    dp->outputs = outputs;
    dp->pass = pass;
    dp->in_forward = y != NULL;
    if (pass == DUET_TRAIN) data_parallel_begin_pass(dp);
    for (int i = 0; i < inputs; i++)
        CHECK(data_parallel_scatter(dp, 0, x[i], &dp->x[i], MEM_INPUT));
    if (y) {
        memcpy(dp->y.sizes, dp->x[0].sizes, sizeof dp->y.sizes);
        CHECK(data_parallel_scatter(dp, 0, y, &dp->y, MEM_INPUT));
    }
    CHECK(data_parallel_led_by(dp, 0, replicate, NULL));
    return on_all_devices(dp, forward_task);
}

int duet_data_parallel_forward_multi(duet_data_parallel *dp, const duet_tensor *const *inputs,
                                     int input_count, duet_tensor **outputs, int output_count,
                                     enum duet_pass pass) {
    int code = OK;
    if (!outputs) return fail(ERR_USAGE, "no place for the result: outputs is NULL");
    for (int i = 0; i < output_count; i++)
        outputs[i] = NULL;
    if (!dp) return fail(ERR_USAGE, "DataParallel: none was given");
    CHECK(data_parallel_forward(dp, inputs, input_count, NULL, output_count, pass));
    for (int i = 0; i < output_count && !code; i++)
        code = data_parallel_gather(dp, &dp->output[i], &outputs[i]);
    if (!code && pass == DUET_TRAIN) dp->roots = OUTPUTS;
    for (int i = 0; i < output_count && code; i++) {
        duet_tensor_free(outputs[i]);
        outputs[i] = NULL;
    }
    return code;
}

int duet_data_parallel_forward(duet_data_parallel *dp, const duet_tensor *x, duet_tensor **output,
                               enum duet_pass pass) {
    CHECK_OUT(output);
    return duet_data_parallel_forward_multi(dp, &x, 1, output, 1, pass);
}

int duet_data_parallel_loss(duet_data_parallel *dp, const duet_tensor *x, const duet_tensor *y,
                            duet_tensor **losses, enum duet_pass pass) {
    CHECK_OUT(losses);
    if (!dp) return fail(ERR_USAGE, "DataParallel: none was given");
    if (!dp->loss)
        return fail(ERR_USAGE, "DataParallel: made without a loss function: give one in options");
    CHECK(check_input(dp, "x", x));
    CHECK(check_input(dp, "y", y));
    if (y->t.dims[0] != x->t.dims[0])
        return fail(ERR_USAGE, "DataParallel: %d rows of y for %d samples: give one for each",
                    y->t.dims[0], x->t.dims[0]);
    CHECK(data_parallel_forward(dp, &x, 1, y, 1, pass));
    CHECK(gather_losses(dp, losses));
    if (pass == DUET_TRAIN) dp->roots = LOSSES;
    return OK;
}

/* ---- backward ---- */

static int backward_from_outputs(struct duet_data_parallel *dp, int r) {
    const duet_tensor *grads[MOST_OUTPUTS];
    duet_var *roots[MOST_OUTPUTS];
    int count = 0;
    for (int i = 0; i < dp->outputs; i++) {
        struct output *o = &dp->output[i];
        if (!o->grad) continue;
        grads[count] = &o->grads.part[r];
        roots[count++] = o->root[r];
    }
    return duet_backward_all(dp->tape[r], roots, grads, count);
}

static int backward_task(void *context, int r) {
    struct duet_data_parallel *dp = context;
    struct param_set *set = &dp->params[r]->set;
    if (r < dp->used && dp->in_forward)
        return duet_backward(dp->tape[r], dp->output[0].root[r], NULL);
    if (r < dp->used) return backward_from_outputs(dp, r);
    for (int i = 0; i < set->count; i++)
        CHECK(tensor_zero(set->device, &set->param[i].grad));
    return OK;
}

static int reduce(struct duet_data_parallel *dp, void *nothing) {
    (void)nothing;
    return reduce_add_coalesced(&dp->reduce, dp->groups, dp->group_count);
}

/* The gradient of the mean of the losses. */
static int divide(struct duet_data_parallel *dp) {
    for (int i = 0; dp->used > 1 && i < dp->params[0]->set.count; i++)
        CHECK(duet_tensor_scale(duet_params_grad(dp->params[0], i), 1.0f / (float)dp->used));
    return OK;
}

static int bring_grads(struct duet_data_parallel *dp, const duet_tensor *const *grads, int count) {
    int given = 0;
    if (!grads || count != dp->outputs)
        return fail(ERR_USAGE,
                    "DataParallel: %d gradients of %d outputs: give one for each, or "
                    "NULL",
                    count, dp->outputs);
    for (int i = 0; i < count; i++) {
        struct output *o = &dp->output[i];
        if (grads[i]) CHECK(data_parallel_check_grad(dp, o, grads[i]));
        o->grad = grads[i];
        given += grads[i] != NULL;
    }
    if (!given) return fail(ERR_USAGE, "DataParallel: no gradient of the output was given");
    for (int i = 0; i < count; i++)
        if (grads[i]) CHECK(data_parallel_scatter_grad(dp, &dp->output[i]));
    return OK;
}

int duet_data_parallel_backward_multi(duet_data_parallel *dp, const duet_tensor *const *grads,
                                      int count) {
    if (!dp) return fail(ERR_USAGE, "DataParallel: none was given");
    if (dp->roots == NO_ROOTS)
        return fail(ERR_USAGE, "DataParallel: backward without a forward in DUET_TRAIN before it");
    CHECK(check_ready(dp));
    if (dp->roots == LOSSES && grads && grads[0])
        return fail(ERR_USAGE, "DataParallel: a gradient for losses: give NULL");
    if (dp->roots == OUTPUTS) CHECK(bring_grads(dp, grads, count));
    dp->roots = NO_ROOTS;
    CHECK(on_all_devices(dp, backward_task));
    CHECK(data_parallel_led_by(dp, 0, reduce, NULL));
    if (dp->in_forward) CHECK(divide(dp));
    dp->has_input_grad = dp->input_grad;
    return data_parallel_end_pass(dp);
}

int duet_data_parallel_backward(duet_data_parallel *dp, const duet_tensor *grad) {
    return duet_data_parallel_backward_multi(dp, &grad, 1);
}
