/* The relative L2 distance: its formula, and arrays that are never near any other. */
#include <math.h>

#include "base/distance.h"
#include "tests/harness/harness.h"

/* |(0, 0, 0.5)| / |(3, 0, 4)| */
Test(distance, is_relative_to_the_first, .timeout = 10) {
    static const float want[] = {3, 0, 4}, got[] = {3, 0, 4.5f};
    cr_expect_eq(relative_l2(want, got, 3), 0.1);
    cr_expect_eq(relative_l2(want, want, 3), 0);
    cr_expect_eq(relative_l2(want, got, 2), 0);
}

Test(distance, zeros_are_near_zeros_alone, .timeout = 10) {
    static const float zeros[] = {0, -0.0f}, tiny[] = {0, 0x1p-149f};
    cr_expect_eq(relative_l2(zeros, zeros, 2), 0);
    cr_expect(isinf(relative_l2(zeros, tiny, 2)));
    cr_expect_eq(relative_l2(tiny, zeros, 2), 1);
}

/* NaN on either side or both, whatever the other elements are: two runs that both lost their
 * numbers do not agree. */
Test(distance, not_finite_is_infinitely_far, .timeout = 10) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++)
        for (int side = 1; side <= 3; side++) {
            float want[] = {1, side & 1 ? bad[i] : 2}, got[] = {1, side & 2 ? bad[i] : 2};
            cr_expect(isinf(relative_l2(want, got, 2)), "%g on side %d", (double)bad[i], side);
        }
}

/* Large floats do not overflow on the way. */
Test(distance, sums_in_double, .timeout = 10) {
    static const float want[] = {3e38f, 3e38f}, got[] = {-3e38f, -3e38f};
    cr_expect_eq(relative_l2(want, got, 2), 2);
}
