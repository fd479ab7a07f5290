/* Buckets equal PyTorch's assignment to the byte, and have the properties of every assignment. */
#include "tests/harness/harness.h"

#include "base/error.h"
#include "base/random.h"
#include "tests/ddp/indices.h"

/* The net 300-1000-1000-BatchNorm-10 and a loose 3x3, whose buckets were read off PyTorch (torch
 * 1.13.1 and 2.15). */
enum { NET = 10 };
static const uint64_t net_bytes[NET] = {1200000, 4000,  4000000, 4000, 4000,
                                        4000,    40000, 40,      36,   12};
static const int net_ready[NET] = {9, 8, 7, 6, 4, 5, 3, 2, 1, 0};

static void expect_net(double cap, double first, const char *sizes, const char *indices) {
    uint64_t limits[2];
    char text[128];
    struct bucket_plan plan;
    cr_assert_eq(bucket_limits(cap, first, limits), OK);
    cr_assert_eq(bucket_plan_init(&plan, net_bytes, NET, net_ready, NET, limits, 2), OK, "%s",
                 error_message());
    bucket_sizes(&plan, text, sizeof text);
    cr_assert_str_eq(text, sizes, "cap %g, first %g: %s", cap, first, text);
    bucket_indices(&plan, text, sizeof text);
    cr_assert_str_eq(text, indices, "cap %g, first %g: %s", cap, first, text);
    bucket_plan_free(&plan);
}

Test(ddp_bucket, rebuilt_buckets_are_pytorchs, .timeout = 10) {
    expect_net(-1, -1, "4052088, 1204000", "9 8 7 6 4 5 3 2, 1 0"); /* defaults: 1 MiB, then 25 */
    /* PyTorch 1.13's reading of a cap of 5 */
    expect_net(5, 1, "4052088, 1204000", "9 8 7 6 4 5 3 2, 1 0");
    /* PyTorch 2.15's: it replaces both limits */
    expect_net(5, -1, "5256088", "9 8 7 6 4 5 3 2 1 0");
    expect_net(25, -1, "5256088", "9 8 7 6 4 5 3 2 1 0"); /* also the value 25 */
    expect_net(0.01, -1, "40088, 12000, 4000000, 1204000", "9 8 7 6, 4 5 3, 2, 1 0");
    expect_net(0, -1, "12, 36, 40, 40000, 4000, 4000, 4000, 4000000, 4000, 1200000",
               "9, 8, 7, 6, 4, 5, 3, 2, 1, 0");
    expect_net(1e300, 0, "12, 5256076", "9, 8 7 6 4 5 3 2 1 0");
}

Test(ddp_bucket, first_step_has_one_bucket, .timeout = 10) {
    uint64_t limit = BUCKET_NO_LIMIT;
    struct bucket_plan plan;
    char text[64];
    cr_assert_eq(bucket_plan_init(&plan, net_bytes, NET, net_ready, NET, &limit, 1), OK);
    cr_assert_eq(plan.bucket_count, 1);
    bucket_sizes(&plan, text, sizeof text);
    cr_assert_str_eq(text, "5256088");
    bucket_plan_free(&plan);
}

