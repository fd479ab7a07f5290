/* A call as a node of its caller's tape: the vars in its arguments lead to the vars in its result.
 * autograd.h draws the nodes and their backward. */
#include <stdlib.h>

#include "rpc/autograd.h"

/* ---- backward ---- */

/* Leaves the gradient of a result in place, for `fire` to send. */
static int receive_backward(duet_tape *t, struct node *n) {
    (void)t, (void)n;
    return OK;
}

struct duet_rpc_value gradients_of(struct gradients *g, struct device *device,
                                   duet_var *const vars[MOST_VARS]) {
    int count = 0;
    for (int i = 0; i < MOST_VARS; i++) {
        g->item[i] = duet_rpc_none();
        if (!vars[i] || !vars[i]->grad.data) continue;
        g->tensor[i] = (struct duet_tensor){.device = device, .t = vars[i]->grad, .borrowed = 1};
        g->item[i] = duet_rpc_tensor(&g->tensor[i]);
        count = i + 1;
    }
    return duet_rpc_list(g->item, count);
}

/* All gradients of the results are complete, since the walk has passed all their users. */
static int fire_backward(duet_tape *t, struct node *n) {
    struct remote_op *op = n->context;
    struct autograd *p = op->pass;
    struct gradients g;
    (void)t;
    const struct duet_rpc_value args[] = {duet_rpc_int(p->retain),
                                          gradients_of(&g, p->tape->device, op->received)};
    op->left = op->sent.count;
    return call_begin(&op->under_way, p->rpc,
                      &(struct outgoing){.to = op->to,
                                         .function = "duet.backward",
                                         .args = args,
                                         .count = 2,
                                         .context = p->context,
                                         .self = op->there->id});
}

static int take_gradients(struct remote_op *op) {
    if (!op->under_way) return OK;
    int code = future_result(op->under_way, op->pass->device, &op->gradients);
    duet_future_free(op->under_way);
    op->under_way = NULL;
    if (!code && op->gradients.type != DUET_RPC_LIST)
        code = fail(ERR_FAILED, "autograd: worker %d has sent no gradients", op->to);
    return code;
}

int is_gradient_of(const duet_tensor *grad, const duet_var *x) {
    return grad->t.dtype == DTYPE_F32 && tensor_same_shape(&grad->t, &x->value);
}

static int send_backward(duet_tape *t, struct node *n) {
    struct remote_op *op = n->context;
    CHECK(take_gradients(op));
    int i = --op->left;
    if (i >= op->gradients.count) return OK; /* none came: the function did not use it */
    struct duet_rpc_value *v = (struct duet_rpc_value *)&op->gradients.items[i];
    if (v->type != DUET_RPC_TENSOR) return OK;
    duet_tensor *grad = v->tensor;
    if (!is_gradient_of(grad, n->x))
        return fail(ERR_FAILED, "autograd: received a gradient of a different shape");
    CHECK(pass_keep(op->pass, grad));
    *v = duet_rpc_none();
    return grad_done(t, n->x, &grad->t);
}

int remote_ops_finish(struct autograd *p, int code) {
    for (struct remote_op *op = p->ops; op; op = op->next) {
        if (!code) code = take_gradients(op);
        duet_future_free(op->under_way);
        op->under_way = NULL;
        duet_rpc_value_free(&op->gradients);
    }
    return code;
}

/* ---- forward ---- */

static int record_sent(struct remote_op *op) {
    duet_tape *t = op->pass->tape;
    if (op->sent.count) op->out = tape_var(t, (struct tensor){0}, 1);
    for (int i = 0; i < op->sent.count; i++)
        tape_node(
            t, &(struct node){
                   .backward = send_backward, .x = op->sent.var[i], .y = op->out, .context = op});
    return tape_error(t);
}

/* Every float tensor of the result becomes a var. *wanted: one has a gradient. */
static int enter_result(struct remote_op *op, struct duet_rpc_value *v, int *wanted) {
    duet_tape *t = op->pass->tape;
    if (v->type == DUET_RPC_LIST)
        for (int i = 0; i < v->count; i++)
            CHECK(enter_result(op, (struct duet_rpc_value *)&v->items[i], wanted));
    if (v->type != DUET_RPC_TENSOR || v->tensor->t.dtype != DTYPE_F32) return OK;
    int number = op->pass->context ? v->count - 1 : -1;
    duet_var *var = tape_leaf(t, &v->tensor->t, number >= 0);
    CHECK(tape_error(t));
    CHECK(pass_keep(op->pass, v->tensor));
    *v = duet_rpc_var(var);
    if (number < 0) return OK;
    op->received[number] = var;
    *wanted = 1;
    return OK;
}

int remote_op_result(struct remote_op *op, struct duet_rpc_value *result) {
    duet_tape *t = op->pass->tape;
    int wanted = 0, code = enter_result(op, result, &wanted);
    if (code || !wanted) return code;
    duet_var *in = tape_var(t, (struct tensor){0}, 1); /* leads to all of `received` */
    tape_node(t, &(struct node){.backward = fire_backward, .x = op->out, .y = in, .context = op});
    for (int i = 0; i < MOST_VARS; i++)
        if (op->received[i])
            tape_node(t,
                      &(struct node){.backward = receive_backward, .x = in, .y = op->received[i]});
    return tape_error(t);
}

/* The op of a call that is about to be made. */
static int op_new(duet_tape *tape, struct outgoing *o, struct path *path) {
    struct autograd *p = tape->remote;
    CHECK(duet_tape_error(tape));
    *path = p->path;
    if (path->depth == MOST_PATH)
        return fail(ERR_USAGE, "autograd: %s: calls in a context nest at most %d deep", o->function,
                    MOST_PATH);
    path->step[path->depth++] = p->calls++;
    struct remote_op *op = calloc(1, sizeof *op);
    if (!op) return fail(ERR_MEMORY, "autograd: out of host memory for a call");
    *op = (struct remote_op){
        .pass = p, .to = o->to, .sent = {.tape = tape, .records = p->context != NULL}};
    op->next = p->ops;
    p->ops = op;
    o->op = op;
    o->vars = &op->sent;
    o->path = path;
    o->context = p->context;
    o->leaves = p->context ? &op->there : NULL;
    return OK;
}

int remote_op_begin(duet_future **out, duet_tape *tape, struct outgoing *o) {
    struct path path;
    CHECK(op_new(tape, o, &path));
    CHECK(call_begin(out, tape->remote->rpc, o));
    int code = record_sent(o->op);
    if (code) {
        duet_future_free(*out);
        *out = NULL;
    }
    return code;
}
