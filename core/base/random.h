/* Random numbers as PyTorch draws them on the CPU, bit for bit: the same seed gives the same
 * weights and the same shuffles. This file has the engine (MT19937) and PyTorch's rules for
 * converting its 32-bit words to floats.
 *
 * An rng is a plain value: copy it to save its position, and give each thread its own. No function
 * here fails or allocates. Sources: the MT19937 paper (Matsumoto, Nishimura 1998), and PyTorch
 * observed as a black box (the official 2.15 package on AVX2 and AVX-512); tests/golden/make_rng.py
 * repeats the observation. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint32_t state[624];
    int next;       /* index of the next unused word; 624: all are used */
    int has_normal; /* 1: `normal` holds a value that the next small rng_normal returns */
    double normal;  /* for fewer than 16 values rng_normal draws pairs and keeps the second */
};

/* From this length on, torch.randperm follows another rule, which this file does not implement. */
enum { RNG_PERMUTATION_LIMIT = 214748364 };

/* torch.manual_seed. Only the low 32 bits of the seed count. A kept normal value is dropped. */
void rng_seed(struct rng *r, uint64_t seed);

uint32_t rng_u32(struct rng *r); /* one word of the engine */
uint64_t rng_u64(struct rng *r); /* two words; the first is the high half */

/* A double in [0, 1): the low 53 bits of rng_u64. */
double rng_double(struct rng *r);

/* x[0..count) = uniform in [from, to), like Tensor.uniform_ on float32, one word per element. */
void rng_uniform(struct rng *r, float *x, size_t count, double from, double to);

/* x[0..count) = normal, like Tensor.normal_ on a contiguous float32 tensor of `count` elements. The
 * values depend on the count: for fewer than 16 elements PyTorch computes pairs in double and keeps
 * the second value for later; from 16 on it computes blocks of 16 in float. */
void rng_normal(struct rng *r, float *x, size_t count, double mean, double std);

/* Initial values of torch.nn.Linear and torch.nn.Conv2d, each weight before its bias. An output is
 * a sum of fan_in products (in / groups * kh * kw of a convolution), so weights shrink like
 * 1 / sqrt(fan_in), which keeps the spread of activations from growing layer by layer. */
void rng_weight(struct rng *r, float *x, size_t count, int fan_in);
void rng_bias(struct rng *r, float *x, size_t count, int fan_in);

/* From this range on, torch.randint takes two words per element. */
enum { RNG_WIDE_RANGE = 1 << 28 };

/* One element of torch.randint(low, low + range), for range >= 1: the remainder of a word, or of
 * two words, by the range. The type of PyTorch's tensor, int32 or int64, makes no difference. */
int64_t rng_integer(struct rng *r, int64_t low, uint64_t range);

/* x[0..count) = torch.randint(0, range, (count,)), for range >= 1. */
void rng_integers(struct rng *r, int32_t *x, size_t count, int32_t range);

/* order[0..n) = torch.randperm(n), for n < RNG_PERMUTATION_LIMIT. */
void rng_permutation(struct rng *r, int32_t *order, int n);

/* The engine of a program (duet/train.h). */
struct duet_rng {
    struct rng engine;
};

#endif
