/* Each distinct owner has one optimizer, an object of the class duet.Optimizer. It holds one of
 * Duet's optimizers for each duet_params among its parameters. A step is one call to each owner. */
#include <stdlib.h>
#include <string.h>

#include "nn/params/optimizer.h"
#include "rpc/autograd.h"

/* ---- at an owner ---- */

struct local {
    duet_params *params;
    char *chosen; /* [parameter] 1: the caller listed it */
    duet_optimizer *optimizer;
    struct duet_params kept; /* only for their device: `params` may be freed by then */
    struct local *next;
};

static void optimizers_free(void *object) {
    for (struct local *l = object, *next; l; l = next) {
        next = l->next;
        if (l->optimizer) l->optimizer->params = &l->kept;
        duet_optimizer_free(l->optimizer);
        free(l->chosen);
        free(l);
    }
}

int is_optimizer(const struct owner *o) {
    return o->object && o->destroy == optimizers_free;
}

static int choose(struct local **locals, duet_params *params, int i,
                  const struct duet_optimizer_options *options) {
    struct local *l = *locals;
    while (l && l->params != params)
        l = l->next;
    if (!l) {
        if (!(l = calloc(1, sizeof *l))) return fail(ERR_MEMORY, "optimizer: out of host memory");
        l->next = *locals;
        *locals = l;
        l->params = params;
        l->kept.set.device = params->set.device;
        l->chosen = calloc((size_t)params->set.count + 1, 1);
        if (!l->chosen) return fail(ERR_MEMORY, "optimizer: out of host memory");
        CHECK(duet_optimizer_create(&l->optimizer, params, options));
    }
    l->chosen[i] = 1;
    return OK;
}

/* Takes the device of the first parameter, which is the object's. */
static int choose_arg(duet_rpc_call *call, int i, struct local **locals,
                      const struct duet_optimizer_options *options) {
    struct owner *at;
    const duet_rref *r = duet_rpc_arg_rref(call, i);
    CHECK(duet_rpc_call_error(call));
    CHECK(owner_wait(call->rpc, r->id, &at));
    if (!at->params)
        return fail(ERR_USAGE,
                    "optimizer: argument %d refers to no parameter: use duet_rref_create_param", i);
    if (!call->device) device_take(call->rpc, call->device = at->device);
    if (at->device != call->device)
        return fail(ERR_USAGE,
                    "optimizer: the parameters of worker '%s' are on two devices: make an "
                    "optimizer for each",
                    call->rpc->name);
    return choose(locals, at->params, at->param, options);
}

/* duet.Optimizer(name, options, reference...): the constructor. The options are a struct, with the
 * name as a text. All parameters are on one device, which the object's end takes. */
int serve_optimizer(duet_rpc_call *call, void *context) {
    (void)context;
    const char *name = duet_rpc_arg_text(call, 0);
    const struct duet_rpc_value *given = duet_rpc_arg(call, 1);
    struct duet_optimizer_options options;
    CHECK(duet_rpc_call_error(call));
    if (given->type != DUET_RPC_BYTES || given->bytes != sizeof options)
        return fail(ERR_USAGE, "optimizer: its options are of another version");
    memcpy(&options, given->data, sizeof options);
    options.name = name;
    struct local *locals = NULL;
    int code = OK;
    for (int i = 2; !code && i < duet_rpc_arg_count(call); i++)
        code = choose_arg(call, i, &locals, &options);
    if (code) optimizers_free(locals);
    device_give(call->rpc, call->device);
    return code ? code : duet_rpc_return_object(call, locals, optimizers_free);
}

