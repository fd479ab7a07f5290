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
    char text[512];
    CHECK(all_ready(dp));
    CHECK(group_lead(&dp->group, lead));
    int code = collective(dp, what);
    if (!code) code = all_follow(dp);
    snprintf(text, sizeof text, "%s", error_message());
    int back = group_lead(&dp->group, 0);
    return code ? fail(code, "%s", text) : back;
}

/* r: a replica that failed; -1: none did. */
static int caught(const struct duet_data_parallel *dp, int r) {
    return r < 0 ? OK : workers_caught(dp->workers, r, device_index(dp->group.device[r]));
}

static int on_all_devices(struct duet_data_parallel *dp, worker_task *task) {
    return caught(dp, workers_run(dp->workers, task, dp, NULL));
}

/* ---- scatter ---- */

/* As torch.chunk: ceil(N / devices) samples each until they are used up. Without any samples the
 * first device still runs, so that there is an output. */
static void cut(struct duet_data_parallel *dp, int samples) {
    int most = samples / dp->count + (samples % dp->count > 0);
    dp->used = 1;
    for (int r = 0; r < dp->count; r++) {
        dp->sizes[r] = samples < most ? samples : most;
        samples -= dp->sizes[r];
        if (dp->sizes[r]) dp->used = r + 1;
    }
}

/* Memory for a part. Growth waits for the device: the memory may be in use. */
static int make_room(struct pieces *p, int r, struct device *device, size_t bytes,
                     enum mem_cause cause) {
    if (bytes <= p->room[r]) return OK;
    CHECK(stream_sync(device_compute(device)));
    device_free(device, p->memory[r]);
    p->memory[r] = NULL, p->room[r] = 0;
    CHECK(device_alloc(device, &p->memory[r], bytes, cause));
    p->room[r] = bytes;
    return OK;
}

struct scattered {
    const struct tensor *whole;
    struct pieces *pieces;
    enum mem_cause cause;
};

static int scatter_rows(struct duet_data_parallel *dp, void *what) {
    const struct scattered *s = what;
    const struct tensor *whole = s->whole;
    void *parts[MAX_DEVICES];
    size_t row = tensor_sample_count(whole) * dtype_bytes(whole->dtype), before = 0;
    for (int r = 0; r < dp->count; r++) {
        struct duet_tensor *part = &s->pieces->part[r];
        size_t bytes = (size_t)dp->sizes[r] * row;
        *part = (struct duet_tensor){.device = dp->group.device[r], .t = *whole, .borrowed = 1};
        part->t.dims[0] = dp->sizes[r];
        if (r == dp->group.lead) {
            part->t.data = (char *)whole->data + before;
        } else {
            CHECK(make_room(s->pieces, r, dp->group.device[r], bytes, s->cause));
            part->t.data = s->pieces->memory[r];
        }
        parts[r] = part->t.data;
        before += bytes;
    }
    return scatter(&dp->group, whole, dp->sizes, parts);
}

static int scatter_tensor(struct duet_data_parallel *dp, int lead, const duet_tensor *whole,
                          struct pieces *pieces, enum mem_cause cause) {
    struct scattered s = {&whole->t, pieces, cause};
    return data_parallel_led_by(dp, lead, scatter_rows, &s);
}

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

static int keep_output(struct duet_data_parallel *dp, int r, struct var *y) {
    if (y->value.dtype != DTYPE_F32)
        return fail(ERR_USAGE,
                    "DataParallel: forward has returned a loss: return the output, or give a loss "
                    "function and call duet_data_parallel_loss");
    dp->root[r] = to_plain(dp->tape[r]->tape, y);
    return duet_tape_error(dp->tape[r]);
}

static int keep_loss(struct duet_data_parallel *dp, int r, duet_var *y) {
    struct duet_tape *t = dp->tape[r];
    enum reduction reduction;
    double sum;
    t->inside_forward = 1;
    duet_var *loss = dp->loss(t, y, &dp->y.part[r], dp->context);
    t->inside_forward = 0;
    CHECK(duet_tape_error(t));
    if (!loss) return fail(ERR_USAGE, "DataParallel: the loss function has returned NULL");
    CHECK(tape_loss_reduction(var_of(loss), &reduction));
    if (reduction == REDUCE_NONE)
        return fail(ERR_USAGE, "DataParallel: a loss with DUET_NONE: give it DUET_MEAN or "
                               "DUET_SUM, so that each replica has one number");
    CHECK(duet_loss_read(t, loss, &sum, NULL));
    dp->losses[r] = reduction == REDUCE_MEAN ? sum / dp->sizes[r] : sum;
    dp->root[r] = var_of(loss);
    return OK;
}

static int forward_task(void *context, int r) {
    struct duet_data_parallel *dp = context;
    struct duet_tape *t = dp->tape[r];
    if (r >= dp->used) return OK;
    CHECK(duet_tape_begin(t, dp->params[r], dp->sizes[r], dp->pass));
    duet_var *x = (dp->input_grad ? duet_leaf : duet_input)(t, &dp->x.part[r]);
    dp->leaf[r] = var_of(x);
    t->inside_forward = 1;
    duet_var *y = dp->forward(t, x, dp->context);
    t->inside_forward = 0;
    CHECK(duet_tape_error(t));
    if (!y) return fail(ERR_USAGE, "DataParallel: the forward function has returned NULL");
    return dp->in_forward ? keep_loss(dp, r, y) : keep_output(dp, r, var_of(y));
}

/* ---- gather ---- */

