/* Passes of distributed autograd in the hands of functions and programs: who begins one, what it
 * takes from a call, and what stays of it when the function has ended. */
#include "rpc/autograd.h"

/* ---- at the end of a function ---- */

/* Tensors among the arguments stay with the pass. */
static int keep_tensors(struct autograd_pass *p, struct duet_rpc_value *v) {
    if (v->type == DUET_RPC_LIST)
        for (int i = 0; i < v->count; i++)
            CHECK(keep_tensors(p, (struct duet_rpc_value *)&v->items[i]));
    if (v->type != DUET_RPC_TENSOR) return OK;
    CHECK(pass_keep(p, v->tensor));
    *v = duet_rpc_none();
    return OK;
}

void pass_of_call_ends(duet_rpc_call *call, int code) {
    struct autograd_pass *p = call->pass;
    if (!p) return;
    call->pass = NULL;
    if (!code) code = keep_tensors(p, &call->args);
    if (code || !p->context || !p->returned.count) {
        pass_free(p);
        return;
    }
    pthread_mutex_lock(&call->rpc->lock);
    p->next = p->context->passes;
    p->context->passes = p;
    pthread_mutex_unlock(&call->rpc->lock);
}

/* ---- in the hands of the program ---- */

int duet_autograd_pass(duet_tape **out, duet_autograd_context *c, duet_params *params,
                       int samples) {
    struct autograd_pass *p;
    CHECK_OUT(out);
    if (!c) return fail(ERR_USAGE, "autograd: pass: no context was given");
    duet_rpc *rpc = c->rpc;
    if (c->creator != rpc->rank) /* the order of sums and the masks need one who counts */
        return fail(ERR_USAGE,
                    "autograd: pass: worker '%s' has created this context: use "
                    "duet_autograd_call_pass in a function",
                    rpc->peers[c->creator].name);
    const struct grad_reducer *ddp = params ? params->reducer : NULL;
    if (ddp) CHECK(ddp->enter(ddp->context, 1, 1));
    pthread_mutex_lock(&rpc->lock);
    const struct path path = {1, {c->own_passes++}};
    pthread_mutex_unlock(&rpc->lock);
    CHECK(pass_new(&p, rpc, c, 0, &path, rpc->device, params, samples));
    pthread_mutex_lock(&rpc->lock);
    p->next = c->passes;
    c->passes = p;
    pthread_mutex_unlock(&rpc->lock);
    *out = p->tape;
    return OK;
}

int duet_autograd_call_pass(duet_tape **out, duet_rpc_call *call, duet_params *params,
                            int samples) {
    CHECK_OUT(out);
    if (!call) return fail(ERR_USAGE, "autograd: pass: no call was given");
    CHECK(duet_rpc_call_error(call));
    if (call->pass) return fail(ERR_USAGE, "autograd: pass: this call has begun one");
    if (params && params->reducer &&
        call->context) /* who would see to it that all ranks call it? */
        return fail(ERR_USAGE, "autograd: pass: the parameters have a duet_ddp: use "
                               "duet_autograd_pass in a context of this worker");
    if (params && (duet_device *)params->set.device != call->device)
        return fail(ERR_USAGE,
                    "autograd: pass: the parameters lie on %s, which is not the device "
                    "of this function: give it with the function",
                    duet_device_name((duet_device *)params->set.device));
    CHECK(pass_new(&call->pass, call->rpc, call->context, call->id, &call->path, call->device,
                   params, samples));
    call->answer.vars = &call->pass->returned;
    *out = call->pass->tape;
    return OK;
}

duet_var *duet_autograd_arg(duet_tape *t, duet_rpc_call *call, int i) {
    duet_tensor *x = duet_rpc_arg_tensor(call, i);
    if (!t || t->error) return NULL;
    if (!x || !call->pass || call->pass->tape != t) {
        tape_fail(t, x ? fail(ERR_USAGE, "autograd: argument %d: the tape is not the call's", i)
                       : duet_rpc_call_error(call));
        return NULL;
    }
    if (tape_fail(t, tape_operand(t, "autograd", "argument", x, DTYPE_F32))) return NULL;
    int number = call->args.items[i].count - 1; /* value_make: that of a VAR, from 1 */
    int wanted = number >= 0 && call->pass->context;
    if (wanted && call->pass->argument[number]) return call->pass->argument[number];
    duet_var *var = tape_leaf(t, &x->t, wanted);
    if (wanted) call->pass->argument[number] = var;
    return var;
}

int duet_autograd_keep(duet_tape *t, duet_tensor *tensor) {
    if (!t || !t->remote || !tensor)
        return fail(ERR_USAGE, "autograd: keep: give a tensor, and a tape of a context");
    return pass_keep(t->remote, tensor);
}
