/* Who trains on which picture: the order of an epoch, and DistributedSampler's shares of it.
 *
 * An epoch's order is a permutation of the data set seeded with seed + epoch (or 0, 1, 2, ...),
 * made as long as a multiple of R replicas: padded with its own beginning, or cut. Replica r
 * takes the positions r, r+R, r+2R... Bit for bit torch.utils.data.DistributedSampler; so every
 * mode of Duet walks this one order, whether R stands for ranks or for virtual devices. All
 * functions are pure. */
#ifndef DATA_SAMPLER_H
#define DATA_SAMPLER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum order_end {
    ORDER_PAD,  /* repeat the order's beginning up to the next multiple of R: the default */
    ORDER_CUT,  /* --drop-last: cut to the multiple of R below */
    ORDER_EXACT /* neither: evaluation must count every sample once */
};

struct order {
    int count;    /* samples of the data set, 0 .. RNG_PERMUTATION_LIMIT - 1 */
    int replicas; /* R, 1 .. */
    enum order_end end;
    int shuffle;
    uint64_t seed;
};

/* ERR_USAGE if a number is out of range. The functions below take an order that passed. */
int order_check(const struct order *o);

/* Positions in an epoch, and how many of them repeat a sample. 64 bits: R may be far above the
 * count. */
int64_t order_length(const struct order *o);
int64_t order_duplicates(const struct order *o);

/* index[0 .. order_length) = the data set index at each position of this epoch. Forgetting to
 * pass a new epoch (set_epoch in PyTorch) repeats the order. `index` needs room for the larger
 * of length and o->count. */
void order_epoch(const struct order *o, int epoch, int32_t *index);

/* DistributedSampler's list of one rank: ERR_USAGE where the rank is none; *out is malloc'ed
 * (free it), *n its length. ORDER_EXACT leaves the last ranks a sample short. */
int sampler_indices(const struct order *o, int rank, int epoch, int32_t **out, int *n);

#ifdef __cplusplus
}
#endif
#endif
