/* Tests blocks of different lengths and bytes of any length between processes: random lengths,
 * types, operations and roots, synchronous and not. Also tests the error if a rank sends another
 * length than its peer expects. */
#include "base/random.h"
#include "tests/allreduce/reference.h"
#include "tests/group/shared.h"

enum { LONGEST = 3000, MOST = 8, ROUNDS = 40 };
static const enum collective unevens[] = {COLLECTIVE_ALL_GATHER, COLLECTIVE_GATHER,
                                          COLLECTIVE_SCATTER, COLLECTIVE_ALL_TO_ALL,
                                          COLLECTIVE_REDUCE_SCATTER};

/* ---- one call: every element depends on its sender and receiver ---- */

struct uneven {
    enum collective what;
    struct arithmetic how;
    int n, root, average;
    size_t sizes[MOST * MOST]; /* [from * n + to] */
};

static int shows_one_block(enum collective what) {
    return what == COLLECTIVE_ALL_GATHER || what == COLLECTIVE_GATHER;
}

/* 0, 1 or 2: exact in every type. */
static void element(const struct uneven *u, int from, int to, size_t i, char *out) {
    struct expected e = {.what = u->what, .n = u->n, .how = u->how};
    expected_was(&e, out, from, i * 3 + (shows_one_block(u->what) ? 0 : (size_t)to));
}

/* All ranks draw the same numbers. */
static struct uneven draw(struct rng *rng, int n) {
    struct uneven u = {.what = unevens[rng_u32(rng) % 5],
                       .how = {(enum dtype)(rng_u32(rng) % ELEMENT_TYPES), ELEMENT_SUM},
                       .n = n,
                       .root = (int)(rng_u32(rng) % (uint32_t)n)};
    size_t lengths[MOST * MOST];
    for (int i = 0; i < n * n; i++) {
        size_t longest = rng_u32(rng) % 3 ? 40 : LONGEST;
        lengths[i] = rng_u32(rng) % 4 ? rng_u32(rng) % longest : 0;
    }
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++)
            u.sizes[from * n + to] = shows_one_block(u.what)           ? lengths[from]
                                     : u.what == COLLECTIVE_ALL_TO_ALL ? lengths[from * n + to]
                                                                       : lengths[to];
    if (u.what == COLLECTIVE_REDUCE_SCATTER) {
        u.how.op = (enum element_op)(rng_u32(rng) % ELEMENT_OPS);
        u.average = u.how.op == ELEMENT_SUM && dtype_is_float(u.how.type) && rng_u32(rng) % 2;
    }
    return u;
}

static void fill(const struct uneven *u, int rank, char *input) {
    size_t bytes = dtype_bytes(u->how.type);
    for (int to = 0; to < (shows_one_block(u->what) ? 1 : u->n); to++)
        for (size_t i = 0; i < u->sizes[rank * u->n + to]; i++, input += bytes)
            element(u, rank, to, i, input);
}

static void sum_of(const struct uneven *u, int rank, size_t i, char *out) {
    char term[MOST][WIDEST];
    for (int r = 0; r < u->n; r++) {
        element(u, r, rank, i, term[r]);
        element_scale(u->how.type, term[r], term[r], u->average ? 1.0 / u->n : 1);
    }
    for (struct fold f = fold_begin(u->n); fold_next(&f);)
        element_combine(u->how, term[f.to], term[f.to], term[f.from]);
    memcpy(out, term[0], dtype_bytes(u->how.type));
}

/* OK, or which element is wrong. */
static int judge(const struct uneven *u, int rank, const char *output) {
    size_t bytes = dtype_bytes(u->how.type), at = 0;
    int first = u->what == COLLECTIVE_SCATTER          ? u->root
                : u->what == COLLECTIVE_REDUCE_SCATTER ? rank
                                                       : 0;
    int last =
        u->what == COLLECTIVE_SCATTER || u->what == COLLECTIVE_REDUCE_SCATTER ? first : u->n - 1;
    if (u->what == COLLECTIVE_GATHER && rank != u->root) last = -1;
    for (int from = first; from <= last; from++)
        for (size_t i = 0; i < u->sizes[from * u->n + rank]; i++, at++) {
            char want[WIDEST];
            if (u->what == COLLECTIVE_REDUCE_SCATTER)
                sum_of(u, rank, i, want);
            else
                element(u, from, rank, i, want);
            if (memcmp(want, output + at * bytes, bytes))
                return fail(ERR_CHECK, "%s over %d ranks, root %d: rank %d, element %zu of rank %d",
                            window_name(u->what), u->n, u->root, rank, i, from);
        }
    return OK;
}