/* The optimizer gets parameters with the gradients of the context. */
static int step_local(struct local *l, duet_autograd_context *context) {
    struct duet_params shadow;
    const int count = l->params->set.count;
    CHECK(shadow_params(&shadow, l->params));
    int code = shadow_grads(&shadow);
    for (int i = 0; i < count && !code; i++)
        if (l->chosen[i])
            code = grad_sum(context, l->params, i, &shadow.set.param[i].grad, &shadow.has_grad[i]);
    l->optimizer->params = &shadow;
    if (!code && memchr(shadow.has_grad, 1, (size_t)count))
        code = duet_optimizer_step(l->optimizer);
    l->optimizer->params = l->params;
    shadow_free(&shadow);
    return code;
}

int serve_optimizer_step(duet_rpc_call *call, void *context) {
    (void)context;
    int code = OK; /* without a context backward never ran here, so no parameter has a gradient */
    duet_autograd_context *in = call->said->entered;
    for (struct local *l = duet_rpc_self(call); l && in && !code; l = l->next)
        code = step_local(l, in);
    return code;
}

/* ---- at the worker that made it ---- */

struct duet_distributed_optimizer {
    duet_rpc *rpc;
    int count;
    duet_rref *at[MOST_WORKERS]; /* [count] the object at each owner */
};

static int make_at(duet_distributed_optimizer *o, int owner, duet_rref *const *params, int count,
                   const struct duet_optimizer_options *options) {
    int n = 2;
    struct duet_rpc_value *args = calloc((size_t)count + 2, sizeof *args);
    if (!args) return fail(ERR_MEMORY, "optimizer: out of host memory");
    args[0] = duet_rpc_text(options->name);
    args[1] = duet_rpc_bytes(options, sizeof *options);
    for (int i = 0; i < count; i++)
        if (params[i]->owner == owner) args[n++] = duet_rpc_rref(params[i]);
    struct outgoing make = {.to = owner, .function = "duet.Optimizer", .args = args, .count = n};
    int code = n == 2 ? OK : rref_remote(&o->at[o->count], o->rpc, &make);
    o->count += !code && n > 2;
    free(args);
    return code;
}

int duet_distributed_optimizer_create(duet_distributed_optimizer **out, duet_rpc *rpc,
                                      duet_rref *const *params, int count,
                                      const struct duet_optimizer_options *options) {
    CHECK_OUT(out);
    if (!rpc || !params || count < 1 || !options || !options->name)
        return fail(ERR_USAGE, "optimizer: give a worker, references to parameters and options");
    for (int i = 0; i < count; i++)
        if (!params[i]) return fail(ERR_USAGE, "optimizer: reference %d is NULL", i);
    duet_distributed_optimizer *o = calloc(1, sizeof *o);
    if (!o) return fail(ERR_MEMORY, "optimizer: out of host memory");
    o->rpc = rpc;
    int code = OK;
    for (int r = 0; r < rpc->world && !code; r++)
        code = make_at(o, r, params, count, options);
    for (int i = 0; i < o->count && !code; i++)
        code = duet_rref_wait(o->at[i], 0);
    if (code)
        duet_distributed_optimizer_free(o);
    else
        *out = o;
    return code;
}

void duet_distributed_optimizer_free(duet_distributed_optimizer *o) {
    if (!o) return;
    for (int i = 0; i < o->count; i++)
        duet_rref_free(o->at[i]);
    free(o);
}

/* Steps at all owners at once; returns the first error in their order. */
int duet_distributed_optimizer_step(duet_distributed_optimizer *o, duet_autograd_context *c) {
    duet_future *f[MOST_WORKERS] = {NULL};
    int code = OK, n = 0;
    if (!o || !c)
        return fail(ERR_USAGE, "optimizer: step: no %s was given", o ? "context" : "optimizer");
    for (; n < o->count && !code; n += !code) {
        struct outgoing call;
        code = to_owner(&call, o->at[n], "duet.Optimizer.step", 0);
        call.context = c;
        if (!code) code = call_begin(&f[n], o->rpc, &call);
    }
    if (n) CHECK_KEEP(duet_future_wait_all(f, n), code);
    while (n--)
        duet_future_free(f[n]);
    return code;
}
