/* Compares hops with the plans that they come from. The moves must end with the terms of all ranks,
 * each once. The bytes must be those of the plans, and the number of hops the textbook's. */
#include "tests/harness/harness.h"

#include <stdint.h>

#include "allreduce/hops.h"
#include "base/error.h"
#include "tests/allreduce/kinds.h"

/* Every algorithm of the list, and the collectives that only copy. */
static const struct kind all[] = {
#define PLAN(NAME, word, in_fold_order, uses_scratch) BY(NAME),
    ALLREDUCE_PLANS(PLAN)
#undef PLAN
        IT(ALL_GATHER),
    IT(BROADCAST)};
enum { ALL = sizeof all / sizeof *all };

/* Small slices, so that a few hundred elements run in many pipelined slices and rounds. */
static struct plan_config small_config(int n, size_t align) {
    struct plan_config config = {
        .align = align, .slice = 48, .pipeline_from = 0, .slices = 3, .scratch = 256 + (size_t)n};
    return config;
}

static int build_plan(struct plan *plan, struct kind kind, int n, int rank, size_t count,
                      const struct plan_config *config) {
    if (kind.what == COLLECTIVE_BROADCAST) return plan_build_broadcast(plan, n, rank, count);
    if (kind.what == COLLECTIVE_ALL_GATHER)
        return plan_build_all_gather(plan, n, rank, (size_t)n, count / (size_t)n);
    return plan_build(plan, kind.algorithm, n, rank, count, config);
}

static void build(struct hops *h, struct kind kind, int n, size_t count,
                  const struct plan_config *config) {
    struct plan plans[MAX_DEVICES] = {0};
    for (int r = 0; r < n; r++)
        cr_assert_eq(build_plan(&plans[r], kind, n, r, count, config), OK, "%s", error_message());
    cr_assert_eq(hops_of_plans(h, plans, n), OK, "%s", error_message());
    for (int r = 0; r < n; r++)
        plan_free(&plans[r]);
}

/* ---- what a list of hops has to be ---- */

/* In order, from hop 1 to the last without a gap, in whole chunks. */
static void check_list(const struct hops *h) {
    int hop = 0;
    uint64_t at = 0;
    for (int i = 0; i < h->move_count; i++) {
        const struct hop_move *m = &h->moves[i];
        int over_link = m->from != m->to;
        cr_assert(m->hop >= hop && m->hop <= hop + 1 && m->hop >= over_link);
        cr_assert(!i || m->hop > hop || over_link <= (m[-1].from != m[-1].to));
        hop = m->hop;
    }
    cr_assert_eq(hop, h->hops);
    for (int c = 0; c < h->chunk_count; c++) {
        cr_assert(h->chunks[c].offset == at && h->chunks[c].count);
        at += h->chunks[c].count;
    }
    cr_assert_eq(at, h->count);
}

static void check_bytes(const struct hops *h, struct kind kind, const struct plan_config *config) {
    size_t n = (size_t)h->n;
    uint64_t *planned = calloc(n * n, sizeof *planned), *moved = calloc(n * n, sizeof *moved);
    for (int r = 0; r < h->n; r++) {
        struct plan plan;
        int code = build_plan(&plan, kind, h->n, r, h->count, config);
        cr_assert_eq(code, OK, "%s", error_message());
        plan_traffic(&plan, planned);
        plan_free(&plan);
    }
    for (int i = 0; i < h->move_count; i++) {
        const struct hop_move *m = &h->moves[i];
        if (m->from != m->to) moved[(size_t)m->from * n + (size_t)m->to] += m->count * 4;
    }
    cr_assert_eq(memcmp(planned, moved, n * n * sizeof *moved), 0, "%s, %d ranks, %zu elements",
                 kind_name(kind), h->n, (size_t)h->count);
    free(planned), free(moved);
}