Test(ddp_bucket, limits_in_mebibytes, .timeout = 10) {
    static const struct {
        double cap, first;
        uint64_t limit[2];
    } cases[] = {
        {-1, -1, {1048576, 26214400}},
        {25, -1, {26214400, 26214400}},
        {-1, 2, {2097152, 26214400}},
        {3, 0.5, {524288, 3145728}},
        {0.1, -1, {104857, 104857}}, /* 104857.6: the fraction of a byte is dropped */
        {0, -1, {0, 0}},
        {1e300, -1, {BUCKET_NO_LIMIT, BUCKET_NO_LIMIT}},
        {INFINITY, 1, {1048576, BUCKET_NO_LIMIT}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t limit[2];
        cr_assert_eq(bucket_limits(cases[i].cap, cases[i].first, limit), OK);
        cr_assert_eq(limit[0], cases[i].limit[0], "case %zu: first %llu", i,
                     (unsigned long long)limit[0]);
        cr_assert_eq(limit[1], cases[i].limit[1], "case %zu: cap %llu", i,
                     (unsigned long long)limit[1]);
    }
    uint64_t limit[2];
    cr_assert_eq(bucket_limits(NAN, -1, limit), ERR_USAGE);
    cr_assert_eq(bucket_limits(1, NAN, limit), ERR_USAGE);
}

/* PyTorch 2.15 with find_unused_parameters: Linear(300, 1000), (1000, 1000), (1000, 10) and
 * (10, 300000). The walk goes as parameters were registered, and the list is then turned around. */
Test(ddp_bucket, find_unused_parameters, .timeout = 10) {
    static const uint64_t bytes[] = {1200000, 4000, 4000000, 4000, 40000, 40, 12000000, 1200000};
    static const struct {
        double cap;
        const char *sizes, *indices;
    } cases[] = {
        {-1, "17248040, 1200000", "7 6 5 4 3 2 1, 0"},
        {1, "1200000, 12044040, 4004000, 1200000", "7, 6 5 4 3, 2 1, 0"},
        {5, "1200000, 12000040, 5248000", "7, 6 5, 4 3 2 1 0"},
    };
    static const int order[] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int c = 0; c < 3; c++) {
        struct bucket_plan plan;
        uint64_t limits[2];
        char text[200];
        cr_assert_eq(bucket_limits(cases[c].cap, -1, limits), OK);
        cr_assert_eq(bucket_plan_init(&plan, bytes, 8, order, 8, limits, 2), OK);
        bucket_plan_reverse(&plan);
        bucket_sizes(&plan, text, sizeof text);
        cr_assert_str_eq(text, cases[c].sizes);
        bucket_indices(&plan, text, sizeof text);
        cr_assert_str_eq(text, cases[c].indices);
        bucket_plan_free(&plan);
    }
}

/* What must hold of every plan, checked without repeating the walk that makes it. */
static void check_plan(const struct bucket_plan *plan, const uint64_t *bytes, const int *order,
                       int count, const uint64_t *limits, int limit_count) {
    int next = 0;
    for (int b = 0; b < plan->bucket_count; b++) {
        const struct bucket *bucket = &plan->bucket[b];
        uint64_t limit = limits[b < limit_count ? b : limit_count - 1], sum = 0;
        cr_assert_eq(bucket->first, next, "bucket %d does not follow on the one before", b);
        cr_assert_gt(bucket->count, 0, "bucket %d is empty", b);
        for (int i = bucket->first; i < bucket->first + bucket->count; i++) {
            cr_assert_eq(plan->order[i], order[i]);
            cr_assert_eq(plan->bucket_of[order[i]], b);
            cr_assert(i == bucket->first || sum < limit,
                      "bucket %d was full before its last parameter", b);
            sum += bytes[order[i]];
        }
        cr_assert_eq(bucket->bytes, sum);
        cr_assert(sum >= limit || b + 1 == plan->bucket_count, "bucket %d closed early", b);
        next += bucket->count;
    }
    cr_assert_eq(next, count, "%d of %d parameters are in buckets", next, count);
}

Test(ddp_bucket, any_assignment_keeps_the_rule, .timeout = 20) {
    enum { MOST = 60 };
    struct rng engine;
    rng_seed(&engine, 11);
    for (int round = 0; round < 2000; round++) {
        int count = (int)(rng_u32(&engine) % (MOST + 1)), order[MOST],
            limit_count = 1 + (int)(rng_u32(&engine) % 3);
        uint64_t bytes[MOST], limits[3];
        for (int i = 0; i < count; i++)
            bytes[i] = 4 * (1 + rng_u32(&engine) % (i % 7 ? 50 : 5000));
        rng_permutation(&engine, order, count);
        for (int i = 0; i < limit_count; i++)
            limits[i] = rng_u32(&engine) % 6000;
        struct bucket_plan plan;
        cr_assert_eq(bucket_plan_init(&plan, bytes, count, order, count, limits, limit_count), OK);
        check_plan(&plan, bytes, order, count, limits, limit_count);
        bucket_plan_free(&plan);
    }
}

Test(ddp_bucket, an_order_names_each_parameter_once, .timeout = 10) {
    static const uint64_t bytes[3] = {4, 4, 4}, limit = 0;
    static const int bad[][3] = {{0, 1, 1}, {0, 1, 3}, {-1, 1, 2}};
    for (int i = 0; i < 3; i++) {
        struct bucket_plan plan;
        cr_assert_eq(bucket_plan_init(&plan, bytes, 3, bad[i], 3, &limit, 1), ERR_FAILED);
        cr_assert(strstr(error_message(), "once"), "%s", error_message());
        cr_assert_null(plan.order);
        bucket_plan_free(&plan);
    }
}