/* The shape is that of the first output, with the rows of all; gather says which one differs. */
static int gather_outputs(struct duet_data_parallel *dp, void *what) {
    struct tensor outputs[MAX_DEVICES];
    duet_tensor **output = what;
    int dims[MAX_RANK], samples = 0;
    for (int r = 0; r < dp->count; r++) {
        samples += dp->sizes[r];
        if (r < dp->used) outputs[r] = dp->root[r]->value;
    }
    memcpy(dims, outputs[0].dims, sizeof dims);
    dims[0] = samples;
    CHECK(api_tensor_new(output, dp->group.device[dp->output_device], DTYPE_F32, outputs[0].rank,
                         dims, MEM_GATHERED));
    return gather(&dp->group, outputs, dp->sizes, &(*output)->t);
}

static int gather_losses(struct duet_data_parallel *dp, duet_tensor **losses) {
    if (dp->count > 1 && !dp->warned)
        data_parallel_warn(dp, "Was asked to gather along dimension 0, but all input tensors were "
                               "scalars; will instead unsqueeze and return a vector.");
    dp->warned = 1;
    return duet_tensor_create(losses, (duet_device *)dp->group.device[dp->output_device], DUET_F64,
                              1, &dp->used, dp->losses);
}

/* ---- the two calls ---- */

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

/* x, and with the loss in forward y, are on device 0. */
static int forward(struct duet_data_parallel *dp, const duet_tensor *x, const duet_tensor *y,
                   enum duet_pass pass) {
    dp->roots = NO_ROOTS;
    dp->has_input_grad = 0;
    CHECK(check_ready(dp));
    if (x->t.dtype != DTYPE_F32)
        return fail(ERR_USAGE, "DataParallel: x is of type %d: must be float",
                    (int)duet_tensor_type(x));
    cut(dp, x->t.dims[0]);
    dp->pass = pass;
    dp->in_forward = y != NULL;
    if (pass == DUET_TRAIN) data_parallel_begin_pass(dp);
    CHECK(scatter_tensor(dp, 0, x, &dp->x, MEM_INPUT));
    if (y) CHECK(scatter_tensor(dp, 0, y, &dp->y, MEM_INPUT));
    CHECK(data_parallel_led_by(dp, 0, replicate, NULL));
    return on_all_devices(dp, forward_task);
}

int duet_data_parallel_forward(duet_data_parallel *dp, const duet_tensor *x, duet_tensor **output,
                               enum duet_pass pass) {
    CHECK_OUT(output);
    if (!dp) return fail(ERR_USAGE, "DataParallel: none was given");
    CHECK(check_input(dp, "x", x));
    CHECK(forward(dp, x, NULL, pass));
    int code = data_parallel_led_by(dp, dp->output_device, gather_outputs, output);
    if (code) {
        duet_tensor_free(*output);
        *output = NULL;
    } else if (pass == DUET_TRAIN) {
        dp->roots = OUTPUTS;
    }
    return code;
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
    CHECK(forward(dp, x, y, pass));
    CHECK(gather_losses(dp, losses));
    if (pass == DUET_TRAIN) dp->roots = LOSSES;
    return OK;
}

/* ---- backward ---- */

static int backward_task(void *context, int r) {
    struct duet_data_parallel *dp = context;
    struct duet_tape *t = dp->tape[r];
    struct param_set *set = &dp->params[r]->set;
    if (r < dp->used && dp->in_forward) return duet_backward(t, public_var(dp->root[r]));
    if (r < dp->used) return duet_backward_from(t, public_var(dp->root[r]), &dp->grad.part[r]);
    for (int i = 0; i < set->count; i++)
        CHECK(api_zero(set->device, &set->param[i].grad));
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

/* Has `grad` the shape of the gathered output, and is it there? */
static int check_grad(const struct duet_data_parallel *dp, const duet_tensor *grad) {
    struct device *device = dp->group.device[dp->output_device];
    struct tensor output = dp->root[0]->value;
    output.dims[0] = 0;
    for (int r = 0; r < dp->count; r++)
        output.dims[0] += dp->sizes[r];
    if (!grad) return fail(ERR_USAGE, "DataParallel: no gradient of the output was given");
    if (grad->device != device)
        return fail(ERR_USAGE,
                    "DataParallel: the gradient lies on %s, the output on %s: bring it "
                    "over with duet_tensor_to",
                    device_name(grad->device), device_name(device));
    int same = grad->t.dtype == DTYPE_F32 && grad->t.rank == output.rank;
    for (int i = 0; same && i < output.rank; i++)
        same = grad->t.dims[i] == output.dims[i];
    return same ? OK
                : fail(ERR_USAGE,
                       "DataParallel: a gradient of %zu elements for an output of %zu: "
                       "type and shape must agree",
                       tensor_count(&grad->t), tensor_count(&output));
}

int duet_data_parallel_backward(duet_data_parallel *dp, const duet_tensor *grad) {
    if (!dp) return fail(ERR_USAGE, "DataParallel: none was given");
    if (dp->roots == NO_ROOTS)
        return fail(ERR_USAGE, "DataParallel: backward without a forward in DUET_TRAIN before it");
    CHECK(check_ready(dp));
    if (dp->roots == LOSSES) {
        if (grad) return fail(ERR_USAGE, "DataParallel: a gradient for losses: give NULL");
    } else {
        CHECK(check_grad(dp, grad));
        CHECK(scatter_tensor(dp, dp->output_device, grad, &dp->grad, MEM_ACTIVATIONS));
    }
    dp->roots = NO_ROOTS;
    CHECK(on_all_devices(dp, backward_task));
    CHECK(data_parallel_led_by(dp, 0, reduce, NULL));
    if (dp->in_forward) CHECK(divide(dp));
    dp->has_input_grad = dp->input_grad;
    return data_parallel_end_pass(dp);
}
