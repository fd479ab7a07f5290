/* Compares the sampler's lists with those of PyTorch's DistributedSampler, and checks the
 * properties of every epoch's order. */
#include <stdint.h>

#include "base/error.h"
#include "base/random.h"
#include "data/sampler.h"
#include "tests/golden/rng.h"
#include "tests/harness/harness.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static int32_t *indices(const struct order *o, int rank, int epoch, int *n) {
    int32_t *list;
    cr_assert_eq(sampler_indices(o, rank, epoch, &list, n), OK, "%s", error_message());
    return list;
}

Test(sampler, lists_are_pytorchs, .timeout = 30) {
    for (int i = 0; i < SAMPLERS; i++) {
        const struct sampler g = rng_sampler(i);
        struct order o = {g.n, g.replicas, g.drop_last ? ORDER_CUT : ORDER_PAD, g.shuffle,
                          (uint64_t)g.seed};
        uint64_t hash = FNV_START;
        for (int rank = 0; rank < o.replicas; rank++) {
            int n;
            int32_t *list = indices(&o, rank, g.epoch, &n);
            cr_assert_eq(n, g.per_rank, "row %d: %d of a rank", i, n);
            hash = fnv_words(hash, list, n);
            free(list);
        }
        cr_assert_eq(hash, g.hash, "row %d: n %d, %d replicas", i, o.count, o.replicas);
    }
}

Test(sampler, exact_serves_each_sample_once, .timeout = 30) {
    struct order o = {10, 4, ORDER_EXACT, 1, 1};
    int seen[10] = {0}, total = 0;
    for (int rank = 0; rank < 4; rank++) {
        int n;
        int32_t *list = indices(&o, rank, 0, &n);
        for (int i = 0; i < n; i++)
            seen[list[i]]++;
        total += n;
        free(list);
    }
    cr_assert_eq(total, 10);
    for (int i = 0; i < 10; i++)
        cr_assert_eq(seen[i], 1, "sample %d", i);
}

Test(sampler, an_epoch_changes_the_order_and_is_repeatable, .timeout = 30) {
    struct order o = {1000, 1, ORDER_PAD, 1, 4};
    static int32_t a[1000], b[1000];
    order_epoch(&o, 0, a), order_epoch(&o, 1, b);
    cr_assert_arr_neq(a, b, sizeof a);
    order_epoch(&o, 0, b);
    cr_assert_arr_eq(a, b, sizeof a);
    o.seed =
        5; /* only seed + epoch counts: seed 4, epoch 1 equals seed 5, epoch 0, as in PyTorch */
    order_epoch(&o, 0, a);
    o.seed = 4;
    order_epoch(&o, 1, b);
    cr_assert_arr_eq(a, b, sizeof a);
}

Test(sampler, bad_numbers_are_named, .timeout = 30) {
    struct order good = {10, 3, ORDER_PAD, 1, 0}, o;
    int32_t *list;
    int n;
    cr_assert_eq(sampler_indices(&good, 3, 0, &list, &n), ERR_USAGE);
    cr_assert_str_eq(error_message(), "Invalid rank 3, rank should be in the interval [0, 2]");
    cr_assert_eq(sampler_indices(&good, -1, 0, &list, &n), ERR_USAGE);
    cr_assert_null(list);
    o = good, o.replicas = 0;
    cr_assert_eq(order_check(&o), ERR_USAGE);
    o = good, o.count = -1;
    cr_assert_eq(order_check(&o), ERR_USAGE);
    cr_assert(strstr(error_message(), "-1"));
    o = good, o.count = RNG_PERMUTATION_LIMIT;
    cr_assert_eq(order_check(&o), ERR_USAGE);
}

/* DataLoader(shuffle=True) after torch.manual_seed(seed), by PyTorch: five epochs of the first; an
 * epoch of the others. */
Test(sampler, the_order_of_dataloader, .timeout = 30) {
    static const struct {
        int count, epoch;
        uint64_t seed;
        int32_t want[10];
    } cases[] = {{10, 0, 5, {8, 3, 0, 5, 9, 1, 6, 2, 4, 7}},
                 {10, 1, 5, {5, 8, 9, 7, 2, 0, 4, 1, 3, 6}},
                 {10, 2, 5, {6, 5, 4, 0, 7, 2, 1, 8, 9, 3}},
                 {10, 3, 5, {6, 2, 5, 0, 9, 7, 3, 4, 1, 8}},
                 {10, 4, 5, {3, 0, 9, 1, 4, 2, 6, 5, 8, 7}},
                 {7, 0, 0, {0, 4, 1, 5, 2, 6, 3}},
                 {9, 0, (uint64_t)-3, {6, 3, 2, 5, 0, 7, 4, 1, 8}},
                 {9, 1, (uint64_t)-3, {4, 6, 1, 8, 0, 7, 3, 2, 5}}};
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        const struct order o = {cases[i].count, 1, ORDER_PAD, SHUFFLE_RANDOM, cases[i].seed};
        int32_t index[10];
        cr_assert_eq(order_length(&o), cases[i].count);
        order_epoch(&o, cases[i].epoch, index);
        cr_assert_arr_eq(index, cases[i].want, (size_t)cases[i].count * sizeof *index,
                         "seed %lld, epoch %d", (long long)cases[i].seed, cases[i].epoch);
    }
}
