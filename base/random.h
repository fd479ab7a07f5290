/* Random numbers as PyTorch draws them on the CPU, bit for bit: the same seed gives the same
 * weights, the same shuffles. One engine (MT19937) and the rules by which PyTorch turns its
 * 32-bit words into floats.
 *
 * An rng is a plain value: copy it to save its place, give each thread its own. None of these
 * functions fails or allocates. Source: the MT19937 paper (Matsumoto, Nishimura 1998) and
 * PyTorch observed as a black box (official 2.15 package on AVX2 and AVX-512);
 * tests/golden/make_rng.py repeats the observation. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rng {
    uint32_t state[624];
    int next;       /* index of the next unused word; 624: the state must be renewed first */
    int has_normal; /* the small-tensor path of rng_normal makes two values and keeps one here */
    double normal;
};

/* From there randperm goes by another rule in PyTorch, which this file does not follow. */
enum { RNG_PERMUTATION_LIMIT = 214748364 };

/* torch.manual_seed: only the low 32 bits of the seed count; a kept normal is dropped. */
void rng_seed(struct rng *r, uint64_t seed);

/* One word of the engine; two words, the first of them the high one. */
uint32_t rng_u32(struct rng *r);
uint64_t rng_u64(struct rng *r);

/* A double in [0, 1): the low 53 bits of rng_u64. */
double rng_double(struct rng *r);

/* x[0..count) uniform in [from, to), one word an element, as Tensor.uniform_ on float32. */
void rng_uniform(struct rng *r, float *x, size_t count, double from, double to);

/* x[0..count) normal, as Tensor.normal_ on a contiguous float32 tensor of `count` elements. The
 * count is part of the recipe: below 16 PyTorch works in double with a kept second value, from
 * 16 on in float by blocks. */
void rng_normal(struct rng *r, float *x, size_t count, double mean, double std);

/* x[i] = 1 with probability p, else 0, as Tensor.bernoulli_(p): one double an element. */
void rng_bernoulli(struct rng *r, uint8_t *x, size_t count, double p);

/* order[0..n) = torch.randperm(n), n < RNG_PERMUTATION_LIMIT. */
void rng_permutation(struct rng *r, int32_t *order, int n);

#ifdef __cplusplus
}
#endif
#endif
