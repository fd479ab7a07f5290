/* Tests the integer functions of scatter_gather/: offsets of rows, and coalesced groups. */
#include "tests/harness/harness.h"

#include <limits.h>

#include "base/error.h"
#include "scatter_gather/scatter_gather.h"

Test(rows, begin_where_the_rows_before_end, .timeout = 30) {
    int offsets[65], sizes[64];
    cr_assert_eq(row_offsets((int[]){3, 0, 4}, 3, offsets), 0);
    cr_assert_arr_eq(offsets, ((int[]){0, 3, 3, 7}), 4 * sizeof(int));
    for (int i = 0; i < 64; i++)
        sizes[i] = INT_MAX / 64 + (i == 0 ? INT_MAX % 64 : 0);
    cr_assert_eq(row_offsets(sizes, 64, offsets), 0);
    cr_assert_eq(offsets[64], INT_MAX);
    cr_assert_eq(row_offsets((int[]){INT_MAX, 1}, 2, offsets), -1, "a sum past INT_MAX");
    cr_assert_eq(row_offsets((int[]){3, -1}, 2, offsets), -1, "a negative size");
}

static int same(const struct param_range *got, int n, const struct param_range *want, int m) {
    if (n != m) return 0;
    for (int i = 0; i < n; i++)
        if (got[i].first != want[i].first || got[i].count != want[i].count) return 0;
    return 1;
}

/* A limit of 100 floats. Registration order runs downwards in the arena, with pads between the
 * pieces, as nn/param.h lays it. */
Test(coalesce, is_greedy_and_flushes_before_the_limit, .timeout = 30) {
    struct param_range got[8];
    enum { LIMIT = 400 };
    /* exactly full: stays one group */
    int n = coalesce((struct param_range[]){{128, 60}, {64, 40}}, 2, LIMIT, got);
    cr_assert(same(got, n, (struct param_range[]){{64, 124}}, 1),
              "60 + 40 floats fit a limit of 100 (pads not counted)");
    /* one too many: two groups */
    n = coalesce((struct param_range[]){{128, 60}, {64, 41}}, 2, LIMIT, got);
    cr_assert(same(got, n, (struct param_range[]){{128, 60}, {64, 41}}, 2), "60 + 41 do not");
    /* above the limit: its own group, and the next one starts a new group */
    n = coalesce((struct param_range[]){{640, 30}, {256, 300}, {192, 50}, {128, 50}, {64, 1}}, 5,
                 LIMIT, got);
    cr_assert(same(got, n, (struct param_range[]){{640, 30}, {256, 300}, {128, 114}, {64, 1}}, 4));
    /* empty pieces never flush, and an arena may also run upwards */
    n = coalesce((struct param_range[]){{0, 0}, {0, 100}, {128, 0}, {128, 1}}, 4, LIMIT, got);
    cr_assert(same(got, n, (struct param_range[]){{0, 128}, {128, 1}}, 2), "%d groups", n);
    cr_assert_eq(coalesce(NULL, 0, LIMIT, got), 0);
}

Test(coalesce, values_and_gradients_have_their_own_offsets, .timeout = 30) {
    static const struct param_spec spec = {.name = "p"};
    struct param params[3];
    struct param_set set = {.param = params, .count = 3};
    struct param_range groups[3];
    int count;
    for (size_t i = 0; i < 3; i++)
        params[i] = (struct param){
            .spec = &spec, .count = 10, .value_offset = 128 - 64 * i, .grad_offset = 64 * i};
    cr_assert_eq(coalesce_params(&set, 0, 80, groups, &count), OK);
    cr_assert(same(groups, count, (struct param_range[]){{64, 74}, {0, 10}}, 2),
              "values in reverse order: neighbours");
    cr_assert_eq(coalesce_params(&set, 1, 80, groups, &count), OK);
    cr_assert(same(groups, count, (struct param_range[]){{0, 74}, {128, 10}}, 2));
}
