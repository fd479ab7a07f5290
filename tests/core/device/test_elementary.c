/* Compares device/elementary.h with the C library's long double, over the range of floats. */
#include <math.h>

#include "device/elementary.h"
#include "tests/harness/harness.h"

typedef double ours(double);
typedef long double theirs(long double);

/* The functions are always inlined, so these are what can be pointed to. */
#define POINTED(name)                     \
    static double here_##name(double x) { \
        return elementary_##name(x);      \
    }
// clang-format off
POINTED(exp) POINTED(expm1) POINTED(tanh) POINTED(log) POINTED(log1p) POINTED(erfc) POINTED(erf)
POINTED(sin) POINTED(cos) POINTED(round) POINTED(floor)
    // clang-format on

    /* Numbers of all sizes from 2^least to 2^most, times `sign`. */
    static void agree(const char *name, ours *f, theirs *g, int sign, int least, int most,
                      double bound) {
    for (int e = least; e < most; e++)
        for (int i = 0; i < 500; i++) {
            double x = sign * (double)(float)ldexp(1 + i / 500.0 + e * 1e-4, e);
            long double want = g(x);
            if (fabsl(want) < 0x1p-1021L || fabsl(want) > 0x1p1022L) continue;
            double off = (double)fabsl((f(x) - want) / want);
            cr_assert(off <= bound, "%s(%.17g) is %.17g, off by %g", name, x, f(x), off);
        }
}

Test(elementary, agrees_with_long_double) {
    const double units = 0x1p-50; /* four ulp, for the roundings of the last steps */
    for (int sign = -1; sign <= 1; sign += 2) {
        agree("exp", here_exp, expl, sign, -149, 10, units);
        agree("expm1", here_expm1, expm1l, sign, -149, 10, units);
        agree("tanh", here_tanh, tanhl, sign, -149, 128, units);
        agree("erf", here_erf, erfl, sign, -149, 128, 8 * units);
        /* x^2 is rounded before exp, which costs up to x^2 units */
        agree("erfc", here_erfc, erfcl, sign, -149, 2, 8 * units);
        agree("erfc", here_erfc, erfcl, sign, 2, 4, 128 * units);
    }
    for (int sign = -1; sign <= 1; sign += 2) { /* over all floats */
        agree("sin", here_sin, sinl, sign, -149, 127, units);
        agree("cos", here_cos, cosl, sign, -149, 127, units);
        agree("round", here_round, rintl, sign, -149, 127, 0);
        agree("floor", here_floor, floorl, sign, -149, 127, 0);
    }
    agree("log", here_log, logl, 1, -149, 128, units);
    agree("log1p", here_log1p, log1pl, 1, -149, 128, units);
}

static void same(double got, double want) {
    cr_assert(isnan(want) ? isnan(got) : got == want && !signbit(got) == !signbit(want),
              "%g, not %g", got, want);
}

Test(elementary, at_the_ends) {
    const double inf = (double)INFINITY;
    ours *const all[] = {here_exp, here_expm1, here_tanh, here_log,   here_log1p, here_erfc,
                         here_erf, here_sin,   here_cos,  here_round, here_floor};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        same(all[i]((double)NAN), (double)NAN);
    same(here_exp(inf), inf), same(here_exp(-inf), 0), same(here_exp(-709), 0);
    same(here_exp(0), 1), same(here_exp(710), inf);
    same(here_expm1(inf), inf), same(here_expm1(-inf), -1), same(here_expm1(-0.), -0.);
    same(here_tanh(inf), 1), same(here_tanh(-inf), -1), same(here_tanh(-0.), -0.);
    same(here_log(inf), inf), same(here_log(0), -inf), same(here_log(-1), (double)NAN);
    same(here_log(1), 0), same(here_log1p(0), 0);
    same(here_erfc(inf), 0), same(here_erfc(-inf), 2);
    same(here_sin(inf), (double)NAN), same(here_cos(-inf), (double)NAN), same(here_sin(-0.), -0.);
    same(here_cos(0), 1), same(here_round(-0.), -0.), same(here_round(-0.5), -0.);
    same(here_round(2.5), 2), same(here_round(-3.5), -4), same(here_round(-inf), -inf);
    same(here_floor(-0.), -0.), same(here_floor(-0.1), -1), same(here_floor(inf), inf);
    same(here_erf(inf), 1), same(here_erf(-inf), -1), same(here_erf(-0.), -0.);
}
