/* A unit is a set of parameters that are gathered together. This file cuts units into shards.
 *
 *     unit       the parameters of neighbouring layers, one after another in a flat buffer, the
 *                trained ones first: FSDP's flat parameter
 *     shard r    block r of W equal blocks of the flat buffer, which rank r keeps
 *
 *     flat       | W2        | b2 | W1             | b1 | pad |
 *     shards     | rank 0       | rank 1      | rank 2      |     cuts anywhere, even in a weight
 *
 * The trained part and the frozen part are split separately, because only the first has gradients.
 * It computes only with integers, which are equal on every rank. */
#ifndef FSDP_UNITS_H
#define FSDP_UNITS_H

#include "nn/param.h"

enum { FSDP_DEFAULT_UNITS = 16 }; /* by default a unit has about 1/16 of all elements */

struct fsdp_unit {
    int trained;     /* number of its parameters that are not frozen */
    size_t block[2]; /* elements in a shard of the trained part and of the frozen part */
    size_t shard[2]; /* where these two shards begin in the arena of shards */
};

struct fsdp_units {
    int count, ranks;
    struct fsdp_unit *unit; /* [count] */
    int *of;                /* [params] the unit of each parameter */
    size_t *at;             /* [params] where each begins in the flat buffer */
    size_t trained, all;    /* elements in a rank's shards: trained parts, and all parts */
};

/* Elements in the flat buffer of a unit: in its trained part, and in all. */
static inline size_t fsdp_trained(const struct fsdp_units *u, int unit) {
    return u->unit[unit].block[0] * (size_t)u->ranks;
}
static inline size_t fsdp_flat(const struct fsdp_units *u, int unit) {
    return fsdp_trained(u, unit) + u->unit[unit].block[1] * (size_t)u->ranks;
}

/* Cuts the parameters of a set into units. `words` says how:
 *
 *     ""              neighbouring layers, until they hold 1/16 of all elements
 *     "25" or "0.5"   until they hold this many MiB
 *     "conv,fc.0"     each named module; the rest is one more unit
 *
 * A layer is never cut. The first two ways also keep a block whole, or make each of its layers a
 * unit. ERR_USAGE: no parameter has a name from `words`. */
int fsdp_units_cut(struct fsdp_units *u, const struct param_set *set, int ranks, const char *words);
void fsdp_units_free(struct fsdp_units *u);

/* Finds the elements of parameter i that `rank` keeps, [*begins, *begins + *count), and returns
 * their offset in the arena of shards. */
size_t fsdp_shard_of(const struct fsdp_units *u, const struct param *p, int rank, size_t *begins,
                     size_t *count);

#endif