static int try_uneven(struct group *g, const struct uneven *u, int async) {
    size_t row[MOST], column[MOST], bytes = dtype_bytes(u->how.type);
    int rank = group_rank(g), is_root = rank == u->root, n = u->n;
    char *input = malloc((MOST * LONGEST + 1) * bytes),
         *output = malloc((MOST * LONGEST + 1) * bytes);
    struct work *work = NULL;
    for (int r = 0; r < n; r++) {
        row[r] = u->sizes[rank * n + r];
        column[r] = u->sizes[r * n + rank];
    }
    struct group_call call = {.what = u->what,
                              .how = u->how,
                              .average = u->average,
                              .root = u->root,
                              .input = input,
                              .output = output,
                              .uneven = 1};
    if (shows_one_block(u->what)) call.count = row[0];
    if (u->what == COLLECTIVE_SCATTER) call.count = column[u->root];
    if (u->what == COLLECTIVE_REDUCE_SCATTER) call.count = column[0];
    if (u->what == COLLECTIVE_ALL_TO_ALL || u->what == COLLECTIVE_REDUCE_SCATTER ||
        (u->what == COLLECTIVE_SCATTER && is_root))
        call.input_sizes = row;
    if (u->what == COLLECTIVE_ALL_TO_ALL || u->what == COLLECTIVE_ALL_GATHER ||
        (u->what == COLLECTIVE_GATHER && is_root))
        call.output_sizes = column;
    fill(u, rank, input);
    memset(output, 0xff, MOST * LONGEST * bytes);
    int code = group_run(g, &call, async ? &work : NULL);
    memset(row, 0, sizeof row); /* the sizes were read when the call began */
    memset(column, 0, sizeof column);
    if (!code && work) code = work_wait(work);
    work_free(work);
    if (!code) code = judge(u, rank, output);
    free(input);
    free(output);
    return code;
}

static int uneven_entry(void *context) {
    struct group *g;
    struct rng rng;
    (void)context;
    int code = group_open_sized(&g, 60, &tiny);
    rng_seed(&rng, 9);
    for (int round = 0; round < (getenv("DUET_TEST_LONG") ? 2000 : ROUNDS) && !code; round++) {
        struct uneven u = draw(&rng, group_size(g));
        struct expected even = {.what = COLLECTIVE_ALL_REDUCE,
                                .n = u.n,
                                .count = 77,
                                .stride = 77,
                                .scale = 1,
                                .seed = round};
        code = try_uneven(g, &u, round % 3 == 0);
        if (!code && round % 5 == 0) code = try_call(g, &even, 0, 0); /* epochs continue after it */
    }
    return end_rank(g, NULL, code);
}

Test(uneven, blocks_of_any_lengths_arrive, .timeout = 300) {
    for (int n = 1; n <= (test_short() ? 4 : MOST); n += n < 4 ? 1 : 4)
        run_well(n, uneven_entry, NULL);
}

/* ---- lengths that do not agree ---- */

static int disagree_entry(void *context) {
    struct group *g;
    float x[16] = {0}, y[16];
    size_t gives[] = {1, 2, 3}, expects[3];
    int code = group_open(&g, 60), rank = code ? 0 : group_rank(g);
    for (int r = 0; r < 3; r++)
        expects[r] = (size_t)(rank + 1) + (rank == 1 && r == 2); /* rank 2 gives only 2 */
    struct group_call call = {.what = COLLECTIVE_ALL_TO_ALL,
                              .input = x,
                              .output = y,
                              .input_sizes = gives,
                              .output_sizes = expects};
    if (!code) code = group_run(g, &call, NULL);
    return end_rank(g, context, code);
}

Test(uneven, a_rank_that_expects_another_length_is_named, .timeout = 60) {
    struct page *page = share(sizeof(struct page));
    cr_assert_neq(run_ranks(3, disagree_entry, page).exit_status, 0);
    int told = 0;
    for (int r = 0; r < 3; r++) {
        cr_assert(page->code[r], "rank %d", r);
        told += strstr(page->text[r], "ALLTOALL #1: rank 2 sends rank 1 2 elements, but that "
                                      "rank expects 3") != NULL;
    }
    cr_assert(told, "%s", page->text[0]);
}

/* ---- split sizes on some ranks alone ---- */

struct lone {
    enum collective what;
    int root_gives; /* 1: only the root has them; 0: all others */
    size_t count;
    struct page *page;
};

static int lone_entry(void *context) {
    const struct lone *lone = context;
    struct group *g;
    static float x[30000], y[30000];
    size_t sizes[] = {lone->count, lone->count, lone->count};
    int code = group_open(&g, 60), is_root = !code && group_rank(g) == 1;
    struct group_call call = {
        .what = lone->what, .root = 1, .count = lone->count, .input = x, .output = y};
    call.uneven = is_root == lone->root_gives;
    if (call.uneven && is_root && lone->what == COLLECTIVE_GATHER) call.output_sizes = sizes;
    if (call.uneven && is_root && lone->what == COLLECTIVE_SCATTER) call.input_sizes = sizes;
    if (!code) code = group_run(g, &call, NULL);
    return end_rank(g, lone->page, code);
}

/* Each rank has the error from its own call, not from a later one. */
Test(uneven, split_sizes_on_some_ranks_alone_fail_on_each, .timeout = 120) {
    static const enum collective rooted[] = {COLLECTIVE_GATHER, COLLECTIVE_SCATTER};
    for (int i = 0; i < 8; i++) {
        struct lone lone = {rooted[i % 2], i / 2 % 2, i / 4 ? 10000 : 3,
                            share(sizeof(struct page))};
        cr_assert_neq(run_ranks(3, lone_entry, &lone).exit_status, 0);
        for (int r = 0; r < 3; r++)
            cr_expect(lone.page->code[r] && strstr(lone.page->text[r], "give them on all ranks"),
                      "%s, %d: rank %d: %d %s", window_name(lone.what), i, r, lone.page->code[r],
                      lone.page->text[r]);
    }
}
