/* Lists the tensors of a file of parameters, and copies them from and to the device: state.h. */
#include "nn/params/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { NAME_BYTES = 600 };

/* PyTorch's names for the parts of the state. */
static const char *const part_names[OPTIMIZER_COUNT][OPTIMIZER_PARTS] = {
    [OPTIMIZER_SGD] = {"momentum_buffer", ""},
    [OPTIMIZER_ADADELTA] = {"square_avg", "acc_delta"},
    [OPTIMIZER_ADAM] = {"exp_avg", "exp_avg_sq"},
    [OPTIMIZER_ADAMW] = {"exp_avg", "exp_avg_sq"}};

/* ---- the list ---- */

static struct safetensors_item *add(struct state *s, const char *name, const char *dtype, int rank,
                                    const int *dims, const void *data) {
    struct safetensors_item *item = &s->items[s->count++];
    *item = (struct safetensors_item){.name = name, .dtype = dtype, .dims = rank, .data = data};
    for (int d = 0; d < rank; d++)
        item->shape[d] = dims[d];
    return item;
}

static void list_optimizer(struct state *s) {
    const struct param_set *set = &s->params->set;
    const struct optimizer *o = &s->optimizer->optimizer;
    const float *part = s->parts;
    add(s, "optimizer.step", "I64", 1, &set->count, s->updates);
    for (int k = 0; k < o->each; k++) {
        snprintf(s->prefix[k], OPTIMIZER_PREFIX, "optimizer.%s.", part_names[o->config.kind][k]);
        for (int i = 0; i < set->count; i++) {
            const struct param *p = &set->param[i];
            if (!param_trains(p)) continue;
            add(s, p->spec->name, "F32", p->spec->rank, p->spec->dims, part)->prefix = s->prefix[k];
            part += p->count;
        }
    }
}

static void list(struct state *s) {
    const struct param_set *set = &s->params->set;
    const float *values = s->values;
    for (int i = 0; i < set->count; values += set->param[i++].count) {
        const struct param_spec *spec = set->param[i].spec;
        add(s, spec->name, "F32", spec->rank, spec->dims, values);
    }
    for (int i = 0; i < s->params->buffers.count; i++) {
        const struct buffer *b = &s->params->buffers.buffer[i];
        add(s, b->spec->name, b->spec->dtype == DTYPE_I64 ? "I64" : "F32", b->spec->rank,
            b->spec->dims, (char *)s->buffers + b->offset);
    }
    if (s->optimizer) list_optimizer(s);
}

int state_make(struct state *s, duet_params *params, duet_optimizer *optimizer) {
    const struct param_set *set = &params->set;
    size_t count = (size_t)set->count, each = optimizer ? (size_t)optimizer->optimizer.each : 0;
    *s = (struct state){.params = params, .optimizer = optimizer};
    s->items = calloc(count * (1 + each) + (size_t)params->buffers.count + 1, sizeof *s->items);
    s->values = calloc(set->total_count + 1, sizeof *s->values);
    s->buffers = calloc(1, params->buffers.bytes + 1);
    s->updates = calloc(count + 1, sizeof *s->updates);
    s->parts = calloc(set->total_count * each + 1, sizeof *s->parts);
    s->mixed = calloc(set->grad_count * each + 1, sizeof *s->mixed);
    if (!s->items || !s->values || !s->buffers || !s->updates || !s->parts || !s->mixed)
        return fail(ERR_MEMORY, "out of host memory for the state of %zu parameters", count);
    list(s);
    return OK;
}

void state_free(struct state *s) {
    free(s->items);
    free(s->values);
    free(s->buffers);
    free(s->updates);
    free(s->parts);
    free(s->mixed);
}

/* Copies the parts from `mixed`, or back. */
static void copy_parts(struct state *s, int back) {
    const struct param_set *set = &s->params->set;
    const size_t each = (size_t)s->optimizer->optimizer.each;
    float *part = s->parts;
    for (size_t k = 0; k < each; k++)
        for (int i = 0; i < set->count; i++) {
            const struct param *p = &set->param[i];
            for (size_t n = 0; param_trains(p) && n < p->count; n++, part++) {
                float *there = &s->mixed[(p->value_offset + n) * each + k];
                *(back ? there : part) = *(back ? part : there);
            }
        }
}

/* ---- from the device ---- */

static int take_optimizer(struct state *s, int64_t updates) {
    const struct param_set *set = &s->params->set;
    const struct optimizer *o = &s->optimizer->optimizer;
    struct stream *stream = device_compute(set->device);
    const size_t bytes = set->grad_count * (size_t)o->each * sizeof *s->mixed;
    for (int i = 0; i < set->count; i++)
        s->updates[i] = updates - o->missed[i];
    if (set->shard && bytes)
        CHECK(set->gather_state(set->context, o->state, o->each, s->mixed));
    else if (bytes)
        CHECK(copy_to_host(stream, s->mixed, o->state, bytes));
    CHECK(stream_sync(stream));
    copy_parts(s, 0);
    return OK;
}

int state_take(struct state *s, int64_t updates) {
    for (int i = 0; i < s->params->set.count; i++)
        CHECK(param_read_value(&s->params->set, i, (float *)s->items[i].data));
    CHECK(buffer_set_read(&s->params->buffers, s->buffers));
    return s->optimizer ? take_optimizer(s, updates) : OK;
}

/* ---- from a file, and to the device ---- */

int state_read(struct state *s, const struct safetensors *file, int64_t most) {
    const struct param_set *set = &s->params->set;
    for (int i = 0; i < s->count; i++) {
        const struct safetensors_item *item = &s->items[i];
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%s%s", item->prefix ? item->prefix : "", item->name);
        CHECK(
            safetensors_read(file, item->dtype, name, item->dims, item->shape, (void *)item->data));
    }
    for (int i = 0; s->optimizer && i < set->count; i++)
        if (s->updates[i] < 0 || s->updates[i] > most)
            return fail(ERR_FAILED, "checkpoint %s: %" PRId64 " updates of '%s': it is broken",
                        file->path, s->updates[i], set->param[i].spec->name);
    return OK;
}

/* Each shard takes its own part of the whole state. */
static int write_state(struct state *s) {
    struct param_set *set = &s->params->set, *own = param_set_own(set);
    const struct optimizer *o = &s->optimizer->optimizer;
    const size_t each = (size_t)o->each;
    struct stream *stream = device_compute(set->device);
    for (int i = 0; i < own->count; i++) {
        const struct param *p = &own->param[i];
        const float *from = s->mixed + (set->param[i].value_offset + p->begins) * each;
        if (param_trains(p) && each && p->count)
            CHECK(copy_to_device(stream, o->state + p->value_offset * each, from,
                                 p->count * each * sizeof *from));
    }
    return stream_sync(stream);
}

/* Only the difference in updates between parameters counts. */
static int put_optimizer(struct state *s, int64_t updates) {
    duet_optimizer *o = s->optimizer;
    const int count = s->params->set.count;
    copy_parts(s, 1);
    CHECK(write_state(s));
    o->updates = updates;
    for (int i = 0; i < count; i++)
        if (s->updates[i] > o->updates) o->updates = s->updates[i];
    for (int i = 0; i < count; i++)
        o->optimizer.missed[i] = o->updates - s->updates[i];
    return OK;
}

int state_put(struct state *s, int64_t updates) {
    for (int i = 0; i < s->params->set.count; i++)
        CHECK(param_write_value(&s->params->set, i, s->items[i].data));
    CHECK(buffer_set_write(&s->params->buffers, s->buffers));
    return s->optimizer ? put_optimizer(s, updates) : OK;
}
