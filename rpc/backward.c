/* Runs backward over the tapes. It starts from the roots in the program's own pass, and from the
 * gradients of the returned vars in a pass that served a call. Either way it is one walk over one
 * tape, whose nodes include the calls made from it (remote_op.c). */
#include <stdlib.h>
#include <string.h>

#include "rpc/autograd.h"

static int check_again(const struct autograd *p) {
    if (p->turn && p->params && p->params->reducer)
        return fail(ERR_USAGE, "Trying to backward through the graph a second time: with DDP each "
                               "pass has one: begin another and forward again");
    return p->turn && !p->retain
               ? fail(ERR_USAGE, "Trying to backward through the graph a second time: give "
                                 "retain_graph 1 to all but the last")
               : OK;
}

static int check_walk(struct autograd *p) {
    CHECK(check_again(p));
    pthread_mutex_lock(&p->rpc->lock);
    int walking = p->walking;
    p->walking = 1;
    pthread_mutex_unlock(&p->rpc->lock);
    return walking ? fail(ERR_USAGE, "autograd: another backward is running") : OK;
}

/* An arena of zeros, pads included, for the gradients of a walk. */
static int new_arena(struct autograd *p, float **out) {
    int count = (int)p->shadow.set.grad_count;
    struct device *device = p->tape->device;
    CHECK(device_alloc(device, (void **)out, (size_t)count * sizeof **out, MEM_GRADS));
    const struct tensor all = tensor_plain(*out, DTYPE_F32, 1, &count);
    return tensor_zero(device, &all);
}

/* ---- DistributedDataParallel inside ---- */

static int copy_grads(struct autograd *p, float *arena, int i, int back) {
    const struct param *param = &p->params->set.param[i];
    struct device *device = p->tape->device;
    float *own = param->grad.data, *ours = arena + param->value_offset;
    return copy_peer(device_compute(device), device, back ? ours : own, device, back ? own : ours,
                     tensor_bytes(&param->value));
}

/* The gradients of the walk are copied to those of the parameters, averaged by the ddp over its
 * ranks, and copied back. All ranks give them in one order, the last parameter first. */
static int average_over_ranks(struct autograd *p, float *arena, duet_var *root) {
    const struct grad_reducer *r = p->params->reducer;
    const char *has_grad = p->shadow.has_grad;
    int count = p->shadow.set.count;
    if (r->finds_unused) CHECK(params_leave_out_unused(p->params, p->tape, root));
    for (int i = count - 1; i >= 0; i--) {
        if (!has_grad[i]) continue;
        CHECK(copy_grads(p, arena, i, 0));
        CHECK(r->ready(r->context, i));
    }
    CHECK(r->finish(r->context));
    for (int i = 0; i < count; i++) {
        if (r->finds_unused) p->shadow.has_grad[i] = p->params->has_grad[i];
        if (has_grad[i]) CHECK(copy_grads(p, arena, i, 1));
    }
    return OK;
}

static int walk_tape(struct autograd *p, duet_var *const *roots, const duet_tensor *const *grads,
                     int count) {
    float *arena = NULL;
    struct device *device = p->tape->device;
    int code = p->params ? new_arena(p, &arena) : OK;
    shadow_place(&p->shadow, arena);
    if (!code) code = pass_backward(p->tape, roots, grads, count);
    code = remote_ops_finish(p, code);
    if (!p->params) return code;
    if (!code && p->params->reducer) code = average_over_ranks(p, arena, roots[0]);
    size_t params = (size_t)p->shadow.set.count;
    char *has_grad = code ? NULL : malloc(params + 1);
    if (!has_grad) {
        stream_sync(device_compute(device));
        device_free(device, arena);
        return code ? code : fail(ERR_MEMORY, "autograd: out of host memory");
    }
    memcpy(has_grad, p->shadow.has_grad, params);
    return grad_sums_add(p, p->turn, arena, has_grad);
}

static int pass_walk(struct autograd *p, uint64_t turn, int retain, duet_var *const *roots,
                     const duet_tensor *const *grads, int count) {
    CHECK(check_walk(p));
    p->turn = turn;
    p->retain = retain;
    int code = walk_tape(p, roots, grads, count);
    pthread_mutex_lock(&p->rpc->lock);
    p->walking = 0;
    pthread_mutex_unlock(&p->rpc->lock);
    return code;
}

/* ---- at the callee ---- */

/* duet.backward(turn, retain, [gradient of each var returned, or none]): the gradients of the vars
 * among the arguments, or none. */
int serve_backward(duet_rpc_call *call, void *context) {
    (void)context;
    struct autograd *p = call->self->pass;
    struct gradients g;
    duet_var *roots[MOST_VARS];
    const duet_tensor *grads[MOST_VARS];
    int count = 0;
    int64_t turn = duet_rpc_arg_int(call, 0), retain = duet_rpc_arg_int(call, 1);
    const struct duet_rpc_value *given = duet_rpc_arg(call, 2);
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
    CHECK(pass_walk(p, (uint64_t)turn, retain != 0, roots, grads, count));
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
    while (p && !has_var(p->tape, root))
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
static int walk_all(duet_autograd_context *c, duet_var *const *roots, int count, int retain) {
    struct autograd *of[MOST_ROOTS] = {NULL};
    const duet_tensor *none[MOST_ROOTS] = {NULL};
    uint32_t last = 0;
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
        if (n) CHECK(pass_walk(walked, c->turn, retain, here, none, n));
    }
    return OK;
}

int duet_autograd_backward(duet_autograd_context *c, duet_var *const *roots, int count,
                           int retain_graph) {
    if (!c || !roots || count < 1 || count > MOST_ROOTS)
        return fail(ERR_USAGE, "autograd: backward: give a context, and 1 to %d roots",
                    (int)MOST_ROOTS);
    pthread_mutex_lock(&c->rpc->lock);
    int walking = c->walking;
    c->walking = 1;
    if (!walking) c->turn++;
    pthread_mutex_unlock(&c->rpc->lock);
    if (walking) return fail(ERR_USAGE, "autograd: another backward is running in this context");
    int code = walk_all(c, roots, count, retain_graph);
    pthread_mutex_lock(&c->rpc->lock);
    c->walking = 0;
    pthread_mutex_unlock(&c->rpc->lock);
    return code;
}
