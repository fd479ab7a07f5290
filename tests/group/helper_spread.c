/* A rank of a job over several machines, for tests/check_machines.sh. It checks the calls of a
 * process group there. Its arguments select the part:
 *
 *     calls       every collective, type and operation, in place and not, synchronous and not; sums
 *                 of any floats in fold order; blocks of different lengths; sub-groups; tags
 *     drawn       twenty randomly drawn programs of calls, in three groups
 *     late        the last rank misses a barrier, which names it
 *     sizes       a rank expects more from another than it sends
 *     absent      the last rank joins only after 15 s
 *     forever     all_reduce after all_reduce, until something happens to a rank */
#include <time.h>

#include "comm/environment.h"
#include "tests/group/shared.h"

/* average: only of sums of floats. */
static struct expected expected_of(enum collective what, struct arithmetic how, int n, int root,
                                   int peer, size_t count, int average, int seed) {
    int averages = average && is_sum(what) && !how.op && dtype_is_float(how.type);
    return (struct expected){what, n, root, peer, count, count, how, averages ? 1.0 / n : 1, seed};
}

static int try_collectives(struct group *g) {
    static const size_t counts[] = {0, 1, 7, 1023, 1025, 70001};
    int n = group_size(g), turn = 0, code = OK;
    for (int k = 0; k < WHATS && !code; k++)
        for (int type = 0; type < ELEMENT_TYPES && !code; type++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts && !code; c++, turn++) {
                int op = is_sum(whats[k]) ? turn % ELEMENT_OPS : 0;
                struct arithmetic how = {(enum dtype)type, (enum element_op)op};
                struct expected e = expected_of(whats[k], how, n, turn % n, (turn + 1) % n,
                                                counts[c], turn % 2, turn);
                int same_size = has_parts(whats[k]) == has_stack(whats[k]);
                code = try_call(g, &e, same_size && turn % 2, turn % 3 == 0);
            }
    return code;
}

/* Floats of all sizes, whose sum depends on the order. */
static float any_float(int rank, size_t at) {
    uint32_t x = (uint32_t)(at * 2654435761u + (size_t)rank * 40503u + 12345);
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13;
    return (float)((int)(x & 0xffffff) - (1 << 23)) * (float)(1 << (x >> 28));
}

static int try_fold(struct group *g, size_t count) {
    int n = group_size(g), me = group_rank(g);
    float *data = malloc(count * sizeof *data), terms[MAX_DEVICES];
    for (size_t i = 0; i < count; i++)
        data[i] = any_float(me, i);
    struct group_call call = {
        .what = COLLECTIVE_ALL_REDUCE, .count = count, .input = data, .output = data};
    int code = group_run(g, &call, NULL);
    for (size_t i = 0; i < count && !code; i++) {
        for (int r = 0; r < n; r++)
            terms[r] = any_float(r, i);
        for (struct fold f = fold_begin(n); fold_next(&f);)
            terms[f.to] += terms[f.from];
        if (data[i] != terms[0])
            code =
                fail(ERR_CHECK, "sum of %zu: element %zu: %a, not %a", count, i, data[i], terms[0]);
    }
    free(data);
    return code;
}

/* Rank a gives rank b a + 2 b + 1 elements. */
static int try_uneven(struct group *g, int wrong) {
    int n = group_size(g), me = group_rank(g);
    size_t gives[MAX_DEVICES], gets[MAX_DEVICES], in = 0, out = 0;
    int32_t input[4096], output[4096];
    for (int r = 0; r < n; r++) {
        gives[r] = (size_t)(me + 2 * r + 1);
        gets[r] = (size_t)(r + 2 * me + 1 + (wrong && me == n - 1));
        for (size_t i = 0; i < gives[r]; i++)
            input[in++] = 1000 * me + 100 * r + (int32_t)i;
    }
    struct group_call call = {.what = COLLECTIVE_ALL_TO_ALL,
                              .how = {DTYPE_I32, ELEMENT_SUM},
                              .input = input,
                              .output = output,
                              .input_sizes = gives,
                              .output_sizes = gets,
                              .uneven = 1};
    CHECK(group_run(g, &call, NULL));
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < gets[r]; i++, out++)
            if (output[out] != 1000 * r + 100 * me + (int32_t)i)
                return fail(ERR_CHECK, "uneven: from rank %d element %zu: %d", r, i, output[out]);
    return OK;
}

/* Rank 0 receives two messages of each other rank: first those of tag 9, from anybody, then those
 * of tag 4, which were sent before. */
