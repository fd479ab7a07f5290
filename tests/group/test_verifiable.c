/* The checks of NVIDIA's nccl-tests, for every collective: each type, each operation, sizes from
 * one element up, in place and not, again and again with other numbers. verifiable.h says which
 * numbers these are; every result but an average is demanded to the bit.
 *
 * In place means what it means there: all_gather and gather take their input from this rank's block
 * of the output, reduce_scatter and scatter put their output into this rank's block of the input.
 *
 * By default sizes, types and operations take turns in small windows; DUET_TEST_LONG=1: all of
 * them, blocks of up to 2 MiB in the windows that programs get. */
#include "tests/group/shared.h"
#include "tests/group/verifiable.h"

static const enum collective whats[] = {
    COLLECTIVE_ALL_REDUCE, COLLECTIVE_REDUCE,     COLLECTIVE_REDUCE_SCATTER,
    COLLECTIVE_BROADCAST,  COLLECTIVE_ALL_GATHER, COLLECTIVE_GATHER,
    COLLECTIVE_SCATTER,    COLLECTIVE_ALL_TO_ALL, COLLECTIVE_SEND};
enum { WHATS = sizeof whats / sizeof *whats, OPS = ELEMENT_OPS + 1, AVERAGE = ELEMENT_OPS };
static const struct group_sizes tiny = {.window = 4096, .half = 2048, .mailbox = 1024, .slot = 256};

struct trial {
    struct verifiable v;
    enum collective what;
    size_t count;
    int root, in_place;
};

static size_t input_length(const struct trial *t) {
    return t->count * (size_t)(has_parts(t->what) ? t->v.n : 1);
}
static size_t output_length(const struct trial *t) {
    return t->count * (size_t)(has_stack(t->what) ? t->v.n : 1);
}

/* What element i of this rank's output is: that of `from`'s input, or a result. -1: not written. */
static int source_of(const struct trial *t, int rank, size_t i, size_t *at) {
    size_t block = i / t->count, mine = (size_t)rank * t->count + i % t->count;
    *at = t->what == COLLECTIVE_SCATTER || t->what == COLLECTIVE_ALL_TO_ALL ? mine : i % t->count;
    switch ((int)t->what) {
    case COLLECTIVE_BROADCAST: return rank == t->root ? -1 : t->root;
    case COLLECTIVE_SEND: return rank == (t->root + 1) % t->v.n ? t->root : -1;
    case COLLECTIVE_GATHER: return rank == t->root ? (int)block : -1;
    case COLLECTIVE_SCATTER: return t->root;
    default: return (int)block;
    }
}

static int is_right(const struct trial *t, int rank, size_t i, const char *got) {
    char want[WIDEST];
    size_t at, bytes = element_bytes(t->v.how.type);
    if (is_sum(t->what))
        return (t->what == COLLECTIVE_REDUCE && rank != t->root) ||
               verifiable_is(&t->v,
                             t->what == COLLECTIVE_REDUCE_SCATTER ? (size_t)rank * t->count + i : i,
                             got);
    int from = source_of(t, rank, i, &at);
    if (from < 0) return 1;
    verifiable_input(&t->v, from, at, 1, want);
    return !memcmp(want, got, bytes);
}

/* Where the output is, of a call in place. */
static void place(const struct trial *t, int rank, char *memory, char **input, char **output) {
    size_t own = (size_t)rank * t->count * element_bytes(t->v.how.type);
    int root_only = t->what == COLLECTIVE_GATHER || t->what == COLLECTIVE_SCATTER;
    *input = *output = memory;
    if (root_only && rank != t->root) return;
    if (has_stack(t->what) && !has_parts(t->what)) *input = memory + own;
    if (has_parts(t->what) && !has_stack(t->what)) *output = memory + own;
}

static int try_it(struct group *g, const struct trial *t, char *memory[2]) {
    char *input = memory[0], *output = memory[1];
    size_t bytes = element_bytes(t->v.how.type);
    int rank = group_rank(g), n = t->v.n, sends = t->what == COLLECTIVE_SEND;
    if (sends && rank != t->root && rank != (t->root + 1) % n) return OK;
    if (t->in_place) place(t, rank, memory[0], &input, &output);
    for (size_t i = 0; i < input_length(t); i++)
        verifiable_input(&t->v, rank, i, !is_sum(t->what), input + i * bytes);
    struct group_call call = {.what = t->what,
                              .count = t->count,
                              .how = t->v.how,
                              .average = t->v.average,
                              .root = sends ? 0 : t->root,
                              .peer = rank == t->root ? (t->root + 1) % n : t->root,
                              .receive = sends && rank != t->root,
                              .input = input,
                              .output = output};
    CHECK(group_run(g, &call, NULL));
    for (size_t i = 0; i < output_length(t); i++)
        if (!is_right(t, rank, i, output + i * bytes))
            return fail(ERR_CHECK,
                        "%s of %zu %s by %s%s over %d ranks, root %d, in place %d: "
                        "element %zu of rank %d",
                        window_name(t->what), t->count, element_type_name(t->v.how.type),
                        element_op_name(t->v.how.op), t->v.average ? " (average)" : "", n, t->root,
                        t->in_place, i, rank);
    return OK;
}

