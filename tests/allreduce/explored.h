/* The calls that the explorer walks through: collectives, numbers of elements, values, and the
 * right results. */
#ifndef TESTS_ALLREDUCE_EXPLORED_H
#define TESTS_ALLREDUCE_EXPLORED_H

#include <stdint.h>

#include "group/plans/windows.h"
#include "tests/allreduce/kinds.h"

enum { RANKS = 4, CALLS = 3, COUNT = 6, HALF = 12, EVENTS = 192 };

static const struct kind algorithms[] = {BY(NAIVE), BY(ONESHOT), BY(DIRECT),
                                         BY(RING),  BY(TREE),    BY(FUSED)};
enum { ALGORITHMS = sizeof algorithms / sizeof *algorithms };

/* The collectives that only copy have plans as well. */
static const struct kind copies[] = {IT(ALL_GATHER), IT(BROADCAST)};
enum { COPIES = sizeof copies / sizeof *copies };

/* So have the collectives of process groups, which go through windows: INPUT and OUTPUT are not
 * part of a state, since INPUT never changes and what is written to OUTPUT is judged at once. */
static const struct kind windows[] = {IT(BROADCAST),      IT(REDUCE), IT(ALL_GATHER),
                                      IT(REDUCE_SCATTER), IT(GATHER), IT(SCATTER),
                                      IT(ALL_TO_ALL),     IT(SEND)};
enum { WINDOWS = sizeof windows / sizeof *windows, WIDE = 32, MAILBOX = 4 };

/* Integers below 2^20 that look random, so that a sum is wrong where a term is missing, taken twice
 * or taken from another call. */
static inline float input(int call, int rank, int i) {
    uint64_t x = (uint64_t)((call * RANKS + rank) * WIDE + i + 1) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return (float)(x >> 44);
}

/* Cuts the data into 1, 2 or 3 slices or rounds. */
static inline struct plan_config tiny_config(int slices) {
    size_t slice = (size_t)(COUNT / slices);
    struct plan_config config = {
        .align = 1, .slice = slice, .pipeline_from = 0, .slices = slices, .scratch = 2 * slice};
    return config;
}

static inline int build(struct plan *plan, struct kind kind, int n, int rank,
                        const struct plan_config *config) {
    if (kind.what == COLLECTIVE_ALL_GATHER) return plan_build_all_gather(plan, n, rank, COUNT, 1);
    if (kind.what == COLLECTIVE_BROADCAST) return plan_build_broadcast(plan, n, rank, COUNT);
    return plan_build(plan, kind.algorithm, n, rank, COUNT, config);
}

/* Elements that go from one rank to one other where blocks differ in length: none, one
 * piece or several. */
static inline size_t uneven_size(enum collective what, int call, int from, int to) {
    static const size_t blocks[] = {4, 0, 2, 5}, parts[] = {2, 0, 3, 1};
    switch (what) {
    case COLLECTIVE_GATHER:
    case COLLECTIVE_ALL_GATHER: return blocks[(from + call) % 4];
    case COLLECTIVE_ALL_TO_ALL: return parts[(from + 2 * to + call) % 4];
    default: return parts[(to + call) % 4];
    }
}

/* Where the block for `to` begins in the INPUT of `from`. */
static inline int uneven_at(enum collective what, int call, int from, int to) {
    size_t at = 0;
    if (what == COLLECTIVE_GATHER || what == COLLECTIVE_ALL_GATHER) return 0;
    for (int r = 0; r < to; r++)
        at += uneven_size(what, call, from, r);
    return (int)at;
}

/* Values of `slices` for calls that are cut otherwise: blocks of different lengths; an eager call,
 * through two slots in turn. */
enum { UNEVEN = 0, SLOTS = -1 };

/* A window of COUNT elements has `slices` pieces, a message two more than a mailbox holds. */
static inline int build_windowed(struct plan *plan, struct kind kind, int n, int rank, int root,
                                 int slices, int call) {
    enum collective what = kind.what;
    struct window_request q = {.what = what,
                               .algorithm = kind.algorithm,
                               .n = n,
                               .rank = rank,
                               .root = root,
                               .peer = (root + 1) % n,
                               .window = what == COLLECTIVE_SEND ? MAILBOX : COUNT,
                               .config = tiny_config(slices > 0 ? slices : 1)};
    size_t sizes[RANKS * RANKS];
    int parts = what == COLLECTIVE_SCATTER || what == COLLECTIVE_ALL_TO_ALL ||
                what == COLLECTIVE_REDUCE_SCATTER;
    size_t piece = parts ? COUNT / 2 / (size_t)n : COUNT / 2;
    q.count = what == COLLECTIVE_ALL_REDUCE ? COUNT
              : what == COLLECTIVE_SEND     ? MAILBOX + 2
                                            : piece * (size_t)slices;
    if (slices == UNEVEN) q.sizes = sizes, q.count = 0;
    if (slices == SLOTS) q.slots = 1, q.turn = 1, q.window = HALF, q.count = HALF / RANKS;
    for (int i = 0; i < n * n; i++)
        sizes[i] = uneven_size(what, call, i / n, i % n);
    q.stride = q.count;
    q.first = (size_t)call * q.count;
    return plan_build_window(plan, &q);
}

/* The same where blocks differ in length. */
static inline float uneven_output(const struct plan *plan, int root, int call, int i) {
    enum collective what = plan->what;
    int from = 0, me = plan->rank;
    float sum = 0;
    if (what == COLLECTIVE_SCATTER) return input(call, root, uneven_at(what, call, root, me) + i);
    for (int r = 0; r < plan->n && what == COLLECTIVE_REDUCE_SCATTER; r++)
        sum += input(call, r, uneven_at(what, call, r, me) + i);
    if (what == COLLECTIVE_REDUCE_SCATTER) return sum;
    while (i >= (int)uneven_size(what, call, from, me))
        i -= (int)uneven_size(what, call, from++, me);
    return input(call, from, uneven_at(what, call, from, me) + i);
}

/* What OUTPUT of the rank must hold in element i. */
static inline float output(const struct plan *plan, int root, int call, int i) {
    int count = (int)plan->count, mine = plan->rank * count + i;
    float sum = 0;
    if (!count) return uneven_output(plan, root, call, i);
    switch (plan->what) {
    case COLLECTIVE_BROADCAST:
    case COLLECTIVE_SEND: return input(call, root, i);
    case COLLECTIVE_GATHER:
    case COLLECTIVE_ALL_GATHER: return input(call, i / count, i % count);
    case COLLECTIVE_SCATTER: return input(call, root, mine);
    case COLLECTIVE_ALL_TO_ALL: return input(call, i / count, plan->rank * count + i % count);
    default: break;
    }
    for (int r = 0; r < plan->n; r++)
        sum += input(call, r, plan->what == COLLECTIVE_REDUCE_SCATTER ? mine : i);
    return sum;
}

#endif