static int try_tags(struct group *g) {
    int n = group_size(g), seen = 0;
    int32_t word = group_rank(g);
    struct group_call call = {.what = COLLECTIVE_SEND,
                              .count = 1,
                              .how = {DTYPE_I32, ELEMENT_SUM},
                              .input = &word,
                              .output = &word};
    for (int turn = 0; turn < 2; turn++) {
        call.tag = (group_rank(g) == 0) == turn ? 4 : 9;
        if (group_rank(g)) CHECK(group_run(g, &call, NULL));
        for (int r = 1; r < n && group_rank(g) == 0; r++) {
            struct work *work = NULL;
            call.receive = 1;
            call.peer = turn ? r : ANY_SOURCE;
            CHECK(group_run(g, &call, &work));
            int code = work_wait(work), source = work_source(work);
            work_free(work);
            CHECK(code);
            if (word != source) return fail(ERR_CHECK, "rank %d says %d", source, word);
            seen += source;
        }
    }
    return !group_rank(g) && seen != n * (n - 1) ? fail(ERR_CHECK, "messages: %d", seen) : OK;
}

static int try_sub_group(struct group *world) {
    struct group *g;
    int n = group_size(world), list[] = {n - 1, 0};
    CHECK(group_new(&g, world, list, 2, 0));
    int code = g ? try_fold(g, 5000) : OK;
    if (g && !code && group_rank(g) != (group_rank(world) == 0)) code = fail(ERR_CHECK, "order");
    group_close(g);
    return code;
}

/* All ranks draw the same numbers. */
static int drawn(uint32_t *state, int below) {
    *state = *state * 1664525u + 1013904223u;
    return (int)(*state >> 8) % below;
}

/* Fifty calls. If this rank is not a member of the group, it draws the call and skips it, so
 * ranks are in calls of different groups at a time. */
static int try_drawn(struct group *const groups[3], const int sizes[3], int seed) {
    uint32_t state = (uint32_t)seed;
    for (int call = 0; call < 50; call++) {
        int which = drawn(&state, 3), n = sizes[which], most = drawn(&state, 4) ? 300 : 70000;
        enum collective what = whats[drawn(&state, WHATS)];
        struct arithmetic how = {(enum dtype)drawn(&state, ELEMENT_TYPES), ELEMENT_SUM};
        if (is_sum(what)) how.op = (enum element_op)drawn(&state, ELEMENT_OPS);
        int root = drawn(&state, n), peer = (root + 1 + drawn(&state, n - 1)) % n,
            count = drawn(&state, most), average = drawn(&state, 2), seed_of = drawn(&state, 1000);
        int same_size = has_parts(what) == has_stack(what);
        struct expected e = expected_of(what, how, n, root, peer, (size_t)count, average, seed_of);
        int in_place = same_size && drawn(&state, 2), async = drawn(&state, 2);
        if (groups[which]) CHECK(try_call(groups[which], &e, in_place, async));
    }
    return OK;
}

static int try_programs(struct group *world) {
    int n = group_size(world), code = OK, list[MAX_DEVICES], sizes[] = {n, n, 2};
    struct group *groups[3] = {world};
    for (int r = 0; r < n; r++)
        list[r] = n - 1 - r;
    CHECK(group_new(&groups[1], world, list, n, 0));
    CHECK(group_new(&groups[2], world, (int[]){n - 1, 0}, 2, 0));
    for (int seed = 1; seed <= 20 && !code; seed++)
        code = try_drawn(groups, sizes, seed);
    group_close(groups[2]);
    group_close(groups[1]);
    return code;
}

static int try_calls(struct group *g) {
    CHECK(try_collectives(g));
    for (size_t count = 1; count < 1 << 20; count = count * 5 + 3)
        CHECK(try_fold(g, count));
    CHECK(try_uneven(g, 0));
    CHECK(try_tags(g));
    CHECK(try_sub_group(g));
    return group_monitored_barrier(g, 5, 1);
}

static int try_forever(struct group *g) {
    for (long i = 0;; i++) {
        CHECK(try_fold(g, 20000));
        if (i == 3 && !group_rank(g)) printf("they run\n"), fflush(stdout);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static int try_late(struct group *g) {
    if (group_rank(g) == group_size(g) - 1) nanosleep(&(struct timespec){.tv_sec = 4}, NULL);
    return group_monitored_barrier(g, 1, 1);
}

int main(int argc, char **argv) {
    struct group *g;
    const char *part = argc > 1 ? argv[1] : "calls";
    struct job_rank self;
    int code = read_job_rank_anywhere(&self, "");
    if (!code) code = environment_for_programs(&self);
    if (!strcmp(part, "absent") && self.rank == self.world - 1)
        nanosleep(&(struct timespec){.tv_sec = 15}, NULL);
    if (!code) code = group_open(&g, argc > 2 ? atof(argv[2]) : 20);
    if (!code)
        code = !strcmp(part, "late")      ? try_late(g)
               : !strcmp(part, "sizes")   ? try_uneven(g, 1)
               : !strcmp(part, "forever") ? try_forever(g)
               : !strcmp(part, "drawn")   ? try_programs(g)
                                          : try_calls(g);
    else
        g = NULL;
    code = end_rank(g, NULL, code);
    if (!code) printf("rank %s: %s: well\n", getenv("RANK"), part);
    return code;
}
