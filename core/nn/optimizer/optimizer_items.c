/* An optimizer's state as the tensors of a checkpoint: see optimizer_items.h. */
#include "base/error.h"
#include "nn/optimizer/optimizer_items.h"

#include <stdio.h>
#include <stdlib.h>

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
    return fail(ERR_MEMORY, "checkpoint: no host memory for the state of %zu parameters", count);
}

int optimizer_items_read(struct optimizer_items *s, duet_optimizer *o, int64_t updates) {
    const struct param_set *set = &o->params->set;
    for (int i = 0; i < set->count; i++)
        s->updates[i] = updates - o->optimizer.missed[i];
    return optimizer_state_read(&o->optimizer, set, s->device);
}

struct safetensors_item optimizer_item(const struct param_spec *spec, const char *prefix,
                                       const float *part) {
    struct safetensors_item item = {
        .name = spec->name, .prefix = prefix, .dims = spec->rank, .data = part};
    for (int d = 0; d < spec->rank; d++)
        item.shape[d] = spec->dims[d];
    return item;
}

void optimizer_items_list(struct optimizer_items *s, const duet_optimizer *o) {
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
            s->items[s->count++] = optimizer_item(set->param[i].spec, s->prefix[k], part);
        }
    }
}