static void check_terms(const struct hops *h, struct kind kind) {
    struct hops_state *state;
    cr_assert_eq(hops_state_init(&state, h), OK);
    for (int hop = 0; hop <= h->hops; hop++)
        cr_assert_eq(hops_state_run(state, hop), OK, "%s", error_message());
    for (int r = 0; r < h->n; r++) {
        for (int c = 0; c < h->chunk_count; c++) {
            uint64_t owner = h->chunks[c].offset / (h->count / (uint64_t)h->n);
            uint64_t want = kind.what == COLLECTIVE_BROADCAST    ? 1
                            : kind.what == COLLECTIVE_ALL_GATHER ? rank_bit((int)owner)
                                                                 : rank_all(h->n);
            cr_assert_eq(hops_state_terms(state, r, c), want, "%s: rank %d, chunk %d",
                         kind_name(kind), r, c);
        }
    }
    hops_state_free(state);
}

static void check(struct kind kind, int n, size_t count, const struct plan_config *config) {
    struct hops h;
    if (kind.what == COLLECTIVE_ALL_GATHER) count -= count % (size_t)n;
    build(&h, kind, n, count, config);
    check_list(&h);
    check_bytes(&h, kind, config);
    if (count >= (size_t)n) check_terms(&h, kind);
    hops_free(&h);
}

Test(hops, end_with_the_terms_of_all, .timeout = 60) {
    for (int n = 1; n <= (test_short() ? 6 : 9); n++) {
        size_t chunk = (size_t)n * 16;
        size_t counts[] = {0,          1,         (size_t)n - 1, (size_t)n,     chunk - 1,
                           chunk,      chunk + 1, 2 * chunk - 1, 2 * chunk + 1, 300,
                           48 * 3 + 1, 1000};
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            struct plan_config config = small_config(n, c % 2 ? 1 : 16);
            for (int a = 0; a < ALL; a++)
                check(all[a], n, counts[c], &config);
        }
    }
}

Test(hops, of_64_ranks, .timeout = 60) {
    struct plan_config config = plan_config_default();
    for (int a = 0; a < ALL; a++)
        check(all[a], 64, 1217, &config);
}

/* ---- the textbook's numbers of hops ---- */

static int depth_of(int which, int n, int rank) {
    int depth = 0;
    for (struct tree_node at = plan_tree_node(which, n, rank); at.parent >= 0; depth++)
        at = plan_tree_node(which, n, at.parent);
    return depth;
}

static int textbook(struct kind kind, int n) {
    int deepest = 0;
    if (n == 1) return 0;
    for (int r = 0; r < 2 * n; r++)
        if (depth_of(r % 2, n, r / 2) > deepest) deepest = depth_of(r % 2, n, r / 2);
    if (kind.what != COLLECTIVE_ALL_REDUCE) return 1;
    switch (kind.algorithm) {
    case ALLREDUCE_RING: return 2 * (n - 1);
    case ALLREDUCE_TREE: return 2 * deepest;
    case ALLREDUCE_ONESHOT: return 1;
    default: return 2; /* naive, direct, fused: to the ranks that add, and back */
    }
}

/* However many slices a chunk is cut into: one hop each, joined again. */
Test(hops, are_as_many_as_the_textbook_says, .timeout = 60) {
    for (int n = 1; n <= 64; n = n < 9 ? n + 1 : 2 * n - n % 2) {
        for (int pipelined = 0; pipelined < 2; pipelined++) {
            struct plan_config config = plan_config_default();
            size_t count = (size_t)n * 64;
            config.pipeline_from = pipelined ? 0 : SIZE_MAX;
            config.align = 16;
            for (int a = 0; a < ALL; a++) {
                struct hops h;
                build(&h, all[a], n, count, &config);
                cr_assert_eq(h.hops, textbook(all[a], n), "%s over %d ranks: %d hops",
                             kind_name(all[a]), n, h.hops);
                if (all[a].algorithm == ALLREDUCE_RING && n > 1) {
                    cr_assert_eq(h.chunk_count, n);
                    cr_assert_eq(h.move_count, n * h.hops);
                }
                hops_free(&h);
            }
        }
    }
}

