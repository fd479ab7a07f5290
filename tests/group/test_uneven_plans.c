/* Blocks with lengths of their own in the plans of process groups: random lengths from none to many
 * pieces, over 1 to 8 ranks, judged in one thread. What must come out is written down without any
 * plan: element i of what one rank gives to one other. */
#include "allreduce/reference.h"
#include "group/plans/windows.h"
#include "base/error.h"
#include "base/random.h"
#include "tests/harness/harness.h"

enum { WINDOW = 64, LONGEST = 90, MOST = 8, ROUNDS = 20 };
static const enum collective whats[] = {COLLECTIVE_ALL_GATHER, COLLECTIVE_GATHER,
                                        COLLECTIVE_SCATTER, COLLECTIVE_ALL_TO_ALL,
                                        COLLECTIVE_REDUCE_SCATTER};
enum { WHATS = sizeof whats / sizeof *whats };

struct world {
    enum collective what;
    int n, root;
    size_t sizes[MOST * MOST];
    int32_t *input[MOST], *output[MOST], *window[MOST];
};

static int shows_one_block(enum collective what) {
    return what == COLLECTIVE_ALL_GATHER || what == COLLECTIVE_GATHER;
}

static size_t size_of(const struct world *w, int from, int to) {
    return w->sizes[from * w->n + to];
}

/* Element i of the block from one rank to one other; one block for all is the same for all. */
static int32_t given(const struct world *w, int from, int to, size_t i) {
    int to_whom = shows_one_block(w->what) ? 0 : to;
    return (int32_t)(1 + from * 100000 + to_whom * 10000 + (int)i);
}

static size_t draw(struct rng *rng) {
    size_t longest = rng_u32(rng) % 4 ? 9 : LONGEST;
    return rng_u32(rng) % 4 ? rng_u32(rng) % longest : 0;
}

static void draw_sizes(struct world *w, struct rng *rng) {
    for (int a = 0; a < w->n; a++)
        for (int b = 0; b < w->n; b++) {
            int first = w->what == COLLECTIVE_ALL_TO_ALL || b == 0;
            size_t size = first ? draw(rng) : 0, *sizes = w->sizes;
            if (w->what == COLLECTIVE_ALL_TO_ALL)
                sizes[a * w->n + b] = size;
            else if (shows_one_block(w->what)) /* a row has one size */
                sizes[a * w->n + b] = b ? sizes[a * w->n] : size;
            else /* a column has */
                sizes[b * w->n + a] = b ? sizes[a] : size;
        }
}

static void fill(struct world *w) {
    for (int r = 0; r < w->n; r++) {
        size_t at = 0, bytes = MOST * LONGEST * sizeof(int32_t);
        w->input[r] = malloc(bytes);
        w->output[r] = malloc(bytes);
        w->window[r] = malloc(WINDOW * sizeof(int32_t));
        memset(w->output[r], 0xff, bytes);
        memset(w->window[r], 0xff, WINDOW * sizeof(int32_t));
        for (int to = 0; to < (shows_one_block(w->what) ? 1 : w->n); to++)
            for (size_t i = 0; i < size_of(w, r, to); i++)
                w->input[r][at++] = given(w, r, to, i);
    }
}

static void expect(const struct world *w, int rank, size_t at, int32_t want, const char *block) {
    cr_assert_eq(w->output[rank][at], want,
                 "%s over %d ranks, root %d: rank %d, element %zu: %d, "
                 "not %d (%s)",
                 window_name(w->what), w->n, w->root, rank, at, w->output[rank][at], want, block);
}

static void judge(const struct world *w, int rank) {
    size_t at = 0;
    int32_t sum;
    switch ((int)w->what) {
    case COLLECTIVE_SCATTER:
        for (; at < size_of(w, w->root, rank); at++)
            expect(w, rank, at, given(w, w->root, rank, at), "root's");
        break;
    case COLLECTIVE_REDUCE_SCATTER:
        for (; at < size_of(w, rank, rank); at++) {
            sum = 0;
            for (int r = 0; r < w->n; r++)
                sum += given(w, r, rank, at);
            expect(w, rank, at, sum, "sum");
        }
        break;
    default:
        for (int from = 0; from < w->n && (w->what != COLLECTIVE_GATHER || rank == w->root); from++)
            for (size_t i = 0; i < size_of(w, from, rank); i++)
                expect(w, rank, at++, given(w, from, rank, i), "a block");
    }
    expect(w, rank, at, -1, "behind the end");
}

static void run(struct world *w) {
    struct plan plans[MOST];
    struct window_request q = {.what = w->what,
                               .n = w->n,
                               .root = w->root,
                               .window = WINDOW,
                               .sizes = w->sizes,
                               .config = plan_config_default()};
    q.config.align = 2;
    fill(w);
    for (q.rank = 0; q.rank < w->n; q.rank++)
        cr_assert_eq(plan_build_window(&plans[q.rank], &q), OK, "%s", error_message());
    struct reference_memory memory = {.how = {ELEMENT_I32, ELEMENT_SUM},
                                      .data = (void *const *)w->window,
                                      .scratch = (void *const *)w->window,
                                      .input = (const void *const *)w->input,
                                      .output = (void *const *)w->output,
                                      .scale = 1};
    cr_assert_eq(plan_check(plans, w->n, WINDOW), OK, "%s", error_message());
    cr_assert_eq(reference_run_of(plans, w->n, &memory), OK, "%s", error_message());
    for (int r = 0; r < w->n; r++) {
        judge(w, r);
        plan_free(&plans[r]);
        free(w->input[r]);
        free(w->output[r]);
        free(w->window[r]);
    }
}

Test(uneven, blocks_of_any_lengths_arrive, .timeout = 60) {
    struct rng rng;
    rng_seed(&rng, 4);
    for (int n = 1; n <= MOST; n++)
        for (int k = 0; k < WHATS; k++)
            for (int round = 0; round < ROUNDS; round++) {
                struct world w = {.what = whats[k], .n = n, .root = round % n};
                draw_sizes(&w, &rng);
                run(&w);
            }
}

/* Even lengths written as lengths of their own give the very same plan. */
Test(uneven, even_lengths_give_the_even_plan) {
    for (int k = 0; k < WHATS; k++) {
        size_t sizes[9];
        struct plan plain, uneven;
        struct window_request q = {.what = whats[k],
                                   .n = 3,
                                   .rank = 1,
                                   .root = 1,
                                   .count = 50,
                                   .stride = 50,
                                   .window = WINDOW,
                                   .config = plan_config_default()};
        cr_assert_eq(plan_build_window(&plain, &q), OK);
        for (int i = 0; i < 9; i++)
            sizes[i] = q.count;
        q.sizes = sizes;
        cr_assert_eq(plan_build_window(&uneven, &q), OK);
        cr_assert_eq(plain.epochs, uneven.epochs);
        cr_assert_eq(plain.input, uneven.input);
        cr_assert_eq(plain.output, uneven.output);
        for (int i = 0; i < plain.step_count && plain.steps[i].length; i++)
            cr_assert(!memcmp(&plain.steps[i], &uneven.steps[i], sizeof plain.steps[i]), "%s, %d",
                      window_name(whats[k]), i);
        plan_free(&plain);
        plan_free(&uneven);
    }
}
