/* A cell of the grid on which executors are tested: a count, an algorithm and an input. Its judges
 * are the reference executor and a sum in double. */
#ifndef TESTS_ALLREDUCE_CELL_H
#define TESTS_ALLREDUCE_CELL_H

#include "tests/allreduce/shared.h"

/* u = 2^-24: the relative rounding of one fp32 operation. */
static const double unit = 1.0 / (1 << 24);
static const float guard = 12345.678f; /* surrounds the data and must not change */

/* Even 1000 elements run in many slices. */
static inline struct plan_config small_slices(int n) {
    struct plan_config config = {
        .align = 1, .slice = 48, .pipeline_from = 0, .slices = 3, .scratch = 256 + (size_t)n};
    return config;
}

/* ---- the grid ---- */

struct cell {
    enum allreduce_algorithm algorithm;
    size_t count;
    int integers, seed;
    float scale;
};

/* Rank 0 judges its own result; same_everywhere then compares the ranks with each other. */
static inline int judge(const struct rank *r, const struct cell *cell,
                        const struct plan_config *config, const float *got) {
    size_t count = cell->count;
    float *memory = malloc((size_t)r->n * count * sizeof(float) + 1), *data[MAX_DEVICES];
    int code = memory ? OK : fail(ERR_MEMORY, "test: no memory");
    for (int k = 0; memory && k < r->n; k++) {
        data[k] = memory + (size_t)k * count;
        for (size_t i = 0; i < count; i++)
            data[k][i] = input(cell->seed, k, i, cell->integers);
    }
    if (!code) code = reference_allreduce(cell->algorithm, r->n, count, config, data, cell->scale);
    for (size_t i = 0; !code && i < count; i++) {
        double sum = 0, size = 0;
        for (int k = 0; k < r->n; k++) {
            double term = (double)input(cell->seed, k, i, cell->integers) * cell->scale;
            sum += term;
            size += fabs(term);
        }
        /* n - 1 additions and one rounding of the scaled term: g_n sum|x|, g_n = n u / (1 - n
         * u). */
        double bound = r->n * unit / (1 - r->n * unit) * size;
        if (memcmp(&got[i], &data[0][i], sizeof *got))
            code = fail(ERR_CHECK, "%s, %zu elements: element %zu is %.9g, the reference says %.9g",
                        allreduce_algorithm_name(cell->algorithm), count, i, got[i], data[0][i]);
        else if (!(fabs(got[i] - sum) <= bound) ||
                 (cell->integers && cell->scale == 1 && got[i] != sum))
            code = fail(ERR_CHECK, "%s, %zu elements: element %zu is %.9g, not %.17g",
                        allreduce_algorithm_name(cell->algorithm), count, i, got[i], sum);
    }
    free(memory);
    return code;
}

static inline uint64_t hash_of(const float *x, size_t count) {
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        h = (h ^ bits) * 1099511628211u;
    }
    return h;
}

/* Equal on all ranks, or an error naming a rank. */
static inline int same_everywhere(const struct rank *r, uint64_t hash, const char *what,
                                  size_t count) {
    uint64_t all[MAX_DEVICES];
    CHECK(comm_gather(r->comm, &hash, sizeof hash, all));
    for (int k = 0; k < r->n; k++)
        if (all[k] != hash)
            return fail(ERR_CHECK, "%s, %zu elements: ranks %d and %d differ", what, count, r->rank,
                        k);
    return OK;
}

#endif
