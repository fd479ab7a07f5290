/* Checks the planner by the reference executor's results for its plans: every algorithm, up to 64
 * ranks, counts and slices that do not divide evenly. */
#include "tests/harness/harness.h"

#include <stdint.h>

#include "tests/allreduce/reference.h"
#include "base/error.h"
#include "tests/core/base/fold_float.h"

static const enum allreduce_algorithm algorithms[] = {ALLREDUCE_NAIVE,  ALLREDUCE_ONESHOT,
                                                      ALLREDUCE_DIRECT, ALLREDUCE_RING,
                                                      ALLREDUCE_TREE,   ALLREDUCE_FUSED};
enum { ALGORITHMS = sizeof algorithms / sizeof *algorithms };

/* u = 2^-24: the rounding of one fp32 operation, relative. */
static const double unit = 1.0 / (1 << 24);

/* Small slices and no least count, so that a thousand elements already run in many pipelined
 * slices. */
static struct plan_config small_config(size_t align) {
    struct plan_config config = {
        .align = align, .slice = 48, .pipeline_from = 0, .slices = 3, .scratch = 256};
    return config;
}

/* A generator of its own: 24 random bits. */
static uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 40);
}

struct world {
    int n;
    size_t count;
    float *memory, *data[MAX_DEVICES];
};

static void world_init(struct world *w, int n, size_t count) {
    w->n = n;
    w->count = count;
    w->memory = malloc((n * count + 1) * sizeof(float));
    cr_assert_not_null(w->memory);
    for (int r = 0; r < n; r++)
        w->data[r] = w->memory + r * count;
}

/* Integers up to 1000: sums below 2^24 are exact in any order. Else values of very different
 * size and both signs. */
static void world_fill(struct world *w, int integers, uint64_t seed) {
    for (size_t i = 0; i < w->n * w->count; i++) {
        float x = (float)((int)(next_random(&seed) % 2001) - 1000);
        w->memory[i] = integers ? x : x * 1.2345e-3f * (float)(1 << next_random(&seed) % 16);
    }
}

static void run(enum allreduce_algorithm algorithm, struct world *w,
                const struct plan_config *config, float scale) {
    int code = reference_allreduce(algorithm, w->n, w->count, config, w->data, scale);
    cr_assert_eq(code, OK, "%s, %d ranks, %zu elements: %s", allreduce_algorithm_name(algorithm),
                 w->n, w->count, error_message());
}

/* In the order stated for single and DP (plan_order). */
static float sum_in_order(enum allreduce_algorithm algorithm, float *x, int n, size_t count,
                          size_t i) {
    struct sum_piece piece;
    for (size_t at = 0; at <= i; at += piece.count)
        cr_assert_eq(plan_order(algorithm, n, count, at, &piece), OK, "%s", error_message());
    for (int k = 0; k < n - 1; k++)
        x[piece.order.add[k].to] += x[piece.order.add[k].from];
    return x[0];
}

static void check_sum(enum allreduce_algorithm algorithm, int n, size_t count,
                      const struct plan_config *config, float scale) {
    struct world w, first;
    world_init(&w, n, count);
    world_init(&first, n, count);
    for (int integers = 0; integers < 2; integers++) {
        world_fill(&w, integers, 77 + (uint64_t)n);
        memcpy(first.memory, w.memory, n * count * sizeof(float));
        run(algorithm, &w, config, scale);
        for (size_t i = 0; i < count; i++) {
            double sum = 0, size = 0;
            float term[MAX_DEVICES];
            for (int r = 0; r < n; r++) {
                term[r] = first.data[r][i] * scale;
                sum += (double)first.data[r][i] * scale;
                size += fabs((double)first.data[r][i] * scale);
            }
            float fold = fold_sum_float(term, n), got = w.data[0][i];
            /* n - 1 additions and the rounding of each scaled term: g_n sum|x| with g_n = n u /
             * (1 - n u). */
            double bound = n * unit / (1 - n * unit) * size;
            cr_assert(fabs(got - sum) <= bound, "%s, n %d, count %zu, element %zu: %.9g for %.17g",
                      allreduce_algorithm_name(algorithm), n, count, i, got, sum);
            if (integers && scale == 1) cr_assert(got == (float)sum, "integers must be exact");
            if (allreduce_keeps_order(algorithm) || n <= 2)
                cr_assert_eq(memcmp(&got, &fold, sizeof got), 0,
                             "%s, n %d, count %zu, element %zu: not in fold order",
                             allreduce_algorithm_name(algorithm), n, count, i);
            int written = !allreduce_keeps_order(algorithm) && n > 1 && config->align == 16;
            for (int r = 0; r < n; r++)
                term[r] = first.data[r][i] * scale;
            if (written) fold = sum_in_order(algorithm, term, n, count, i);
            cr_assert(!written || !memcmp(&got, &fold, sizeof got),
                      "%s, n %d, count %zu, element %zu: not as plan_order says",
                      allreduce_algorithm_name(algorithm), n, count, i);
            for (int r = 1; r < n; r++)
                cr_assert_eq(memcmp(&w.data[r][i], &got, sizeof got), 0,
                             "%s: ranks 0 and %d differ at %zu",
                             allreduce_algorithm_name(algorithm), r, i);
        }
    }
    free(w.memory);
    free(first.memory);
}