/* ---- all of them ---- */

static int is_a_case(enum collective what, int type, int op, int n) {
    if (what == COLLECTIVE_SEND && n == 1) return 0;
    if (!is_sum(what)) return op == 0;
    return op != AVERAGE || element_is_float((enum element_type)type);
}

static int try_all(struct group *g, const size_t *counts, int m, int every) {
    int n = group_size(g), code = OK, turn = n;
    size_t most = counts[m - 1] * WIDEST * (size_t)n;
    char *memory[2] = {malloc(most), malloc(most)};
    if (!memory[0] || !memory[1]) code = fail(ERR_MEMORY, "test: no memory");
    for (int k = 0; k < WHATS; k++)
        for (int type = 0; type < ELEMENT_TYPES; type++)
            for (int op = 0; op < OPS; op++)
                for (int c = 0; c < m && is_a_case(whats[k], type, op, n); c++)
                    for (int in_place = 0; in_place < 2 && !code; in_place++) {
                        int average = op == AVERAGE;
                        struct trial t = {
                            .v = {.how = {(enum element_type)type,
                                          average ? ELEMENT_SUM : (enum element_op)op},
                                  .average = average,
                                  .n = n,
                                  .seed = mix((uint64_t)turn)},
                            .what = whats[k],
                            .count = counts[c],
                            .root = turn % n,
                            .in_place = in_place};
                        if (turn++ % every == 0) code = try_it(g, &t, memory);
                    }
    free(memory[0]);
    free(memory[1]);
    return code;
}

static int short_entry(void *context) {
    static const size_t counts[] = {1, 2, 31, 256, 1003};
    struct group *g;
    (void)context;
    int code = group_open_sized(&g, 60, &tiny);
    if (!code) code = try_all(g, counts, 5, 3); /* every third one */
    return end_rank(g, NULL, code);
}

static int long_entry(void *context) {
    size_t counts[10] = {1};
    struct group *g;
    (void)context;
    for (int i = 1; i < 10; i++)
        counts[i] = counts[i - 1] * 4 + (size_t)i % 2; /* odd ones among them */
    int code = group_open(&g, 300);
    if (!code) code = try_all(g, counts, 10, 1);
    return end_rank(g, NULL, code);
}

Test(verifiable, every_type_operation_and_size, .timeout = 1800) {
    int is_long = getenv("DUET_TEST_LONG") != NULL;
    for (int n = 1; n <= (test_short() ? 4 : 8); n += n < 4 ? 1 : 4)
        run_well(n, is_long ? long_entry : short_entry, NULL);
}

/* The numbers are what verifiable.h says: they are not all alike, and a wrong result is seen. */
Test(verifiable, a_wrong_bit_is_seen) {
    for (int type = 0; type < ELEMENT_TYPES; type++)
        for (int op = 0; op < ELEMENT_OPS; op++) {
            struct verifiable v = {
                .how = {(enum element_type)type, (enum element_op)op}, .n = 3, .seed = 5};
            int different = 0;
            for (size_t i = 0; i < 200; i++) {
                char term[3][WIDEST] = {{0}}, next[WIDEST];
                for (int r = 0; r < 3; r++)
                    verifiable_input(&v, r, i, 0, term[r]);
                verifiable_input(&v, 0, i + 1, 0, next);
                different += memcmp(term[0], next, WIDEST) != 0 && memcmp(term[0], term[1], 1);
                for (int r = 1; r < 3; r++) /* in the other order than fold order */
                    element_combine(v.how, term[0], term[3 - r], term[0]);
                cr_assert(verifiable_is(&v, i, term[0]), "%s by %s, %zu",
                          element_type_name(v.how.type), element_op_name(v.how.op), i);
                term[0][0] ^= 1;
                cr_assert(!verifiable_is(&v, i, term[0]));
            }
            cr_assert_gt(different, 60, "%s by %s: %d", element_type_name(v.how.type),
                         element_op_name(v.how.op), different);
        }
}
