/* duet_data_parallel_call: a wrapped model on a tape, as PyTorch's model(x) is. The output is a var
 * of the caller's tape, and the whole of DataParallel's backward is that of its node:
 *
 *     the caller's tape     y = call(x)  ->  loss            loss  ->  dL/dy  ->  the node of y
 *                               |                                                  |
 *     the replicas'         scatter, replicate, forward,     scatter of dL/dy, backward on each
 *                           gather                           device, reduce: gradients are there
 *
 * The replicas have tapes of their own, so the caller's tape sees no parameter: the node tells it
 * which of them have a gradient. */
#include "dp/program.h"

/* The output as it is gathered, in memory of the caller's tape. */
static int gather_to_tape(struct duet_data_parallel *m, duet_tape *t, struct tensor *whole) {
    CHECK(data_parallel_shape(m, &m->output[0], whole));
    *whole = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, whole->rank, whole->dims);
    CHECK(tape_error(t));
    return data_parallel_gather_into(m, &m->output[0], whole);
}

/* The gradients of the replicas overwrite all those that this backward has. */
static int check_params_are_the_replicas(const duet_tape *t, const struct duet_params *params) {
    for (int i = 0; i < params->set.count; i++)
        if (t->uses_total[i])
            return fail(ERR_USAGE,
                        "DataParallel: the tape uses parameter %d (%s) outside of the replicas, "
                        "too: give those layers parameters of their own",
                        i, params->set.param[i].spec->name);
    return OK;
}

/* What has a gradient keeps it, even if the last pass of the update is one without this node. */
static void mark_on_tape(duet_tape *t, const struct duet_params *params) {
    for (int i = 0; i < params->set.count; i++)
        if (params->has_grad[i]) t->fired[i] = 1, t->has_grad[i] = 1;
}

static int backward(duet_tape *t, struct node *n) {
    struct duet_data_parallel *m = n->context;
    struct duet_params *params = m->params[0];
    if (!n->y->grad.data) return OK;
    if (m->output[0].on_tape != n->y)
        return fail(ERR_USAGE, "DataParallel: another forward has come between this one and its "
                               "backward: go back from each output before the next forward");
    if (t->owner == params) CHECK(check_params_are_the_replicas(t, params));
    const duet_tensor dy = {.device = t->device, .t = n->y->grad, .borrowed = 1}, *grad = &dy;
    CHECK(data_parallel_backward(m, &grad, 1, data_parallel_kept_of(m, t)));
    m->passes.tape = t;
    m->passes.update = t->update;
    if (t->owner == params) mark_on_tape(t, params);
    return OK;
}

static int check_tape(const struct duet_data_parallel *m, const duet_tape *t) {
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

static int call(duet_tape *t, struct duet_data_parallel *m, const duet_tensor *x, duet_var **y) {
    enum duet_pass pass = t->step.training ? DUET_TRAIN : DUET_EVALUATE;
    struct tensor whole;
    CHECK(check_tape(m, t));
    CHECK(data_parallel_forward(m, &x, 1, NULL, 1, pass));
    CHECK(gather_to_tape(m, t, &whole));
    duet_var *rows = tape_var(t, whole, 1);
    if (rows) rows->keeps_grad = 1; /* the replicas' streams read it */
    m->output[0].on_tape = rows;
    if (pass == DUET_TRAIN) {
        m->passes.of_next = 1; /* a pass that no tape counts begins an update of its own */
        m->roots = OUTPUTS;
        const struct node node = {.backward = backward, .y = rows, .context = m};
        CHECK(tape_node(t, &node));
    }
    *y = data_parallel_turn_var(m, t, rows, 1);
    return duet_tape_error(t);
}

duet_var *duet_data_parallel_call(duet_tape *t, duet_data_parallel *m, const duet_tensor *x) {
    duet_var *y = NULL;
    if (!t || t->error) return NULL;
    int code = m ? OK : fail(ERR_USAGE, "DataParallel: none was given");
    if (!code) code = call(t, m, x, &y);
    return tape_fail(t, code) ? NULL : y;
}