/* The drawing at the top of plans/ring.c: chunk c goes from rank c + h - 1 to c + h at hop h. */
Test(hops, of_the_ring_are_the_drawing, .timeout = 10) {
    struct hops h;
    cr_assert_eq(hops_of_call(&h, ALLREDUCE_RING, 4, 256, NULL), OK);
    for (int i = 0; i < h.move_count; i++) {
        const struct hop_move *m = &h.moves[i];
        int c = (int)(m->to_offset / 64);
        cr_expect(m->from == (c + m->hop - 1) % 4 && m->to == (c + m->hop) % 4 && m->count == 64);
        cr_expect_eq(m->action, m->hop < 4 ? HOP_REDUCE : HOP_COPY);
    }
    struct hops_state *state;
    cr_assert_eq(hops_state_init(&state, &h), OK);
    cr_assert_eq(hops_state_run(state, 2), OK);
    cr_expect_eq(hops_state_terms(state, 2, 0), 7, "ranks 0, 1 and 2");
    cr_expect_eq(hops_state_terms(state, 3, 0), 8, "its own");
    cr_assert_eq(hops_state_run(state, 3), OK);
    cr_expect_eq(hops_state_terms(state, 3, 0), 15, "complete");
    hops_state_free(state);
    hops_free(&h);
}

/* ---- plans that no algorithm has, and wrong ones ---- */

Test(hops, a_sum_for_another_rank_is_refused, .timeout = 10) {
    struct plan_step sum = {.op = PLAN_SUM, .dest_ranks = rank_bit(0), .length = 8};
    struct plan plans[3] = {{.n = 3, .rank = 0, .count = 8},
                            {.n = 3, .rank = 1, .count = 8, .steps = &sum, .step_count = 1},
                            {.n = 3, .rank = 2, .count = 8}};
    struct hops h;
    cr_expect_eq(hops_of_plans(&h, plans, 3), ERR_FAILED);
    cr_expect(strstr(error_message(), "rank 1 loads what it does not keep"), "%s", error_message());
}

Test(hops, wrong_plans_are_found, .timeout = 10) {
    struct plan plans[3];
    struct plan_config config = plan_config_default();
    struct hops h;
    struct hops_state *state;
    for (int r = 0; r < 3; r++)
        cr_assert_eq(plan_build(&plans[r], ALLREDUCE_RING, 3, r, 300, &config), OK);
    for (int i = 0; i < plans[1].step_count; i++) { /* adds a term twice */
        if (plans[1].steps[i].op != PLAN_COPY) continue;
        plans[1].steps[i].op = PLAN_REDUCE;
        cr_assert_eq(hops_of_plans(&h, plans, 3), OK);
        cr_assert_eq(hops_state_init(&state, &h), OK);
        cr_expect_eq(hops_state_run(state, h.hops), ERR_FAILED);
        cr_expect(strstr(error_message(), "twice"), "%s", error_message());
        hops_state_free(state);
        hops_free(&h);
        break;
    }
    for (int i = 0; i < plans[2].step_count; i++)
        plans[2].steps[i].post_ranks = 0; /* rank 0 waits for these posts */
    cr_expect_eq(hops_of_plans(&h, plans, 3), ERR_FAILED);
    cr_expect(strstr(error_message(), "deadlock"), "%s", error_message());
    cr_expect(!h.moves && !h.move_count);
    plans[1].count++;
    cr_expect_eq(hops_of_plans(&h, plans, 3), ERR_FAILED);
    for (int r = 0; r < 3; r++)
        plan_free(&plans[r]);
    cr_expect_eq(hops_of_call(&h, ALLREDUCE_RING, 0, 10, NULL), ERR_USAGE);
    cr_expect_eq(hops_of_call(&h, ALLREDUCE_RING, 65, 10, NULL), ERR_USAGE);
    cr_expect_eq(hops_of_call(&h, ALLREDUCE_NCCL, 2, 10, NULL), ERR_USAGE);
    config.scratch = 64;
    cr_expect_eq(hops_of_call(&h, ALLREDUCE_NAIVE, 64, 6000, &config), ERR_USAGE);
    cr_expect(strstr(error_message(), "fewer"), "%s", error_message());
    hops_free(NULL);
    hops_state_free(NULL);
}
