/* Reads rng.txt, the rows of PyTorch's draws. */
#ifndef TESTS_GOLDEN_RNG_H
#define TESTS_GOLDEN_RNG_H

#include <inttypes.h>
#include <unistd.h>

#include "tests/golden/golden.h"

enum { DRAWS = 105, PERMUTATIONS = 21, INTEGERS = 56, LAYERS = 12, SCALED = 3, SAMPLERS = 120 };

/* 64-bit FNV-1a over 32-bit words, lowest byte first: what the hashes were made with. */
static inline uint64_t fnv_words(uint64_t h, const void *words, int n) {
    const uint32_t *w = words;
    for (int i = 0; i < 4 * n; i++) h = (h ^ (w[i / 4] >> 8 * (i % 4) & 255u)) * 0x100000001b3u;
    return h;
}
#define FNV_START 0xcbf29ce484222325u

/* Row i of a table as text. In the folder of a command, golden is a link. */
static inline const char *rng_row(const char *table, int i, char line[512]) {
    char key[64];
    snprintf(key, sizeof key, "%s_%d", table, i);
    return golden_fact(access("golden/rng.txt", R_OK) ? "tests/golden/rng.txt" : "golden/rng.txt", key, line);
}

/* DistributedSampler(range(n), replicas, rank): all ranks' lists, rank 0 first, hashed as one. */
struct sampler {
    int n, replicas, drop_last, shuffle, seed, epoch, per_rank;
    uint64_t hash;
};

static inline struct sampler rng_sampler(int i) {
    struct sampler s;
    char line[512];
    cr_assert_eq(sscanf(rng_row("sampler", i, line), "%d %d %d %d %d %d %d %" SCNx64, &s.n, &s.replicas, &s.drop_last,
                        &s.shuffle, &s.seed, &s.epoch, &s.per_rank, &s.hash), 8);
    return s;
}

#endif
