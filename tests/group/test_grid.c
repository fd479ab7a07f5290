/* Tests the grid: every collective over 1 to 8 ranks in separate processes, with counts around the
 * boundaries of windows, pieces and mailboxes, every type, operation and root, in place and not,
 * synchronous and not, and in two groups at once. Windows and assumed caches are small here, so
 * that few elements reach every corner case. DUET_TEST_LONG=1 runs the whole grid; otherwise types,
 * roots and ways alternate. */
#include <sched.h>

#include "tests/group/shared.h"

static int is_long(void) {
    return getenv("DUET_TEST_LONG") != NULL;
}

/* Counts around what a window, its half, a piece for each of n ranks and a mailbox hold. */
static int counts_of(int n, size_t bytes, size_t *out) {
    size_t window = tiny.window / bytes,
           corners[] = {window / 2 / (size_t)n, tiny.mailbox / 4 / bytes, window / 2, window,
                        3 * window};
    int count = 0;
    out[count++] = 0;
    out[count++] = 1;
    out[count++] = 7;
    for (int c = 0; c < 5; c++)
        for (int d = -1; d <= 1; d++)
            out[count++] = corners[c] + (size_t)d;
    return count;
}

static int try_all(struct group *g, int turn) {
    int n = group_size(g), code = OK, calls = 0;
    for (int type = 0; type < ELEMENT_TYPES && !code; type++) {
        size_t counts[24];
        int m = counts_of(n, dtype_bytes((enum dtype)type), counts);
        for (int k = 0; k < WHATS; k++)
            for (int c = 0; c < m; c++)
                for (int root = 0; root < n && !code; root++)
                    for (int op = -1; op < ELEMENT_OPS && !code; op++) {
                        struct expected e = {
                            .what = whats[k],
                            .n = n,
                            .root = root,
                            .peer = (root + 1) % n,
                            .count = counts[c],
                            .stride = counts[c],
                            .how = {(enum dtype)type, op > 0 ? (enum element_op)op : ELEMENT_SUM},
                            .scale = op < 0 ? 1.0 / n : 1,
                            .seed = calls};
                        int same_size = has_parts(whats[k]) == has_stack(whats[k]);
                        if (op && !is_sum(whats[k])) continue;
                        if (op < 0 && !dtype_is_float(e.how.type)) continue;
                        if (root && !is_rooted(whats[k])) continue;
                        if (whats[k] == COLLECTIVE_SEND && n == 1) continue;
                        /* 61 is prime, so that over the turns all combinations occur */
                        if (++calls % (is_long() ? 1 : 61) != turn % 61 && !is_long()) continue;
                        code = try_call(g, &e, same_size && calls % 2, calls % 3 == 0);
                    }
    }
    return code;
}

static int grid_entry(void *context) {
    struct group *g;
    (void)context;
    int code = group_open_sized(&g, 60, &tiny);
    if (!code) code = try_all(g, group_size(g) * 7);
    return end_rank(g, NULL, code);
}

Test(grid, every_number_of_ranks, .timeout = 900) {
    for (int n = 1; n <= 8; n++)
        if (!test_short() || n == 2 || n == 3 || n == 5) run_well(n, grid_entry, NULL);
}

/* The sizes that programs use. */
static int large_entry(void *context) {
    struct group *g;
    (void)context;
    int code = group_open(&g, 60);
    for (int k = 0; k < WHATS && !code; k++) {
        struct expected e = {.what = whats[k],
                             .n = group_size(g),
                             .root = 1,
                             .peer = 2,
                             .count = 200001,
                             .stride = 200001,
                             .how = {k % 2 ? DTYPE_F32 : DTYPE_BF16, ELEMENT_SUM},
                             .scale = 1,
                             .seed = k};
        code = try_call(g, &e, 0, 0);
    }
    return end_rank(g, NULL, code);
}

Test(grid, longer_than_every_window, .timeout = 60) {
    run_well(3, large_entry, NULL);
}

