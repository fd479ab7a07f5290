/* The gradients of a context at one worker. Each backward over a pass leaves a part. The parts
 * arrive in any order, but are added in the order of their paths when they are needed. So the bits
 * of a sum do not depend on timing. */
#include <stdlib.h>
#include <string.h>

#include "rpc/autograd.h"

static int comes_before(const struct grad_part *a, const struct grad_part *b) {
    const struct path *p = &a->path, *q = &b->path;
    if (a->turn != b->turn) return a->turn < b->turn;
    for (uint32_t i = 0; i < p->depth && i < q->depth; i++)
        if (p->step[i] != q->step[i]) return p->step[i] < q->step[i];
    return p->depth < q->depth;
}

static void part_free(struct grad_part *part) {
    device_free(part->device, part->arena);
    free(part->has_grad);
    free(part);
}

/* Keeps the list in order. */
static void insert_part(duet_autograd_context *c, struct grad_part *part) {
    struct grad_part **at = &c->parts;
    pthread_mutex_lock(&c->rpc->lock);
    while (*at && comes_before(*at, part))
        at = &(*at)->next;
    part->next = *at;
    *at = part;
    pthread_mutex_unlock(&c->rpc->lock);
}

int grad_sums_add(struct autograd *p, uint64_t turn, float *arena, char *has_grad) {
    struct grad_part *part = calloc(1, sizeof *part);
    if (!part) {
        device_free(p->tape->device, arena);
        free(has_grad);
        return fail(ERR_MEMORY, "autograd: out of host memory for gradients");
    }
    *part = (struct grad_part){.params = p->params,
                               .device = p->tape->device,
                               .turn = turn,
                               .path = p->path,
                               .arena = arena,
                               .has_grad = has_grad};
    insert_part(p->context, part);
    return OK;
}

/* The first part of these parameters, or of any on the device; out of the list. */
static struct grad_part *take_part(duet_autograd_context *c, const duet_params *params,
                                   const duet_device *device) {
    struct grad_part **at = &c->parts, *part;
    pthread_mutex_lock(&c->rpc->lock);
    while (*at && ((params && (*at)->params != params) ||
                   (device && (duet_device *)(*at)->device != device)))
        at = &(*at)->next;
    if ((part = *at)) *at = part->next;
    pthread_mutex_unlock(&c->rpc->lock);
    return part;
}

static int add_param(const struct param *p, struct grad_part *sum, const struct grad_part *part,
                     struct stream *stream) {
    struct tensor to = p->value, from = p->value;
    to.data = sum->arena + p->value_offset;
    from.data = part->arena + p->value_offset;
    const struct op_args args = {.in = {to, from}, .out[0] = to};
    return launch(stream, OP_ADD_FORWARD, &args);
}

/* A parameter without a gradient has zeros in the sum. */
static int add_part(struct grad_part *sum, const struct grad_part *part) {
    struct param_set *set = &sum->params->set;
    for (int i = 0; i < set->count; i++) {
        if (!part->has_grad[i]) continue;
        CHECK(add_param(&set->param[i], sum, part, device_compute(set->device)));
        sum->has_grad[i] = 1;
    }
    return OK;
}

int grad_sums_fold(duet_autograd_context *c, duet_params *params, struct grad_part **out) {
    struct grad_part *sum = *out = take_part(c, params, NULL), *part;
    int code = OK;
    if (!sum) return OK;
    struct grad_part *rest = NULL;
    while ((part = take_part(c, params, NULL))) {
        if (!code) code = add_part(sum, part);
        part->next = rest;
        rest = part;
    }
    if (rest) CHECK_KEEP(stream_sync(device_compute(params->set.device)), code);
    while ((part = rest)) {
        rest = part->next;
        part_free(part);
    }
    sum->turn = 0;
    sum->path.depth = 0;
    insert_part(c, sum);
    return code;
}

void grad_sums_free(duet_autograd_context *c, duet_device *device) {
    struct grad_part *part;
    while ((part = take_part(c, NULL, device))) {
        stream_sync(device_compute(part->device));
        part_free(part);
    }
}

/* ---- called by the program ---- */

int duet_autograd_gradients(duet_tensor **out, duet_autograd_context *c, duet_params *params,
                            int i) {
    struct grad_part *sum;
    CHECK_OUT(out);
    if (!c || !params || i < 0 || i >= params->set.count)
        return fail(ERR_USAGE, "autograd: gradients: give a context, and a parameter");
    CHECK(grad_sums_fold(c, params, &sum));
    const struct param *p = &params->set.param[i];
    if (!sum || !sum->has_grad[i])
        return fail(ERR_USAGE, "autograd: gradients: the context has no gradient of %s here",
                    p->spec->name);
    struct duet_tensor view = {.device = params->set.device, .t = p->value, .borrowed = 1};
    view.t.data = sum->arena + p->value_offset;
    return duet_tensor_to(out, &view, (duet_device *)params->set.device);
}
