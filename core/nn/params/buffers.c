/* The buffers of a program are the internal buffer_set, with its own names. They are registered
 * once. A tape's batch_norm finds them by index, and files keep them by name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "duet/train.h"
#include "nn/params/params.h"

static int check_buffer(const struct duet_buffer *b) {
    if (b->type != DUET_F32 && b->type != DUET_I64)
        return fail(ERR_USAGE, "buffer %.100s: type %d: give DUET_F32 or DUET_I64", b->name,
                    (int)b->type);
    if (b->type == DUET_I64 && !(fabs(b->value) <= 0x1p53))
        return fail(ERR_USAGE, "buffer %.100s: initial value %g: give -2^53 to 2^53 for an int64",
                    b->name, b->value);
    if (!b->rank) return OK;
    CHECK(tensor_check_shape(b->name, b->rank, b->shape));
    return b->shape[0] ? OK : fail(ERR_USAGE, "%s: dimension 0 is 0: give at least 1", b->name);
}

static int build(duet_params *p, const struct buffer_spec *specs, int count) {
    p->buffer_specs = calloc((size_t)count, sizeof *p->buffer_specs);
    p->buffer_views = calloc((size_t)count, sizeof *p->buffer_views);
    if (!p->buffer_specs || !p->buffer_views)
        return fail(ERR_MEMORY, "buffers: out of host memory for all %d", count);
    for (int i = 0; i < count; i++) {
        p->buffer_specs[i] = specs[i];
        p->buffer_specs[i].name = strdup(specs[i].name);
        if (!p->buffer_specs[i].name)
            return fail(ERR_MEMORY, "buffers: out of host memory for a name");
    }
    CHECK(buffer_set_init(&p->buffers, p->set.device, p->buffer_specs, count));
    for (int i = 0; i < count; i++)
        p->buffer_views[i] = (struct duet_tensor){
            .device = p->set.device, .t = p->buffers.buffer[i].value, .borrowed = 1};
    return OK;
}

int params_register(duet_params *params, const struct buffer_spec *specs, int count) {
    int code = count ? build(params, specs, count) : OK;
    if (code) params_free_buffers(params, count);
    return code;
}

void params_free_buffers(duet_params *p, int count) {
    buffer_set_free(&p->buffers);
    for (int i = 0; p->buffer_specs && i < count; i++)
        free((char *)p->buffer_specs[i].name);
    free(p->buffer_specs);
    free(p->buffer_views);
    p->buffer_specs = NULL;
    p->buffer_views = NULL;
}

int duet_params_register_buffers(duet_params *params, const struct duet_buffer *buffers,
                                 int count) {
    char what[32];
    if (!params || !buffers)
        return fail(ERR_USAGE, "buffers: no %s given",
                    params ? "description was" : "parameters were");
    if (count < 1 || count > MOST_PARAMS)
        return fail(ERR_USAGE, "buffers: %d: give 1 to %d", count, MOST_PARAMS);
    if (params->buffers.count)
        return fail(ERR_USAGE, "buffers: the parameters have %d already: register all in one call",
                    params->buffers.count);
    if (params->reducer)
        return fail(ERR_USAGE, "buffers: register them before making a duet_ddp of the parameters");
    for (int i = 0; i < count; i++) {
        snprintf(what, sizeof what, "buffer %d", i);
        CHECK(name_check(what, buffers[i].name));
        CHECK(check_buffer(&buffers[i]));
    }
    struct buffer_spec *specs = calloc((size_t)count, sizeof *specs);
    if (!specs) return fail(ERR_MEMORY, "buffers: out of host memory for all %d", count);
    for (int i = 0; i < count; i++) {
        const struct duet_buffer *b = &buffers[i];
        specs[i] = (struct buffer_spec){.name = b->name,
                                        .dtype = b->type == DUET_I64 ? DTYPE_I64 : DTYPE_F32,
                                        .rank = b->rank,
                                        .initial = b->value};
        memcpy(specs[i].dims, b->shape, sizeof specs[i].dims);
    }
    int code = names_check_differ("parameters and buffers", params->specs, params->set.count, specs,
                                  count); /* as many as in one file */
    if (!code) code = params_register(params, specs, count);
    free(specs);
    return code;
}

duet_tensor *duet_params_buffer(duet_params *params, int i) {
    return params && i >= 0 && i < params->buffers.count ? &params->buffer_views[i] : NULL;
}
