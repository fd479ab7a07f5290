/* An optimizer's state as the tensors of a checkpoint; see optimizer_items.h. */
#include "base/error.h"
#include "nn/params/optimizer_items.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { NAME_BYTES = 600 };

void optimizer_items_free(struct optimizer_items *s) {
    free(s->updates);
    free(s->device);
    free(s->part);
    free(s->items);
}

int optimizer_items_make(struct optimizer_items *s, const duet_optimizer *o) {
    const struct param_set *set = &o->params->set;
    size_t count = (size_t)set->count, each = (size_t)o->optimizer.each;
    s->updates = calloc(count + 1, sizeof *s->updates);
    s->device = calloc(1, optimizer_state_bytes(&o->optimizer, set) + 1);
    s->part = calloc(set->total_count * (each ? each : 1) + 1, sizeof *s->part);
    s->items = calloc(count * each + 1, sizeof *s->items);
    if (s->updates && s->device && s->part && s->items) return OK;
    return fail(ERR_MEMORY, "checkpoint: out of host memory for the state of %zu parameters",
                count);
}

/* A part of the state of one parameter as a tensor of the file. */
static struct safetensors_item item_of(const struct param_spec *spec, const char *prefix,
                                       const float *part) {
    struct safetensors_item item = {
        .name = spec->name, .prefix = prefix, .dims = spec->rank, .data = part};
    for (int d = 0; d < spec->rank; d++)
        item.shape[d] = spec->dims[d];
    return item;
}

static void list(struct optimizer_items *s, const duet_optimizer *o) {
    const struct param_set *set = &o->params->set;
    float *part = s->part;
    s->count = 0;
    s->items[s->count++] = (struct safetensors_item){.name = "optimizer.step",
                                                     .dims = 1,
                                                     .shape = {set->count},
                                                     .data = s->updates,
                                                     .dtype = "I64"};
    for (int k = 0; k < o->optimizer.each; k++) {
        snprintf(s->prefix[k], OPTIMIZER_PREFIX, "optimizer.%s.",
                 optimizer_part_name(o->optimizer.config.kind, k));
        for (int i = 0; i < set->count; part += set->param[i++].count) {
            if (!param_trains(&set->param[i])) continue;
            optimizer_part_get(&o->optimizer, &set->param[i], k, s->device, part);
            s->items[s->count++] = item_of(set->param[i].spec, s->prefix[k], part);
        }
    }
}

int optimizer_items_read(struct optimizer_items *s, duet_optimizer *o, int64_t updates) {
    const struct param_set *set = &o->params->set;
    for (int i = 0; i < set->count; i++)
        s->updates[i] = updates - o->optimizer.missed[i];
    CHECK(optimizer_state_read(&o->optimizer, set, s->device));
    list(s, o);
    return OK;
}

/* ---- reading them back ---- */

static int load_part(struct optimizer_items *s, const duet_optimizer *o,
                     const struct safetensors *file, const struct param *p, int k) {
    char name[NAME_BYTES];
    const struct safetensors_item item = item_of(p->spec, NULL, NULL);
    snprintf(name, sizeof name, "optimizer.%s.%s", optimizer_part_name(o->optimizer.config.kind, k),
             item.name);
    CHECK(safetensors_read(file, name, item.dims, item.shape, s->part));
    optimizer_part_put(&o->optimizer, p, k, s->part, s->device);
    return OK;
}

int optimizer_items_load(struct optimizer_items *s, const duet_optimizer *o,
                         const struct safetensors *file, int64_t most) {
    const struct param_set *set = &o->params->set;
    const int64_t shape = set->count;
    CHECK(safetensors_read_as(file, "I64", "optimizer.step", 1, &shape, s->updates));
    for (int i = 0; i < set->count; i++) {
        const struct param *p = &set->param[i];
        if (s->updates[i] < 0 || s->updates[i] > most)
            return fail(ERR_FAILED, "checkpoint %s: %" PRId64 " updates of '%s': it is broken",
                        file->path, s->updates[i], p->spec->name);
        for (int k = 0; param_trains(p) && k < o->optimizer.each; k++)
            CHECK(load_part(s, o, file, p, k));
    }
    return OK;
}

/* Only the difference in updates between parameters counts. */
int optimizer_items_put(const struct optimizer_items *s, duet_optimizer *o, int64_t updates) {
    const struct param_set *set = &o->params->set;
    CHECK(optimizer_state_write(&o->optimizer, set, s->device));
    o->updates = updates;
    o->left_out = 0;
    for (int i = 0; i < set->count; i++)
        if (s->updates[i] > o->updates) o->updates = s->updates[i];
    for (int i = 0; i < set->count; i++) {
        o->optimizer.missed[i] = o->updates - s->updates[i];
        o->left_out |= o->optimizer.missed[i] > 0;
    }
    return OK;
}
