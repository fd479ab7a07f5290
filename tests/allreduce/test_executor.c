/* The executor of emulated devices without processes. Its moves are compared with the reference.
 * Whole calls run with threads as ranks, so that the thread sanitizer sees every load and store of
 * every rank. The file also tests the choice of `auto`. */
#include "tests/allreduce/shared.h"

#include <pthread.h>
#include <sched.h>

#include "allreduce/host/executor.h"
#include "tests/core/base/fold_float.h"

/* ---- the moves ---- */

/* Lengths around the width of a vector and of a block, starts of any alignment, destinations
 * that are sources. */
Test(executor, moves_give_the_reference_bits, .timeout = 60) {
    static const int ranks[] = {1, 2, 3, 4, 5, 8, 13, 64};
    enum { MOST = 300, ROOM = MOST + 16 };
    float(*x)[ROOM] = malloc(64 * sizeof *x), (*want)[ROOM] = malloc(64 * sizeof *want);
    cr_assert(x && want);
    for (int w = 0; w < 8; w++) {
        int n = ranks[w];
        for (size_t length = 0; length <= MOST; length += length < 140 ? 1 : 53) {
            for (int op = PLAN_COPY; op <= PLAN_SUM; op++) {
                float scale = length % 3 ? 1.0f / (float)n : 1;
                size_t start = length % 7;
                struct plan plan = {.n = n, .rank = n / 2, .count = ROOM};
                struct plan_step step = {.op = (uint8_t)op,
                                         .scale = length % 2 ? PLAN_SCALE_SOURCE
                                                             : PLAN_SCALE_SOURCE | PLAN_SCALE_DEST,
                                         .source_rank = 0,
                                         .source_offset = start,
                                         .dest_offset = start,
                                         .length = length};
                step.dest_ranks = op == PLAN_REDUCE ? rank_bit(plan.rank) : rank_all(n);
                struct host_ranks all = {.all = {.n = n, .rank = plan.rank}};
                float *data[64], *reference[64];
                for (int r = 0; r < n; r++) {
                    data[r] = x[r];
                    reference[r] = want[r];
                    for (size_t i = 0; i < ROOM; i++)
                        x[r][i] = want[r][i] = input(op, r, i, 0);
                }
                plan.steps = &step;
                plan.step_count = 1;
                struct executor_call call = {.plan = &plan, .data = data, .scale = scale};
                cr_assert_eq(host_execute(&all, &call), OK);
                const struct reference_memory memory = {
                    .data = (void **)reference, .scratch = (void **)reference, .scale = scale};
                reference_step(&plan, &step, &memory);
                for (int r = 0; r < n; r++)
                    cr_assert_eq(memcmp(x[r], want[r], sizeof x[r]), 0,
                                 "op %d, %d ranks, %zu elements: rank %d differs", op, n, length,
                                 r);
            }
        }
    }
    free(x);
    free(want);
}

/* The test above ran the widest set. The narrower ones, which other processors take, must give the
 * bits of base/fold.h too. The length has whole blocks, and a vector, quads and single elements
 * besides. */
Test(executor, all_vector_sets_give_the_same_bits, .timeout = 30) {
    enum { N = 9, LENGTH = 5 * 64 + 16 + 2 * 4 + 3 };
    float x[N][LENGTH], got[LENGTH], want[LENGTH], *dest = got;
    const float *source[N];
    for (int r = 0; r < N; r++) {
        source[r] = x[r];
        for (size_t i = 0; i < LENGTH; i++)
            x[r][i] = input(3, r, i, 0);
    }
    cr_assert(move_set_count() >= 1);
    for (int s = 0; s < move_set_count(); s++) {
        const struct move_set *set = move_set(s);
        for (int n = 1; n <= N; n++) {
            set->fold(&dest, 1, source, n, 0.3f, LENGTH);
            for (size_t i = 0; i < LENGTH; i++) {
                float term[N];
                for (int r = 0; r < n; r++)
                    term[r] = x[r][i] * 0.3f;
                want[i] = fold_sum_float(term, n);
            }
            cr_assert_eq(memcmp(got, want, sizeof got), 0, "%s: sum of %d", set->name, n);
        }
        set->reduce(&dest, 1, x[0], 0.3f, x[1], 0.7f, LENGTH);
        for (size_t i = 0; i < LENGTH; i++) {
            float own = x[0][i] * 0.3f, other = x[1][i] * 0.7f;
            want[i] = own + other;
        }
        cr_assert_eq(memcmp(got, want, sizeof got), 0, "%s: reduce", set->name);
        set->scale_copy(&dest, 1, x[0], 0.3f, LENGTH);
        for (size_t i = 0; i < LENGTH; i++)
            want[i] = x[0][i] * 0.3f;
        cr_assert_eq(memcmp(got, want, sizeof got), 0, "%s: copy", set->name);
    }
}

