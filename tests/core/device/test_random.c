/* Tests the random numbers of a model (device/draw.h). */
#include "base/philox.h"
#include "tests/core/device/kernels_common.h"

/* Numbers from the words that dropout uses, too, compared with the formulas in long double; and
 * their distribution, within six standard deviations of a mean. */
Test(random_numbers, are_those_of_the_formulas, .timeout = 60) {
    enum { COUNT = 1 << 16 };
    static float y[COUNT];
    const int dims[2] = {64, COUNT / 64};
    const long double turn = 2 * acosl(-1);
    for (int k = 0; k < 6; k++) {
        const struct step_block step = {.seed = 0x123456789, .step = (uint64_t)k};
        const int normal = k % 2;
        struct op_args a = {.step = &step, .p.dropout = {.layer = 3, .v = k, .normal = normal}};
        double sum[5] = {0};
        a.out[0] = tensor_plain(y, DTYPE_F32, 2, dims);
        host_reference_kernels[OP_RANDOM](&a);
        for (uint32_t i = 0; i < COUNT; i++) {
            const struct philox four = philox_quad(step.seed, (uint32_t)k, (uint32_t)k, 3, i / 4);
            const uint32_t *pair = four.word + i % 4 / 2 * 2;
            const long double angle = turn * pair[1] / 0x1p32L,
                              size = sqrtl(-2 * logl((pair[0] + 1.0L) / 0x1p32L)),
                              want = !normal ? pair[i % 2] / 256 / 0x1p24L
                                     : i % 2 ? size * cosl(angle)
                                             : size * sinl(angle);
            cr_assert(fabsl(y[i] - want) <= 0x1p-23L * fabsl(want) + 0x1p-50L, "%u: %g, not %Lg", i,
                      (double)y[i], want);
            for (int power = 1; power < 5; power++)
                sum[power] += pow((double)y[i], power) / COUNT;
        }
        static const double of_normal[5] = {0, 0, 1, 0, 3}, off_normal[5] = {0, 1, 1.5, 4, 10};
        for (int power = 1; power < 5; power++) {
            double want = normal ? of_normal[power] : 1.0 / (power + 1);
            cr_assert_lt(fabs(sum[power] - want), 6 * (normal ? off_normal[power] : 0.3) / 256,
                         "%d, moment %d: %g", k, power, sum[power]);
        }
    }
}