Test(plan, sums_for_any_ranks_and_counts, .timeout = 120) {
    int most = test_short() ? 9 : 17;
    for (int n = 1; n <= most; n++) {
        size_t counts[] = {0, 1, (size_t)n - 1, (size_t)n, (size_t)n + 1, 17, 331, 1000, 3001};
        for (int a = 0; a < ALGORITHMS; a++) {
            for (int c = 0; c < 9; c++) {
                struct plan_config config = small_config(c % 2 ? 1 : 16);
                config.scratch += (size_t)n; /* room for naive with any n */
                check_sum(algorithms[a], n, counts[c], &config,
                          c % 3 == 0 ? 1.0f : 1.0f / (float)n);
            }
        }
    }
}

Test(plan, sums_for_64_ranks, .timeout = 60) {
    struct plan_config config = plan_config_default();
    for (int a = 0; a < ALGORITHMS; a++)
        check_sum(algorithms[a], 64, 2049, &config, 1.0f / 64);
}

/* The bits of the fold order, written out by hand: n = 3 is (0+2)+1, n = 4 (0+2)+(1+3), n = 5
 * ((0+3)+2)+(1+4). */
Test(plan, fold_order_is_the_written_one, .timeout = 10) {
    volatile float a = 1e8f, b = -1e8f, c = 3.25f, d = 1e-3f, e = 7e7f;
    float t3[] = {a, b, c}, t4[] = {a, b, c, d}, t5[] = {a, b, c, d, e};
    cr_assert(fold_sum_float(t3, 3) == (a + c) + b);
    cr_assert(fold_sum_float(t4, 4) == (a + c) + (b + d));
    cr_assert(fold_sum_float(t5, 5) == ((a + d) + c) + (b + e));
    cr_assert((a + c) + b != (a + b) + c, "the example must tell orders apart");
}

/* Ring and tree add in their own orders. Somewhere their bits must differ from those of fold
 * order, or equal bits would prove little. */
Test(plan, ring_and_tree_have_their_own_order, .timeout = 10) {
    for (int a = 0; a < ALGORITHMS; a++) {
        struct world w, direct;
        struct plan_config config = small_config(1);
        world_init(&w, 4, 1000);
        world_init(&direct, 4, 1000);
        world_fill(&w, 0, 5);
        world_fill(&direct, 0, 5);
        run(algorithms[a], &w, &config, 1);
        run(ALLREDUCE_DIRECT, &direct, &config, 1);
        int same = memcmp(w.memory, direct.memory, 4000 * sizeof(float)) == 0;
        cr_assert_eq(same, allreduce_keeps_order(algorithms[a]), "%s",
                     allreduce_algorithm_name(algorithms[a]));
        free(w.memory);
        free(direct.memory);
    }
}

