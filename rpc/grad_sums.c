/* The gradients of a context at one worker. Each pass keeps those of its own backward. They are
 * added in the order of the passes' paths when they are needed. Calls begin and end in any order,
 * but the bits of a sum do not depend on it. */
#include "rpc/autograd.h"

static int comes_before(const struct path *p, const struct path *q) {
    for (uint32_t i = 0; i < p->depth && i < q->depth; i++)
        if (p->step[i] != q->step[i]) return p->step[i] < q->step[i];
    return p->depth < q->depth;
}

void passes_insert(struct autograd *p) {
    struct autograd **at = &p->context->passes;
    while (*at && comes_before(&(*at)->path, &p->path))
        at = &(*at)->next;
    p->next = *at;
    *at = p;
}

void passes_remove(struct autograd *p) {
    struct autograd **at = &p->context->passes;
    while (*at && *at != p)
        at = &(*at)->next;
    if (*at) *at = p->next;
}

/* The first pass with these parameters, or the one after `p`. Such passes end only on the device of
 * the parameters, which the caller has. */
static struct autograd *next_with(duet_autograd_context *c, const duet_params *params,
                                  const struct autograd *p) {
    pthread_mutex_lock(&c->rpc->lock);
    struct autograd *next = p ? p->next : c->passes;
    while (next && next->params != params)
        next = next->next;
    pthread_mutex_unlock(&c->rpc->lock);
    return next;
}

int grad_sum(duet_autograd_context *c, duet_params *params, int i, struct tensor *sum, char *has) {
    struct device *device = params->set.device;
    struct stream *stream = device_compute(device);
    *has = 0;
    for (struct autograd *p = NULL; (p = next_with(c, params, p));) {
        const struct tensor *grad = &p->shadow.set.param[i].grad;
        const struct op_args both = {.in = {*sum, *grad}, .out[0] = *sum};
        if (!p->shadow.has_grad[i]) continue;
        CHECK(*has ? launch(stream, OP_ADD_FORWARD, &both)
                   : copy_peer(stream, device, sum->data, device, grad->data, tensor_bytes(sum)));
        *has = 1;
    }
    return OK;
}

/* ---- called by the program ---- */

int duet_autograd_gradients(duet_tensor **out, duet_autograd_context *c, duet_params *params,
                            int i) {
    char has;
    CHECK_OUT(out);
    if (!c || !params || i < 0 || i >= params->set.count)
        return fail(ERR_USAGE, "autograd: gradients: give a context, and a parameter");
    const struct param *p = &params->set.param[i];
    CHECK(duet_tensor_create(out, (duet_device *)params->set.device, DUET_F32, p->value.rank,
                             p->value.dims, NULL));
    int code = grad_sum(c, params, i, &(*out)->t, &has);
    if (!code && !has)
        code = fail(ERR_USAGE, "autograd: gradients: the context has no gradient of %s here",
                    p->spec->name);
    if (code) {
        duet_tensor_free(*out);
        *out = NULL;
    }
    return code;
}
