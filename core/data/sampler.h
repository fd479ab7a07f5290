/* Decides which rank trains on which image: the order of an epoch, and each rank's share of it.
 *
 * The order of an epoch is a permutation of the data set, seeded with seed + epoch, or 0, 1, 2, ...
 * without shuffling. Its length must be a multiple of R replicas, so it is padded with its own
 * beginning, or cut. Replica r takes the positions r, r+R, r+2R, ... This is
 * torch.utils.data.DistributedSampler, index by index. Every mode of Duet follows this one order,
 * whether R is the number of ranks or of virtual devices. All functions are pure. */
#ifndef DATA_SAMPLER_H
#define DATA_SAMPLER_H

#include <stdint.h>

enum order_end {
    ORDER_PAD,  /* pad with the beginning of the order, up to the next multiple of R: the default */
    ORDER_CUT,  /* cut to the largest multiple of R: --drop-last */
    ORDER_EXACT /* neither pad nor cut, since an evaluation must count every sample once */
};

/* The shuffled order of an epoch. */
enum order_shuffle {
    SHUFFLE_NONE,        /* 0, 1, 2, ... */
    SHUFFLE_DISTRIBUTED, /* DistributedSampler's, from a generator seeded with seed + epoch */
    /* The order of DataLoader(shuffle=True) without a generator argument, after manual_seed(seed).
     * Each epoch takes two 64-bit numbers from the global generator, and the second seeds the one
     * that permutes. */
    SHUFFLE_RANDOM
};

struct order {
    int count;    /* samples of the data set: 0 .. RNG_PERMUTATION_LIMIT - 1 */
    int replicas; /* R: at least 1 */
    enum order_end end;
    int shuffle; /* enum order_shuffle */
    uint64_t seed;
};

/* ERR_USAGE: a number is out of range. The functions below need an order that passed this check. */
int order_check(const struct order *o);

/* How many positions an epoch has, and how many of them repeat a sample. They have 64 bits because
 * R may be far larger than the count. */
int64_t order_length(const struct order *o);
int64_t order_duplicates(const struct order *o);

/* index[p] = the data set index at position p of this epoch, for all order_length positions.
 * `index` needs room for order_length or o->count elements, whichever is larger. The same epoch
 * always gives the same order, as it does in PyTorch if a program forgets set_epoch. */
void order_epoch(const struct order *o, int epoch, int32_t *index);

/* Makes the list of one rank as DistributedSampler does. *out has *n indices, and the caller frees
 * it. With ORDER_EXACT the last ranks may get one sample fewer than the first. ERR_USAGE: `rank` is
 * not in 0 .. R-1. */
int sampler_indices(const struct order *o, int rank, int epoch, int32_t **out, int *n);

#endif