/* Bytes that leave and enter each rank, against the formulas. */
Test(plan, traffic_is_what_the_formulas_say, .timeout = 30) {
    for (int n = 2; n <= 9; n++) {
        size_t count = (size_t)n * 64;
        uint64_t S = count * sizeof(float), m = (uint64_t)n;
        for (int a = 0; a < ALGORITHMS; a++) {
            struct plan_config config = small_config(16);
            uint64_t bytes[9 * 9] = {0}, total = 0;
            for (int r = 0; r < n; r++) {
                struct plan plan;
                cr_assert_eq(plan_build(&plan, algorithms[a], n, r, count, &config), OK, "%s",
                             error_message());
                total += plan_traffic(&plan, bytes);
                plan_free(&plan);
            }
            uint64_t into[9] = {0}, out_of[9] = {0}, sum = 0;
            for (int from = 0; from < n; from++)
                for (int to = 0; to < n; to++) {
                    into[to] += bytes[from * n + to];
                    out_of[from] += bytes[from * n + to];
                    sum += bytes[from * n + to];
                }
            cr_assert_eq(sum, total);
            for (int r = 0; r < n; r++) {
                switch (algorithms[a]) {
                case ALLREDUCE_NAIVE:
                case ALLREDUCE_FUSED:
                    cr_assert_eq(into[r], r == 0 ? (m - 1) * S : S);
                    cr_assert_eq(out_of[r], r == 0 ? (m - 1) * S : S);
                    break;
                case ALLREDUCE_ONESHOT: cr_assert_eq(into[r], (m - 1) * S); break;
                case ALLREDUCE_DIRECT:
                case ALLREDUCE_RING:
                    cr_assert_eq(into[r], 2 * (m - 1) * S / m);
                    cr_assert_eq(out_of[r], 2 * (m - 1) * S / m);
                    break;
                default:
                    cr_assert(into[r] <= 2 * S && out_of[r] <= 2 * S,
                              "tree: rank %d of %d takes %llu", r, n, (unsigned long long)into[r]);
                }
                if (algorithms[a] == ALLREDUCE_RING && n > 2)
                    cr_assert_eq(bytes[((r + n - 1) % n) * n + r], into[r],
                                 "the ring reads from its left neighbour only");
            }
            if (algorithms[a] == ALLREDUCE_TREE) cr_assert_eq(total, 2 * (m - 1) * S);
        }
    }
}

Test(plan, trees_are_trees_and_share_the_work, .timeout = 10) {
    for (int n = 2; n <= MAX_DEVICES; n++) {
        int levels = 0, inner[2][MAX_DEVICES] = {{0}};
        while (1 << levels < n)
            levels++;
        for (int which = 0; which < 2; which++) {
            int roots = 0;
            for (int r = 0; r < n; r++) {
                struct tree_node node = plan_tree_node(which, n, r);
                roots += node.parent < 0;
                inner[which][r] = node.children > 0 && node.parent >= 0;
                cr_assert(node.children <= (node.parent < 0 ? 1 : 2));
                for (int c = 0; c < node.children; c++)
                    cr_assert_eq(plan_tree_node(which, n, node.child[c]).parent, r);
                int depth = 0;
                for (int at = r; plan_tree_node(which, n, at).parent >= 0 && depth <= n; depth++)
                    at = plan_tree_node(which, n, at).parent;
                cr_assert(depth <= levels, "n %d tree %d rank %d lies %d deep", n, which, r, depth);
            }
            cr_assert_eq(roots, 1);
        }
        for (int r = 0; r < n; r++)
            cr_assert(!(inner[0][r] && inner[1][r]), "n %d: rank %d is an inner node of both trees",
                      n, r);
    }
}

/* Large data is cut into at least four slices a chunk, and the plan stays short. */
Test(plan, large_data_is_pipelined, .timeout = 10) {
    struct plan_config config = plan_config_default();
    struct plan plan;
    cr_assert_eq(plan_build(&plan, ALLREDUCE_RING, 8, 3, 256 * 1024, &config), OK);
    cr_assert_eq(plan.step_count, 1 + 14 * 4 + 1);
    plan_free(&plan);
    cr_assert_eq(plan_build(&plan, ALLREDUCE_RING, 8, 3, 256 * 1024 - 1, &config), OK);
    cr_assert_eq(plan.step_count, 1 + 14 + 1);
    plan_free(&plan);
    cr_assert_eq(plan_build(&plan, ALLREDUCE_RING, 2, 0, 100 * 1000 * 1000, &config), OK);
    for (int i = 0; i < plan.step_count; i++)
        cr_assert(plan.steps[i].length <= config.slice);
    plan_free(&plan);
}

/* ---- the judge finds bugs ---- */

static void build_all(struct plan *plans, enum allreduce_algorithm algorithm, int n, size_t count) {
    struct plan_config config = small_config(1);
    for (int r = 0; r < n; r++)
        cr_assert_eq(plan_build(&plans[r], algorithm, n, r, count, &config), OK, "%s",
                     error_message());
}

