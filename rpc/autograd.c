/* The passes of a context: each call that carries vars has its own tape, which lives as long as its
 * caller's. This file begins and frees passes, and passes a call's vars to them. */
#include "rpc/autograd.h"

#include <stdlib.h>
#include <string.h>

/* ---- parameters with other gradients ---- */

static void set_grads(struct duet_params *shadow, float *arena) {
    shadow->set.grads = arena;
    for (int i = 0; i < shadow->set.count; i++) {
        struct param *p = &shadow->set.param[i];
        if (!param_trains(p)) continue;
        p->grad_offset = p->value_offset;
        p->grad.data = arena ? arena + p->value_offset : NULL;
    }
}

int shadow_params(struct duet_params *out, duet_params *params) {
    size_t count = (size_t)params->set.count;
    *out = *params;
    out->reducer = NULL;
    out->set.grads = NULL;
    out->set.param = malloc(count * sizeof *out->set.param + 1);
    out->has_grad = calloc(count + 1, 1);
    if (!out->set.param || !out->has_grad) {
        shadow_free(out);
        return fail(ERR_MEMORY, "autograd: out of host memory for %zu parameters", count);
    }
    memcpy(out->set.param, params->set.param, count * sizeof *out->set.param);
    set_grads(out, NULL);
    return OK;
}

/* An arena laid out like the values, pads included. */
int shadow_grads(struct duet_params *shadow) {
    float *arena;
    int count = (int)shadow->set.grad_count;
    struct device *device = shadow->set.device;
    CHECK(device_alloc(device, (void **)&arena, (size_t)count * sizeof *arena, MEM_GRADS));
    set_grads(shadow, arena);
    const struct tensor all = tensor_plain(arena, DTYPE_F32, 1, &count);
    return tensor_zero(device, &all);
}

void shadow_free(struct duet_params *shadow) {
    if (shadow->set.grads) {
        stream_sync(device_compute(shadow->set.device));
        device_free(shadow->set.device, shadow->set.grads);
    }
    free(shadow->set.param);
    free(shadow->has_grad);
    *shadow = (struct duet_params){0};
}

/* ---- a pass ---- */

static uint64_t number_of(const duet_autograd_context *c, const struct path *path) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    hash = (hash ^ (c ? c->id : 0)) * 0x100000001b3u;
    for (uint32_t i = 0; i < path->depth; i++)
        hash = (hash ^ path->step[i]) * 0x100000001b3u;
    return hash;
}

static int pass_new(struct autograd **out, duet_rpc *rpc, duet_autograd_context *c, uint64_t call,
                    const struct path *path, duet_device *device, duet_params *params,
                    int samples) {
    if (params) device = (duet_device *)params->set.device;
    if (!device) return fail(ERR_USAGE, "autograd: pass: the worker has no device");
    struct autograd *p = calloc(1, sizeof *p);
    if (!p) return fail(ERR_MEMORY, "autograd: out of host memory for a pass");
    *p = (struct autograd){
        .context = c, .rpc = rpc, .call = call, .path = *path, .device = device, .params = params};
    int code = params ? shadow_params(&p->shadow, params) : OK;
    if (!code) code = duet_tape_create(&p->tape, device);
    if (!code) {
        p->tape->passes = number_of(c, path);
        code = duet_tape_begin(p->tape, params ? &p->shadow : NULL, samples, DUET_TRAIN);
    }
    if (code) {
        pass_free(p);
        return code;
    }
    p->tape->remote = p;
    p->returned = (struct var_list){.tape = p->tape, .records = c != NULL};
    pthread_mutex_lock(&rpc->lock);
    if (c) passes_insert(p);
    pthread_mutex_unlock(&rpc->lock);
    *out = p;
    return OK;
}

