/* Runs backward over the tapes. It starts from the roots in the program's own pass, and from the
 * gradients of the returned vars in a pass that served a call. Either way it is one walk over one
 * tape, whose nodes include the calls made from it (remote_op.c). */
#include "rpc/autograd.h"

static int check_again(const struct autograd *p) {
    const int again = p->tape->went_back;
    if (again && p->params && p->params->reducer)
        return fail(ERR_USAGE, "Trying to backward through the graph a second time: with DDP each "
                               "pass has one: begin another and forward again");
    return again && !p->retain
               ? fail(ERR_USAGE, "Trying to backward through the graph a second time: give "
                                 "retain_graph 1 to all but the last")
               : OK;
}

/* ---- DistributedDataParallel inside ---- */

static int copy_grads(struct autograd *p, int i, int back) {
    const struct param *own = &p->params->set.param[i];
    float *theirs = own->grad.data, *ours = p->shadow.set.param[i].grad.data;
    struct device *device = p->tape->device;
    return copy_peer(device_compute(device), device, back ? ours : theirs, device,
                     back ? theirs : ours, tensor_bytes(&own->value));
}

/* The gradients of the walk are copied to those of the parameters, averaged by the ddp over its
 * ranks, and copied back. All ranks give them in one order, the last parameter first. */
static int average_over_ranks(struct autograd *p, duet_var *root) {
    const struct grad_reducer *r = p->params->reducer;
    char *has_grad = p->shadow.has_grad;
    int count = p->shadow.set.count;
    if (r->finds_unused) CHECK(params_leave_out_unused(p->params, p->tape, root));
    for (int i = count - 1; i >= 0; i--) {
        if (!has_grad[i]) continue;
        CHECK(copy_grads(p, i, 0));
        CHECK(r->ready(r->context, i));
    }
    CHECK(r->finish(r->context));
    for (int i = 0; i < count; i++) {
        if (r->finds_unused) has_grad[i] = p->params->has_grad[i];
        if (has_grad[i]) CHECK(copy_grads(p, i, 1));
    }
    return OK;
}

/* The gradients of a second walk are added to those of the first, as in passes of one update. */
static int walk_tape(struct autograd *p, duet_var *const *roots, const duet_tensor *const *grads,
                     int count) {
    if (p->params && !p->shadow.set.grads) CHECK(shadow_grads(&p->shadow));
    p->tape->step.add_grads = p->tape->went_back;
    int code = remote_ops_finish(p, pass_backward(p->tape, roots, grads, count));
    return !code && p->params && p->params->reducer ? average_over_ranks(p, roots[0]) : code;
}

static int pass_walk(struct autograd *p, int retain, duet_var *const *roots,
                     const duet_tensor *const *grads, int count) {
    CHECK(check_again(p));
    pthread_mutex_lock(&p->rpc->lock);
    const int walking = p->walking;
    p->walking = 1;
    pthread_mutex_unlock(&p->rpc->lock);
    if (walking) return fail(ERR_USAGE, "autograd: another backward is running");
    p->retain = retain;
    int code = walk_tape(p, roots, grads, count);
    pthread_mutex_lock(&p->rpc->lock);
    p->walking = 0;
    pthread_mutex_unlock(&p->rpc->lock);
    return code;
}

/* ---- at the callee ---- */

/* duet.backward(retain, [gradient of each var returned, or none]): the gradients of the vars
 * among the arguments, or none. */
int serve_backward(duet_rpc_call *call, void *context) {
    (void)context;
    struct autograd *p = call->self->pass;
    struct gradients g;
    duet_var *roots[MOST_VARS];
    const duet_tensor *grads[MOST_VARS];
    int count = 0;
    const int retain = duet_rpc_arg_int(call, 0) != 0;
    const struct duet_rpc_value *given = duet_rpc_arg(call, 1);
    CHECK(duet_rpc_call_error(call));
    if (given->type != DUET_RPC_LIST || given->count > p->returned.count)
        return fail(ERR_USAGE, "autograd: backward: these gradients belong to no call");
    for (int i = 0; i < given->count; i++) {
        if (given->items[i].type != DUET_RPC_TENSOR) continue;
        if (!is_gradient_of(given->items[i].tensor, p->returned.var[i]))
            return fail(ERR_USAGE, "autograd: backward: received a gradient of a different shape");
        roots[count] = p->returned.var[i];
        grads[count++] = given->items[i].tensor;
    }
    if (!count) return duet_rpc_return(call, duet_rpc_list(NULL, 0));
    CHECK(pass_walk(p, retain, roots, grads, count));
    return duet_rpc_return(call, gradients_of(&g, p->tape->device, p->argument));
}

/* ---- at the creator ---- */

static int has_var(const duet_tape *t, const duet_var *var) {
    int i = 0;
    while (i < t->var_count && t->vars[i] != var)
        i++;
    return i < t->var_count;
}

/* The pass that the root is in: one of the program's own. */
static int pass_of_root(duet_autograd_context *c, const duet_var *root, int i,
                        struct autograd **out) {
    if (!root) return fail(ERR_USAGE, "autograd: backward: root %d is NULL", i);
    pthread_mutex_lock(&c->rpc->lock);
    struct autograd *p = c->passes;
    while (p && (p->call || !has_var(p->tape, root)))
        p = p->next;
    pthread_mutex_unlock(&c->rpc->lock);
    *out = p;
    if (!p)
        return fail(ERR_USAGE, "autograd: backward: root %d is not a var of a pass of this context",
                    i);
    CHECK(duet_tape_error(p->tape));
    if (!root->needs_grad) return fail(ERR_USAGE, "requires_grad not set on root %d", i);
    return check_again(p);
}

/* The passes of the roots one after another, the first made first. All refusals come before the
 * first of them, so that all graphs stay unchanged. */
int duet_autograd_backward(duet_autograd_context *c, duet_var *const *roots, int count,
                           int retain_graph) {
    struct autograd *of[MOST_ROOTS] = {NULL};
    const duet_tensor *none[MOST_ROOTS] = {NULL};
    uint32_t last = 0;
    if (!c || !roots || count < 1 || count > MOST_ROOTS)
        return fail(ERR_USAGE, "autograd: backward: give a context, and 1 to %d roots",
                    (int)MOST_ROOTS);
    for (int i = 0; i < count; i++) {
        CHECK(pass_of_root(c, roots[i], i, &of[i]));
        if (of[i]->path.step[0] > last) last = of[i]->path.step[0];
    }
    CHECK(pass_check_roots(of[0]->tape, roots, none, count));
    for (uint32_t pass = 0; pass <= last; pass++) {
        struct autograd *walked = NULL;
        duet_var *here[MOST_ROOTS];
        int n = 0;
        for (int i = 0; i < count; i++)
            if (of[i]->path.step[0] == pass) walked = of[i], here[n++] = roots[i];
        if (n) CHECK(pass_walk(walked, retain_graph, here, none, n));
    }
    return OK;
}