Test(plan, judge_finds_a_deadlock, .timeout = 10) {
    for (int a = 0; a < ALGORITHMS; a++) {
        struct plan plans[3];
        struct world w;
        float scratch[3][256];
        void *const halves[] = {scratch[0], scratch[1], scratch[2]};
        build_all(plans, algorithms[a], 3, 10);
        world_init(&w, 3, 10);
        world_fill(&w, 1, 1);
        for (int i = 0; i < plans[1].step_count; i++) /* rank 1 forgets all its posts */
            plans[1].steps[i].post_ranks = plans[1].steps[i].post_epoch = 0;
        struct reference_memory all = {.data = (void **)w.data, .scratch = halves, .scale = 1};
        cr_assert_eq(reference_run(plans, 3, &all), ERR_FAILED);
        cr_assert(strstr(error_message(), "deadlock") && strstr(error_message(), "of rank 1"), "%s",
                  error_message());
        for (int r = 0; r < 3; r++)
            plan_free(&plans[r]);
        free(w.memory);
    }
}

Test(plan, judge_finds_ranges_and_flags_out_of_bounds, .timeout = 10) {
    for (int a = 0; a < ALGORITHMS; a++) {
        for (int bug = 0; bug < 6; bug++) {
            struct plan plans[3];
            build_all(plans, algorithms[a], 3, 100);
            cr_assert_eq(plan_check(plans, 3, 256), OK, "%s", error_message());
            struct plan_step *move = NULL, *post = NULL;
            for (int i = 0; i < plans[0].step_count; i++) {
                if (plans[0].steps[i].op != PLAN_NONE) move = &plans[0].steps[i];
                if (plans[0].steps[i].post_ranks) post = &plans[0].steps[i];
            }
            if (bug == 0) move->length += 300;
            if (bug == 1) move->source_offset = UINT64_MAX;
            if (bug == 2) move->dest_ranks |= rank_bit(3);
            if (bug == 3) post->post_epoch = plans[0].epochs + 1;
            if (bug == 4) post->post_ranks |= rank_bit(0);
            if (bug == 5) plans[2].epochs++;
            cr_assert_eq(plan_check(plans, 3, 256), ERR_FAILED, "%s, bug %d",
                         allreduce_algorithm_name(algorithms[a]), bug);
            for (int r = 0; r < 3; r++)
                plan_free(&plans[r]);
        }
    }
}

Test(plan, bad_input_is_refused, .timeout = 10) {
    struct plan plan;
    struct plan_config config = plan_config_default(), bad = config;
    enum allreduce_algorithm algorithm;
    cr_assert_eq(plan_build(&plan, ALLREDUCE_RING, 0, 0, 10, &config), ERR_USAGE);
    cr_assert_eq(plan_build(&plan, ALLREDUCE_RING, 65, 0, 10, &config), ERR_USAGE);
    cr_assert_eq(plan_build(&plan, ALLREDUCE_RING, 2, 2, 10, &config), ERR_USAGE);
    cr_assert_eq(plan_build(&plan, ALLREDUCE_AUTO, 2, 0, 10, &config), ERR_USAGE);
    cr_assert(!allreduce_has_plan(ALLREDUCE_AUTO) &&
              !allreduce_has_plan(ALLREDUCE_ALGORITHM_COUNT));
    cr_assert(!allreduce_has_plan(ALLREDUCE_NCCL) && !allreduce_keeps_order(ALLREDUCE_NCCL));
    cr_assert_eq(plan_build(&plan, ALLREDUCE_NCCL, 2, 0, 10, &config), ERR_USAGE);
    bad.align = 0;
    cr_assert_eq(plan_build(&plan, ALLREDUCE_RING, 2, 0, 10, &bad), ERR_USAGE);
    plan_free(&plan);
    plan_free(NULL);
    cr_assert_eq(allreduce_algorithm_parse("rings", &algorithm), ERR_USAGE);
    cr_assert(strstr(error_message(), "rings"), "%s", error_message());
    for (int a = 0; a < ALLREDUCE_ALGORITHM_COUNT; a++) {
        cr_assert_eq(allreduce_algorithm_parse(
                         allreduce_algorithm_name((enum allreduce_algorithm)a), &algorithm),
                     OK);
        cr_assert_eq((int)algorithm, a);
    }
}
