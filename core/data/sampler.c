/* Computes the order of an epoch and its shares. The end of the order needs care. All R replicas
 * need the same number of samples, or one of them would wait forever in an allreduce that the
 * others never join. Padding trains on a few samples twice. Cutting leaves a few out, different
 * ones in each epoch if the order is shuffled. */
#include "data/sampler.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/random.h"

enum { LENGTH_LIMIT = INT32_MAX };

int order_check(const struct order *o) {
    if (o->count < 0 || o->count >= RNG_PERMUTATION_LIMIT)
        return fail(ERR_USAGE, "data set size: %d: give 0 to %d samples", o->count,
                    RNG_PERMUTATION_LIMIT - 1);
    if (o->replicas < 1)
        return fail(ERR_USAGE, "number of replicas: %d: give at least 1", o->replicas);
    if (order_length(o) > LENGTH_LIMIT)
        return fail(ERR_USAGE, "number of replicas: %d: give at most %d", o->replicas,
                    LENGTH_LIMIT);
    return OK;
}

int64_t order_length(const struct order *o) {
    int64_t rounds = o->count / o->replicas;
    if (o->end == ORDER_EXACT) return o->count;
    if (o->end == ORDER_PAD && o->count % o->replicas) rounds++;
    return rounds * o->replicas;
}

int64_t order_duplicates(const struct order *o) {
    int64_t extra = order_length(o) - o->count;
    return extra > 0 ? extra : 0;
}

/* Sets *r to the generator that permutes this epoch. The first of the two numbers is the
 * DataLoader's base seed, which its worker processes would start from. */
static void seed_epoch(const struct order *o, int epoch, struct rng *r) {
    if (o->shuffle == SHUFFLE_DISTRIBUTED) {
        rng_seed(r, o->seed + (uint64_t)epoch);
        return;
    }
    uint64_t seed = 0;
    rng_seed(r, o->seed);
    for (int e = 0; e <= epoch; e++) {
        rng_u64(r);
        seed = rng_u64(r) & INT64_MAX;
    }
    rng_seed(r, seed);
}

void order_epoch(const struct order *o, int epoch, int32_t *index) {
    if (o->shuffle) {
        struct rng r;
        seed_epoch(o, epoch, &r);
        rng_permutation(&r, index, o->count);
    } else {
        for (int i = 0; i < o->count; i++)
            index[i] = i;
    }
    int64_t length = order_length(o);
    /* If R exceeds the count, the beginning is repeated several times. */
    for (int64_t p = o->count; p < length; p++)
        index[p] = index[p - o->count];
}

int sampler_indices(const struct order *o, int rank, int epoch, int32_t **out, int *n) {
    *out = NULL;
    *n = 0;
    CHECK(order_check(o));
    if (rank < 0 || rank >= o->replicas)
        return fail(ERR_USAGE, "Invalid rank %d, rank should be in the interval [0, %d]", rank,
                    o->replicas - 1);
    int64_t length = order_length(o), room = length > o->count ? length : o->count;
    int32_t *index = malloc((size_t)(room ? room : 1) * sizeof *index);
    if (!index)
        return fail(ERR_MEMORY, "sampler: no memory for %lld positions: use a smaller data set",
                    (long long)room);
    order_epoch(o, epoch, index);
    /* In place: p >= *n, so each element is read before it is overwritten. */
    for (int64_t p = rank; p < length; p += o->replicas)
        index[(*n)++] = index[p];
    *out = index;
    return OK;
}