/* Whole lines, and the elements before and after them, but nothing else. */
Test(executor, a_copy_past_the_caches_is_a_copy, .timeout = 30) {
    enum { MOST = 400, ROOM = MOST + 192 };
    unsigned char from[ROOM], to[ROOM] __attribute__((aligned(64))), want[ROOM];
    for (size_t i = 0; i < ROOM; i++)
        from[i] = (unsigned char)(i * 7 + 1);
    for (size_t at = 0; at < 128; at += 1 + at / 5)
        for (size_t bytes = 0; bytes <= MOST; bytes += 1 + bytes / 9) {
            memset(to, 0xff, ROOM);
            memset(want, 0xff, ROOM);
            memcpy(want + at, from + bytes % 61, bytes);
            move_past_caches(to + at, from + bytes % 61, bytes);
            cr_assert_eq(memcmp(to, want, ROOM), 0, "%zu bytes to %zu", bytes, at);
        }
}

/* ---- ranks as threads ---- */

enum { WORLD = 4, CALLS = 40, COUNT = 700 };

struct thread_rank {
    struct host_ranks ranks;
    float **data;
    enum allreduce_algorithm algorithm; /* AUTO: a different one in each call */
    int wrong;
};

static int wait_by_spinning(void *context, struct comm_flag *flag, uint64_t epoch,
                            const struct comm_wait_reason *reason) {
    (void)context;
    (void)reason;
    int64_t deadline = deadline_after(30);
    while (__atomic_load_n(&flag->epoch, __ATOMIC_ACQUIRE) < epoch) {
        if (now_ns() > deadline)
            return fail(ERR_TIMEOUT, "test: rank %d never posted", reason->peer);
        sched_yield();
    }
    return OK;
}

static int thread_calls(struct thread_rank *t) {
    struct plan_config config = {
        .align = 1, .slice = 40, .pipeline_from = 0, .slices = 3, .scratch = 240};
    uint64_t base = 0;
    for (int call = 0; call < CALLS; call++) {
        float *own = t->data[t->ranks.all.rank];
        enum allreduce_algorithm algorithm =
            t->algorithm == ALLREDUCE_AUTO ? algorithms[call % ALGORITHMS] : t->algorithm;
        for (size_t i = 0; i < COUNT; i++)
            own[i] = input(call, t->ranks.all.rank, i, 1);
        struct plan plan;
        CHECK(plan_build(&plan, algorithm, t->ranks.all.n, t->ranks.all.rank, COUNT, &config));
        struct executor_call run = {
            .plan = &plan, .data = t->data, .base = base, .half = call % 2, .scale = 1};
        int code = host_execute(&t->ranks, &run);
        base += plan.epochs;
        plan_free(&plan);
        if (code) return code;
        for (size_t i = 0; i < COUNT; i++) {
            float sum = 0;
            for (int r = 0; r < t->ranks.all.n; r++)
                sum += input(call, r, i, 1);
            t->wrong += own[i] != sum;
        }
    }
    return OK;
}

static void *thread_main(void *context) {
    struct thread_rank *t = context;
    if (thread_calls(t)) t->wrong++;
    return NULL;
}

static void run_threads(int n, enum allreduce_algorithm algorithm) {
    static const size_t half = 240;
    struct thread_rank rank[WORLD];
    float *data[WORLD];
    pthread_t thread[WORLD];
    struct host_ranks ranks = {.all = {.n = n, .half = half}, .wait = wait_by_spinning};
    for (int r = 0; r < n; r++) {
        void *flags = aligned_alloc(128, host_flags_bytes(n));
        cr_assert_not_null(flags);
        memset(flags, 0, host_flags_bytes(n));
        ranks.flags[r] = flags;
        ranks.all.scratch[r] = malloc(2 * half * sizeof(float));
        data[r] = malloc(COUNT * sizeof(float));
    }
    for (int r = 0; r < n; r++) {
        rank[r] = (struct thread_rank){.ranks = ranks, .data = data, .algorithm = algorithm};
        rank[r].ranks.all.rank = r;
        cr_assert_eq(pthread_create(&thread[r], NULL, thread_main, &rank[r]), 0);
    }
    for (int r = 0; r < n; r++) {
        pthread_join(thread[r], NULL);
        cr_assert_eq(rank[r].wrong, 0, "%d ranks, %s: rank %d has %d wrong", n,
                     allreduce_algorithm_name(algorithm), r, rank[r].wrong);
    }
    for (int r = 0; r < n; r++) {
        free(ranks.flags[r]);
        free(ranks.all.scratch[r]);
        free(data[r]);
    }
}

