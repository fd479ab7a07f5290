/* The warning about unequal devices follows PyTorch's rule and words. */
#include "tests/harness/harness.h"

#include "dp/balance.h"

enum { MIB = 1 << 20 };

static char text[320];

static int warned(const uint64_t *memory, const int *cores, int n) {
    text[0] = 0;
    return dp_imbalance(memory, cores, n, text, sizeof text);
}

Test(dp_balance, memory_comes_first, .timeout = 10) {
    static const uint64_t uneven[] = {64 * MIB, 32 * MIB, 64 * MIB, 32 * MIB, 80 * MIB};
    static const int cores[] = {1, 8, 8, 8, 8};
    cr_assert_eq(warned(uneven, cores, 5), 1);
    cr_assert_str_eq(text,
                     "There is an imbalance between your GPUs. You may want to exclude GPU 1 which "
                     "has less than 75% of the memory or cores of GPU 4: 32 MiB and 80 MiB: each "
                     "gets the same share of the batch");
}

Test(dp_balance, then_the_cores, .timeout = 10) {
    static const uint64_t memory[] = {64 * MIB, 64 * MIB, 64 * MIB};
    cr_assert_eq(warned(memory, (int[]){132, 132, 98}, 3), 1);
    cr_assert_not_null(strstr(text, "exclude GPU 2"), "%s", text);
    cr_assert_not_null(strstr(text, "of GPU 0: 98 cores and 132 cores"), "%s", text);
}

Test(dp_balance, three_quarters_are_enough, .timeout = 10) {
    static const int cores[] = {4, 3, 4};
    cr_assert_eq(warned((uint64_t[]){400, 300, 400}, cores, 3), 0, "%s", text);
    cr_assert_eq(warned((uint64_t[]){400, 299, 400}, cores, 3), 1);
    cr_assert_eq(warned((uint64_t[]){400, 400, 400}, (int[]){400, 299, 400}, 3), 1);
    cr_assert_eq(warned((uint64_t[]){7}, (int[]){1}, 1), 0, "one device is like itself");
}
