/* Parameter groups have their own learning rate or weight decay, as in PyTorch.
 *
 *     group 0    the parameters in no other group, with the step's rate and step block
 *     group g    has its own weight decay, and its own rate, in its own step block in device
 *                memory
 *
 * A name, or a pattern of names, selects the parameters of a group. */
#include <fnmatch.h>
#include <string.h>

#include "base/error.h"
#include "nn/optimizer/optimizer.h"

static const double LARGEST = 3.4e38; /* about FLT_MAX, since devices compute in float */

static int matches(const char *pattern, const struct param_spec *spec) {
    if (!strcmp(pattern, "1d")) return spec->rank == 1;
    return param_is_of(spec, pattern) || !fnmatch(pattern, spec->name, 0);
}

static int check_group(const struct param_group *g) {
    if (g->lr <= LARGEST && g->weight_decay <= LARGEST) return OK; /* false for NaN */
    return fail(ERR_USAGE, "group '%s': lr %g, weight_decay %g: give finite numbers", g->params,
                g->lr, g->weight_decay);
}

int optimizer_add_group(struct optimizer *o, const struct param_set *set,
                        const struct param_group *group) {
    int found = 0, g = o->config.groups;
    if (g == OPTIMIZER_GROUPS)
        return fail(ERR_USAGE, "group '%s': all %d groups are in use: give fewer", group->params,
                    g);
    CHECK(check_group(group));
    if (!o->blocks)
        CHECK(device_alloc(o->device, (void **)&o->blocks, OPTIMIZER_GROUPS * sizeof *o->blocks,
                           MEM_WORKSPACE));
    for (int i = 0; i < set->count; i++) {
        const struct param *p = &set->param[i];
        if (!param_trains(p) || o->group_of[i] || !matches(group->params, p->spec)) continue;
        o->group_of[i] = (char)(g + 1);
        found = 1;
    }
    if (!found)
        return fail(
            ERR_USAGE,
            "group '%s': no trained parameter outside earlier groups has this name or pattern",
            group->params);
    o->config.group[g] = *group;
    o->rate[g] = group->lr;
    o->config.groups++;
    return OK;
}

struct optimizer_config optimizer_of_group(const struct optimizer *o, int g) {
    struct optimizer_config config = o->config;
    if (g && config.group[g - 1].weight_decay >= 0)
        config.weight_decay = config.group[g - 1].weight_decay;
    return config;
}