/* ---- ranks that mpirun or taskset has bound ---- */

/* Rank 1 may use one core, the others all: all must choose the same algorithm for each length. */
static int bound_entry(void *context) {
    cpu_set_t all, one;
    struct group *g, *pair = NULL;
    int code = OK, first = 0;
    (void)context;
    sched_getaffinity(0, sizeof all, &all);
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    if (!strcmp(getenv("RANK"), "1")) sched_setaffinity(0, sizeof one, &one);
    code = group_open(&g, 5);
    if (!code) code = group_new(&pair, g, (int[]){1, 2}, 2, 0);
    for (size_t count = 64; count <= 1 << 17 && !code; count *= 2)
        for (int k = 0; k < 2 && !code; k++) {
            struct group *which = k ? pair : g;
            struct expected e = {.what = COLLECTIVE_ALL_REDUCE,
                                 .n = k ? 2 : 3,
                                 .count = count,
                                 .stride = count,
                                 .scale = 1};
            if (which) code = try_call(which, &e, 0, 0);
        }
    group_close(pair);
    return end_rank(g, NULL, code);
}

Test(grid, ranks_bound_to_fewer_cores_choose_alike, .timeout = 60) {
    run_well(3, bound_entry, NULL);
}

/* ---- two groups at once ---- */

/* Even and odd ranks are a group each, and so are all: calls of all three are under way at the same
 * time, begun in another order on each rank. */
static int two_groups_entry(void *context) {
    struct group *all, *halves[2] = {0};
    struct work *work[3] = {0};
    float sums[3][1000];
    (void)context;
    int code = group_open_sized(&all, 60, &tiny), n = all ? group_size(all) : 0;
    for (int h = 0; h < 2 && !code; h++) {
        int ranks[8], m = 0;
        for (int r = h; r < n; r += 2)
            ranks[m++] = r;
        code = group_new(&halves[h], all, ranks, m, 0);
    }
    if (code) return end_rank(all, NULL, code);
    int rank = group_rank(all);
    struct group *mine = halves[rank % 2], *groups[3] = {all, mine, mine};
    if (halves[1 - rank % 2] || group_rank(mine) != rank / 2)
        code = fail(ERR_CHECK, "the group of rank %d", rank);
    for (int round = 0; round < 20 && !code; round++) {
        for (int k = 0; k < 3 && !code; k++) {
            int which = (k + rank) % 3; /* two of one group keep their order */
            if (which == 2 && !work[1])
                which = 1;
            else if (work[which])
                which = which == 1 ? 2 : (work[1] ? 2 : 1);
            for (int i = 0; i < 1000; i++)
                sums[which][i] = (float)(rank + round + which);
            struct group_call call = {.what = COLLECTIVE_ALL_REDUCE,
                                      .count = 1000,
                                      .input = sums[which],
                                      .output = sums[which]};
            code = group_run(groups[which], &call, &work[which]);
        }
        for (int k = 0; k < 3; k++) {
            float want = 0;
            for (int r = k ? rank % 2 : 0; r < n; r += k ? 2 : 1)
                want += (float)(r + round + k);
            if (work[k] && !code) code = work_wait(work[k]);
            work_free(work[k]);
            work[k] = NULL;
            for (int i = 0; i < 1000 && !code; i++)
                if (sums[k][i] != want)
                    code = fail(ERR_CHECK, "round %d, group %d, element %d: %g, not %g", round, k,
                                i, (double)sums[k][i], (double)want);
        }
    }
    group_close(all); /* a group of some ranks outlives the group of all */
    struct expected last = {.what = COLLECTIVE_ALL_GATHER,
                            .n = group_size(mine),
                            .count = 99,
                            .stride = 99,
                            .scale = 1};
    if (!code) code = try_call(mine, &last, 0, 0);
    return end_rank(mine, NULL, code);
}

Test(grid, two_groups_at_once, .timeout = 60) {
    run_well(5, two_groups_entry, NULL);
    run_well(2, two_groups_entry, NULL);
}
