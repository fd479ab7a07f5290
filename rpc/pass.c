/* The passes of a context: each call of a function that carries vars has a tape of its own, which
 * lives until the context ends. Ended tapes are used again, since a tape that has done a step has
 * its memory in one block. */
#include "rpc/autograd.h"

#include <stdlib.h>
#include <string.h>

/* ---- parameters with other gradients ---- */

void shadow_place(struct duet_params *shadow, float *arena) {
    shadow->set.grads = arena;
    for (int i = 0; i < shadow->set.count; i++) {
        struct param *p = &shadow->set.param[i];
        if (!param_trains(p)) continue;
        p->grad_offset = p->value_offset;
        p->grad.data = arena ? arena + p->value_offset : NULL;
    }
}

int shadow_params(struct duet_params *out, duet_params *params, float *arena) {
    size_t count = (size_t)params->set.count;
    *out = *params;
    out->reducer = NULL;
    out->set.param = malloc(count * sizeof *out->set.param + 1);
    out->has_grad = calloc(count + 1, 1);
    if (!out->set.param || !out->has_grad) {
        shadow_free(out);
        return fail(ERR_MEMORY, "autograd: no host memory for %zu parameters", count);
    }
    memcpy(out->set.param, params->set.param, count * sizeof *out->set.param);
    shadow_place(out, arena);
    return OK;
}

void shadow_free(struct duet_params *shadow) {
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

static int take_tape(duet_rpc *rpc, duet_device *device, duet_tape **out) {
    pthread_mutex_lock(&rpc->lock);
    struct autograd_pass **at = &rpc->spare_passes, *spare;
    while (*at && (*at)->device != device)
        at = &(*at)->next;
    if ((spare = *at)) *at = spare->next;
    pthread_mutex_unlock(&rpc->lock);
    if (!spare) return duet_tape_create(out, device);
    *out = spare->tape;
    free(spare);
    return OK;
}

int pass_new(struct autograd_pass **out, duet_rpc *rpc, duet_autograd_context *c, uint64_t call,
             const struct path *path, duet_device *device, duet_params *params, int samples) {
    if (params) device = (duet_device *)params->set.device;
    if (!device) return fail(ERR_USAGE, "autograd: pass: the worker has no device");
    struct autograd_pass *p = calloc(1, sizeof *p);
    if (!p) return fail(ERR_MEMORY, "autograd: no host memory for a pass");
    *p = (struct autograd_pass){
        .context = c, .rpc = rpc, .call = call, .path = *path, .device = device, .params = params};
    int code = params ? shadow_params(&p->shadow, params, NULL) : OK;
    if (!code) code = take_tape(rpc, device, &p->tape);
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
    *out = p;
    return OK;
}

static void free_ops(struct autograd_pass *p) {
    for (struct remote_op *op = p->ops, *next; op; op = next) {
        next = op->next;
        free(op);
    }
    p->ops = NULL;
}

void pass_free(struct autograd_pass *p) {
    duet_rpc *rpc = p->rpc;
    duet_tape *tape = p->tape;
    free_ops(p);
    for (struct kept_tensor *k = p->kept, *next; k; k = next) {
        next = k->next;
        duet_tensor_free(k->tensor);
        free(k);
    }
    shadow_free(&p->shadow);
    if (!tape) {
        free(p);
        return;
    }
    tape->remote = NULL;
    *p = (struct autograd_pass){.rpc = rpc, .tape = tape, .device = p->device};
    pthread_mutex_lock(&rpc->lock);
    p->next = rpc->spare_passes;
    rpc->spare_passes = p;
    pthread_mutex_unlock(&rpc->lock);
}

int pass_keep(struct autograd_pass *p, duet_tensor *tensor) {
    struct kept_tensor *k = malloc(sizeof *k);
    if (!k) return fail(ERR_MEMORY, "autograd: no host memory");
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

struct autograd_pass *pass_find(duet_autograd_context *c, uint64_t call) {
    struct autograd_pass *p = c->passes;
    while (p && p->call != call)
        p = p->next;
    return p;
}
