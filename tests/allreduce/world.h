/* Ranks that make calls with the spin kernel's source on the host: their memory, plans and
 * parameters, and the check of their results. The test runs them, in an order that it chooses. */
#ifndef TESTS_ALLREDUCE_WORLD_H
#define TESTS_ALLREDUCE_WORLD_H

#include "tests/allreduce/cell.h"

#include "allreduce/cuda/spin.h"

/* Slices that end within a granule; scratch that every slice reuses; shorter last slices; odd
 * alignments. */
static const struct plan_config configs[] = {
    {.align = 16,
     .slice = 64 * 1024,
     .pipeline_from = 256 * 1024,
     .slices = 4,
     .scratch = 128 * 1024},
    {.align = 1, .slice = 1500, .pipeline_from = 0, .slices = 3, .scratch = 4111},
    {.align = 16, .slice = 5000, .pipeline_from = 0, .slices = 2, .scratch = 9001},
};
enum { CONFIGS = 3 };

enum { MOST_RANKS = 5, CALLS = 4 };

struct world {
    int n;
    size_t count, offset;
    uint32_t channels;
    struct plan plans[CALLS][MOST_RANKS];
    struct spin_rank ranks[MOST_RANKS];
    struct spin_call calls[CALLS];
    float *data[MOST_RANKS];
    uint64_t seed;
};

static inline uint32_t draw(struct world *w) {
    w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->seed >> 33);
}

/* What is added to a rank's element before a call, in front of the call's sum. */
static inline float term(int call, int rank, size_t i) {
    return input(call + 10, rank, i, 0);
}

static inline float *new_floats(size_t count) {
    float *x = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
    cr_assert_not_null(x);
    for (size_t i = 0; i < count; i++)
        x[i] = 0;
    return x;
}

static inline struct world *new_world(const enum allreduce_algorithm *by, int n, size_t count,
                                      size_t offset, uint32_t channels,
                                      const struct plan_config *config) {
    struct world *w = calloc(1, sizeof *w);
    uint64_t half = (config->scratch + 31) / 16 * 16;
    cr_assert_not_null(w);
    *w = (struct world){.n = n,
                        .count = count,
                        .offset = offset,
                        .channels = channels,
                        .seed = count * 31 + (size_t)n};
    for (int r = 0; r < n; r++) {
        w->data[r] = new_floats(count + offset);
        void *flags = aligned_alloc(128, cuda_flags_bytes(n));
        cr_assert_not_null(flags);
        memset(flags, 0, cuda_flags_bytes(n));
        float *scratch = new_floats(2 * half);
        for (int other = 0; other < n; other++) {
            w->ranks[other].flags[r] = flags;
            w->ranks[other].scratch[r] = scratch;
        }
        w->ranks[r].n = n;
        w->ranks[r].rank = r;
        w->ranks[r].half = half;
        for (int call = 0; call < CALLS; call++)
            cr_assert_eq(plan_build(&w->plans[call][r], by[call], n, r, count, config), OK, "%s",
                         error_message());
    }
    for (int call = 0; call < CALLS; call++) {
        struct spin_call *c = &w->calls[call];
        *c = (struct spin_call){
            .offset = offset, .channels = channels, .scale = call % 2 ? 0.5f : 1};
        memcpy(c->data, w->data, sizeof w->data);
        spin_align(c, n, w->ranks[0].scratch, half);
    }
    return w;
}

static inline void free_world(struct world *w) {
    for (int r = 0; r < w->n; r++) {
        free(w->ranks[0].flags[r]);
        free(w->ranks[0].scratch[r]);
        free(w->data[r]);
        for (int call = 0; call < CALLS; call++)
            plan_free(&w->plans[call][r]);
    }
    free(w);
}

static inline void judge_world(struct world *w, const enum allreduce_algorithm *by,
                               const struct plan_config *config) {
    float *want[MOST_RANKS];
    for (int r = 0; r < w->n; r++)
        want[r] = new_floats(w->count);
    for (int call = 0; call < CALLS; call++) {
        for (int r = 0; r < w->n; r++)
            for (size_t i = 0; i < w->count; i++)
                want[r][i] += term(call, r, i);
        cr_assert_eq(
            reference_allreduce(by[call], w->n, w->count, config, want, call % 2 ? 0.5f : 1), OK,
            "%s", error_message());
    }
    for (int r = 0; r < w->n; r++) {
        for (size_t i = 0; i < w->count; i++)
            cr_assert(
                !memcmp(&want[r][i], &w->data[r][w->offset + i], sizeof(float)),
                "%s, %d ranks, %zu elements, %u channels: rank %d, element %zu: %.9g, not %.9g",
                allreduce_algorithm_name(by[0]), w->n, w->count, w->channels, r, i,
                (double)w->data[r][w->offset + i], (double)want[r][i]);
        free(want[r]);
    }
}

#endif
