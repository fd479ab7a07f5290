/* The expected results of the collectives of process groups, computed without any plan. The test of
 * the plans (test_windows.c) and the tests with real ranks (tests/group/) use them. */
#ifndef TESTS_GROUP_EXPECTED_H
#define TESTS_GROUP_EXPECTED_H

#include <string.h>

#include "tests/allreduce/reference.h"
#include "group/plans/windows.h"
#include "base/fold.h"

struct expected {
    enum collective what;
    int n, root, peer; /* peer receives a message that root sends */
    size_t count, stride;
    struct arithmetic how;
    double scale;
    int seed; /* of the inputs */
};

static inline int has_parts(enum collective what) {
    return what == COLLECTIVE_REDUCE_SCATTER || what == COLLECTIVE_SCATTER ||
           what == COLLECTIVE_ALL_TO_ALL;
}
static inline int has_stack(enum collective what) {
    return what == COLLECTIVE_ALL_GATHER || what == COLLECTIVE_GATHER ||
           what == COLLECTIVE_ALL_TO_ALL;
}
static inline int is_rooted(enum collective what) {
    return what == COLLECTIVE_BROADCAST || what == COLLECTIVE_REDUCE || what == COLLECTIVE_GATHER ||
           what == COLLECTIVE_SCATTER || what == COLLECTIVE_SEND;
}
static inline int is_sum(enum collective what) {
    return what == COLLECTIVE_ALL_REDUCE || what == COLLECTIVE_REDUCE ||
           what == COLLECTIVE_REDUCE_SCATTER;
}

/* Elements of INPUT and OUTPUT. */
static inline size_t expected_input(const struct expected *e) {
    return has_parts(e->what) ? (size_t)(e->n - 1) * e->stride + e->count : e->count;
}
static inline size_t expected_output(const struct expected *e) {
    return has_stack(e->what) ? (size_t)(e->n - 1) * e->stride + e->count : e->count;
}

/* Element `at` of a rank's INPUT: small integers and halves of them, exact in every type;
 * products stay small. */
static inline void expected_was(const struct expected *e, char *to, int rank, size_t at) {
    enum dtype type = e->how.type;
    int x = (int)((at * 7 + (size_t)rank * 5 + (size_t)e->seed * 11) % 6) - 2;
    float f = (float)x * 0.5f;
    double d = f;
    int64_t l = x;
    uint16_t h = type == DTYPE_F16 ? f16_of_float(f) : bf16_of_float(f);
    const void *from = type == DTYPE_F32                         ? (void *)&f
                       : type == DTYPE_F64                       ? (void *)&d
                       : type == DTYPE_F16 || type == DTYPE_BF16 ? (void *)&h
                                                                 : (void *)&l;
    memcpy(to, from, dtype_bytes(type));
}

static inline void expected_fill(const struct expected *e, char *input, int rank) {
    size_t bytes = dtype_bytes(e->how.type);
    for (size_t i = 0; i < expected_input(e); i++)
        expected_was(e, input + i * bytes, rank, i);
}

/* Element i of the sum of all ranks' blocks b. */
static inline void expected_sum(const struct expected *e, char *to, int b, size_t i) {
    char term[MAX_DEVICES][WIDEST];
    for (int r = 0; r < e->n; r++) {
        expected_was(e, term[r], r, (size_t)b * e->stride + i);
        element_scale(e->how.type, term[r], term[r], e->scale);
    }
    for (struct fold f = fold_begin(e->n); fold_next(&f);)
        element_combine(e->how, term[f.to], term[f.to], term[f.from]);
    memcpy(to, term[0], dtype_bytes(e->how.type));
}

/* Element i of block b of the rank's OUTPUT; returns 0 if the call leaves it alone. */
static inline int expected_element(const struct expected *e, char *to, int rank, int b, size_t i) {
    int root = e->root;
    size_t mine = (size_t)rank * e->stride + i;
    switch ((int)e->what) {
    case COLLECTIVE_BROADCAST: return rank != root && (expected_was(e, to, root, i), 1);
    case COLLECTIVE_SEND: return rank == e->peer && (expected_was(e, to, root, i), 1);
    case COLLECTIVE_SCATTER: expected_was(e, to, root, mine); return 1;
    case COLLECTIVE_GATHER: return rank == root && (expected_was(e, to, b, i), 1);
    case COLLECTIVE_ALL_GATHER: expected_was(e, to, b, i); return 1;
    case COLLECTIVE_ALL_TO_ALL: expected_was(e, to, b, mine); return 1;
    case COLLECTIVE_REDUCE_SCATTER: expected_sum(e, to, rank, i); return 1;
    case COLLECTIVE_REDUCE: return rank == root && (expected_sum(e, to, 0, i), 1);
    default: expected_sum(e, to, 0, i); return 1;
    }
}

/* The first element of the rank's OUTPUT that is wrong, counted over all blocks; -1: none.
 * `untouched`: values of elements that the call leaves alone; NULL: the rank's input. */
static inline long expected_wrong(const struct expected *e, const char *output, int rank,
                                  const char *untouched) {
    size_t bytes = dtype_bytes(e->how.type);
    for (int b = 0; b < (has_stack(e->what) ? e->n : 1); b++)
        for (size_t i = 0; i < e->count; i++) {
            char want[WIDEST];
            size_t at = (size_t)b * e->stride + i;
            if (!expected_element(e, want, rank, b, i)) {
                if (untouched)
                    memcpy(want, untouched, bytes);
                else
                    expected_was(e, want, rank, at);
            }
            if (memcmp(output + at * bytes, want, bytes)) return (long)at;
        }
    return -1;
}

#endif
