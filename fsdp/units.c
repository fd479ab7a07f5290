/* Cuts a model into units, and units into shards; see units.h. */
#include "fsdp/units.h"

#include <stdlib.h>
#include <string.h>

#include "base/text/parse.h"

static const double MIB = 1024.0 * 1024.0;

/* How long the name of a parameter's module is: "layer1.0.conv1" of "layer1.0.conv1.weight". */
static size_t module_length(const struct param_spec *spec) {
    const char *dot = strrchr(spec->name, '.');
    return dot ? (size_t)(dot - spec->name) : 0;
}

/* 1: parameter b, registered after a, begins another layer. A vector without a module is the bias
 * of the preceding weight. */
static int begins_layer(const struct param_spec *a, const struct param_spec *b) {
    size_t length = module_length(b);
    if (!length) return b->rank > 1 || module_length(a);
    return length != module_length(a) || strncmp(a->name, b->name, length) != 0;
}

/* 1: b is in a named submodule, not an element of a sequence, of a module that also has a: both are
 * in one block. */
static int same_block(const struct param_spec *a, const struct param_spec *b) {
    size_t length = module_length(b), part = length;
    while (part && b->name[part - 1] != '.')
        part--;
    return part && strspn(b->name + part, "0123456789") < length - part &&
           !strncmp(a->name, b->name, part);
}

/* Where the block ends that begins with parameter `first`. *large: it has several layers, and more
 * than `least` elements. */
static int block_end(const struct param_set *set, int first, double least, int *large) {
    double count = (double)set->param[first].count;
    int end = first + 1, layers = 1;
    for (; end < set->count; end++) {
        const struct param_spec *a = set->param[end - 1].spec, *b = set->param[end].spec;
        if (!same_block(a, b)) break;
        layers += begins_layer(a, b);
        count += (double)set->param[end].count;
    }
    *large = layers > 1 && count > least;
    return end;
}

/* Joins neighbouring layers until they have `least` elements. A block may use its layers in another
 * order than it registers them in, such as the norms of a residual block, and a unit that is used
 * again after others has to stay. So a block is never cut in the middle; if it is large, each of
 * its layers is a unit. */
static void group_by_size(struct fsdp_units *u, const struct param_set *set, double least) {
    size_t held = 0;
    int unit = 0, end = 0, large = 0;
    for (int i = 0; i < set->count; i++) {
        int opens = i >= end, cuts = large || (opens && (double)held >= least);
        if (opens) end = block_end(set, i, least, &large);
        if (i && begins_layer(set->param[i - 1].spec, set->param[i].spec) && (cuts || large)) {
            unit++;
            held = 0;
        }
        u->of[i] = unit;
        held += set->param[i].count;
    }
    u->count = unit + 1;
}

static int take_named(struct fsdp_units *u, const struct param_set *set, const char *name) {
    int found = 0;
    for (int i = 0; i < set->count; i++) {
        if (u->of[i] >= 0 || !param_is_of(set->param[i].spec, name)) continue;
        u->of[i] = u->count;
        found = 1;
    }
    u->count += found;
    if (found) return OK;
    return fail(ERR_USAGE,
                "units: '%.80s': no parameter outside earlier units has this name, or one that "
                "begins with it and a dot: give names of modules",
                name);
}

static int group_by_name(struct fsdp_units *u, const struct param_set *set, const char *words) {
    char *copy = strdup(words), *rest = copy;
    int code = copy ? OK : fail(ERR_MEMORY, "units: the host is out of memory");
    for (int i = 0; i < set->count; i++)
        u->of[i] = -1;
    for (char *name; !code && (name = strsep(&rest, ","));)
        code = take_named(u, set, name);
    free(copy);
    const int named = u->count;
    for (int i = 0; i < set->count; i++) {
        if (u->of[i] >= 0) continue;
        u->of[i] = named;
        u->count = named + 1;
    }
    return code;
}

static int group(struct fsdp_units *u, const struct param_set *set, const char *words) {
    double mib = 0;
    if (!*words) {
        group_by_size(u, set, (double)set->total_count / FSDP_DEFAULT_UNITS);
        return OK;
    }
    if (strspn(words, "0123456789.") != strlen(words)) return group_by_name(u, set, words);
    CHECK(parse_number("units", words, 1e-6, 1e9, &mib));
    group_by_size(u, set, mib * MIB / sizeof(float));
    return OK;
}

/* The parameter registered last comes first, as in the arenas of a whole set (nn/param.h). So
 * parameters are contiguous in the shards, too, and one launch updates many. */
static void place_units(struct fsdp_units *u, const struct param_set *set) {
    for (int frozen = 0; frozen < 2; frozen++) {
        for (int i = set->count - 1; i >= 0; i--) {
            struct fsdp_unit *unit = &u->unit[u->of[i]];
            if (set->param[i].spec->frozen != frozen) continue;
            u->at[i] = unit->block[frozen];
            unit->block[frozen] += param_padded(set->param[i].count);
            unit->trained += !frozen;
        }
        for (int k = u->count - 1; k >= 0; k--) {
            struct fsdp_unit *unit = &u->unit[k];
            size_t ranks = (size_t)u->ranks;
            unit->block[frozen] = param_padded((unit->block[frozen] + ranks - 1) / ranks);
            unit->shard[frozen] = u->all;
            u->all += unit->block[frozen];
        }
        if (!frozen) u->trained = u->all;
    }
    for (int i = 0; i < set->count; i++)
        if (set->param[i].spec->frozen) u->at[i] += fsdp_trained(u, u->of[i]);
}

int fsdp_units_cut(struct fsdp_units *u, const struct param_set *set, int ranks,
                   const char *words) {
    *u = (struct fsdp_units){.ranks = ranks};
    u->of = calloc((size_t)set->count + 1, sizeof *u->of);
    u->at = calloc((size_t)set->count + 1, sizeof *u->at);
    u->unit = calloc((size_t)set->count + 1, sizeof *u->unit);
    if (!u->of || !u->at || !u->unit)
        return fail(ERR_MEMORY, "units of %d parameters: the host is out of memory", set->count);
    CHECK(group(u, set, words));
    place_units(u, set);
    return OK;
}

void fsdp_units_free(struct fsdp_units *u) {
    free(u->unit);
    free(u->of);
    free(u->at);
}

static size_t clamp(size_t x, size_t low, size_t high) {
    return x < low ? low : x > high ? high : x;
}

size_t fsdp_shard_of(const struct fsdp_units *u, const struct param *p, int rank, size_t *begins,
                     size_t *count) {
    const struct fsdp_unit *unit = &u->unit[u->of[p->index]];
    const int frozen = p->spec->frozen;
    const size_t first = u->at[p->index] - (frozen ? fsdp_trained(u, u->of[p->index]) : 0),
                 low = unit->block[frozen] * (size_t)rank, high = low + unit->block[frozen],
                 from = clamp(first, low, high), to = clamp(first + p->count, low, high);
    *begins = from - first;
    *count = to - from;
    if (!*count) *begins = 0;
    return unit->shard[frozen] + from - low;
}