Test(executor, threads_as_ranks, .timeout = 120) {
    for (int n = 2; n <= WORLD; n++) {
        for (int a = 0; a < ALGORITHMS; a++)
            run_threads(n, algorithms[a]);
        run_threads(n, ALLREDUCE_AUTO);
    }
}

/* ---- the choice ---- */

Test(select, keeps_the_order_over_three_and_more, .timeout = 10) {
    struct allreduce_link slow_flags = {.name = "x", .flag_us = 1000, .rank_gbs = 1, .all_gbs = 0};
    struct allreduce_link own_links = {.name = "y", .flag_us = 0.1, .rank_gbs = 10, .all_gbs = 0};
    for (int n = 3; n <= 64; n++)
        for (size_t count = 1; count < (size_t)1 << 28; count *= 4) {
            cr_assert(allreduce_keeps_order(allreduce_choose(n, count, 0, &slow_flags, NULL, 0)));
            cr_assert(allreduce_keeps_order(allreduce_choose(n, count, 0, &own_links, NULL, 0)));
        }
}

/* fused is chosen only where ranks share one processor: on the host direct is never slower. */
Test(select, fused_is_for_ranks_that_take_turns, .timeout = 10) {
    struct allreduce_link host = allreduce_link_host(1), gpus = allreduce_link_gpus(),
                          shared = allreduce_link_shared_gpu(0);
    char text[256];
    for (int n = 2; n <= 64; n++)
        for (size_t count = 1; count < (size_t)1 << 28; count *= 3)
            for (int any_order = 0; any_order < 2; any_order++) {
                host = allreduce_link_host(n);
                cr_assert_neq(allreduce_choose(n, count, any_order, &host, NULL, 0),
                              ALLREDUCE_FUSED);
                cr_assert_neq(allreduce_choose(n, count, any_order, &gpus, NULL, 0),
                              ALLREDUCE_FUSED);
                cr_assert_eq(allreduce_choose(n, count, any_order, &shared, text, sizeof text),
                             ALLREDUCE_FUSED);
            }
    cr_assert(strstr(text, "fused for") && strstr(text, "64 ranks") && strstr(text, "one GPU"),
              "%s", text);
    cr_assert_eq(allreduce_choose(1, 100, 0, &shared, NULL, 0), ALLREDUCE_DIRECT);
}

Test(select, follows_the_formulas, .timeout = 10) {
    struct allreduce_link link = {.name = "a bus", .flag_us = 5, .rank_gbs = 10, .all_gbs = 0};
    char text[400];
    /* For few bytes it picks the fewest flags, for many the fewest bytes. */
    cr_assert_eq(allreduce_choose(4, 4, 1, &link, text, sizeof text), ALLREDUCE_ONESHOT);
    cr_assert(strstr(text, "oneshot") && strstr(text, "16 B") && strstr(text, "4 ranks") &&
                  strstr(text, "a bus"),
              "%s", text);
    cr_assert_eq(allreduce_choose(4, 1 << 24, 0, &link, text, sizeof text), ALLREDUCE_DIRECT);
    cr_assert(strstr(text, "another order"), "%s", text);
    /* direct: 2 flags and 2 S = 128 MiB at 10 GB/s. */
    double us = allreduce_cost(ALLREDUCE_DIRECT, 4, 1 << 24, &link);
    cr_assert_float_eq(us, 10 + 2.0 * (1 << 26) / 10e3, 1e-6);
    /* One bus for all takes n times as long. */
    link.all_gbs = 10;
    us = allreduce_cost(ALLREDUCE_DIRECT, 4, 1 << 24, &link);
    cr_assert_float_eq(us, 10 + 8.0 * (1 << 26) / 10e3, 1e-6);
    cr_assert_eq(allreduce_choose(1, 100, 0, &link, text, sizeof text), ALLREDUCE_DIRECT);
    cr_assert(allreduce_link_host(1).flag_us < allreduce_link_host(64).flag_us,
              "more ranks than cores: flags cost more");
}