void pass_free(struct autograd *p) {
    if (p->context) {
        pthread_mutex_lock(&p->rpc->lock);
        passes_remove(p);
        context_check_end(p->context);
        pthread_mutex_unlock(&p->rpc->lock);
    }
    for (struct remote_op *op = p->ops, *next; op; op = next) {
        next = op->next;
        duet_rref_free(op->there);
        free(op);
    }
    for (struct kept_tensor *k = p->kept, *next; k; k = next) {
        next = k->next;
        duet_tensor_free(k->tensor);
        free(k);
    }
    duet_rpc_value_free(&p->args);
    shadow_free(&p->shadow);
    if (p->tape) p->tape->remote = NULL;
    duet_tape_free(p->tape);
    free(p);
}

int pass_keep(struct autograd *p, duet_tensor *tensor) {
    struct kept_tensor *k = malloc(sizeof *k);
    if (!k) return fail(ERR_MEMORY, "autograd: out of host memory");
    *k = (struct kept_tensor){tensor, p->kept};
    p->kept = k;
    return OK;
}

/* The only sample's copy of it: as a var of samples it may have any shape. */
duet_var *pass_parameter(duet_tape *t, int i) {
    struct param *p = tape_param_at(t, "to_here", i, 0);
    if (!p) return NULL;
    const int dims[2] = {1, (int)tensor_count(&p->value)};
    duet_var *x = tape_expand(t, &p->value, p, 2, dims);
    if (x) x->value = tensor_plain(x->value.data, DTYPE_F32, p->value.rank, p->value.dims);
    return x;
}

/* ---- called by the program ---- */

int duet_autograd_pass(duet_tape **out, duet_autograd_context *c, duet_params *params,
                       int samples) {
    struct autograd *p;
    CHECK_OUT(out);
    if (!c) return fail(ERR_USAGE, "autograd: pass: no context was given");
    duet_rpc *rpc = c->rpc;
    if (c->creator != rpc->rank) /* one counter must set the order of sums and the masks */
        return fail(ERR_USAGE,
                    "autograd: pass: worker '%s' has created this context: use "
                    "duet_autograd_call_pass in a function",
                    rpc->peers[c->creator].name);
    const struct grad_reducer *ddp = params ? params->reducer : NULL;
    if (ddp) CHECK(ddp->enter(ddp->context, NO_STEP, 1, 1));
    pthread_mutex_lock(&rpc->lock);
    const struct path path = {1, {c->own_passes++}};
    pthread_mutex_unlock(&rpc->lock);
    CHECK(pass_new(&p, rpc, c, 0, &path, rpc->device, params, samples));
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
        call->said->entered) /* nothing would make all ranks call this function */
        return fail(ERR_USAGE, "autograd: pass: a duet_ddp uses the parameters: use "
                               "duet_autograd_pass in a context of this worker");
    if (params && (duet_device *)params->set.device != call->device)
        return fail(ERR_USAGE,
                    "autograd: pass: the parameters are on %s, which is not the device "
                    "of this function: give it with the function",
                    duet_device_name((duet_device *)params->set.device));
    const struct message *m = call->said;
    CHECK(pass_new(&call->pass, call->rpc, m->entered, m->call, &m->path, call->device, params,
                   samples));
    call->answer.vars = &call->pass->returned;
    *out = call->pass->tape;
    return OK;
}

duet_var *duet_autograd_arg(duet_tape *t, duet_rpc_call *call, int i) {
    duet_tensor *x = duet_rpc_arg_tensor(call, i);
    if (!t || t->error) return NULL;
    if (!x || !call->pass || call->pass->tape != t) {
        tape_fail(t, x ? fail(ERR_USAGE, "autograd: argument %d: the tape is of another call", i)
                       : duet_rpc_call_error(call));
        return NULL;
    }
    if (tape_fail(t, tape_operand(t, "autograd", "argument", x, DTYPE_F32))) return NULL;
    int number = duet_rpc_arg(call, i)->count - 1; /* value_make stores a VAR's number there, + 1 */
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
