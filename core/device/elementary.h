/* exp, log and similar functions in double, written once for all kinds of device. They use sums,
 * products, quotients, and the bits of a double. They have no branch and no table, so the compiler
 * vectorises a loop over them, and no fused multiply-add, so each device gives the same bits. A
 * library's functions take one number at a time, and two libraries differ in the last bits.
 *
 * The results are accurate to a few units in the last place of a double, erfc of a large x to x^2
 * units. They are meant to be rounded to float: exp is 0 below -708 and infinite above 709. A NaN
 * stays a NaN.
 *
 *     exp    x = n log 2 + r, n an integer, |r| <= log(2) / 2; the series of exp(r) times 2^n
 *     expm1  the same without the 1, to which a small x would lose its bits
 *     tanh   e / (e + 2) with e = expm1(2 |x|)
 *     log    x = 2^n m with m near 1, s = (m - 1) / (m + 1); log m = 2 (s + s^3 / 3 + ...)
 *     log1p  log(1 + x), plus the rounding error of 1 + x
 *     erfc   t exp(-x^2) times a polynomial in t = 4 / (4 + x), made by scripts/make_erfc.py
 *     sin    x is q quarter turns and a rest of at most half a quarter turn, 2 x / pi modulo 4; the
 *            result is the series of the rest's sine or cosine. 2 / pi has 203 bits, so the rest is
 *            accurate for each finite float, however large. Infinity gives NaN. cos(x) is sin a
 *            quarter turn later */
#ifndef DEVICE_ELEMENTARY_H
#define DEVICE_ELEMENTARY_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define EVERY_DEVICE static __host__ __device__ __forceinline__
#else
#define EVERY_DEVICE static inline __attribute__((always_inline))
#endif

/* 1.5 * 2^52. Adding it rounds a number to an integer, in the last bits of the sum. */
#define ELEMENTARY_WHOLE 0x1.8p52
#define ELEMENTARY_PER_LOG_2 0x1.71547652b82fep0
/* log 2 in two parts; the first times an integer below 2^11 is exact. */
#define ELEMENTARY_LOG_2 0x1.62e42feep-1
#define ELEMENTARY_LOG_2_REST 0x1.a39ef35793c76p-33

EVERY_DEVICE uint64_t elementary_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

EVERY_DEVICE double elementary_of_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* exp(x) = *scale * (1 + the result), for x from -708 to 709. */
EVERY_DEVICE double elementary_exp_parts(double x, double *scale) {
    x = x < -708 ? -708 : x > 709 ? 709 : x;
    const double sum = x * ELEMENTARY_PER_LOG_2 + ELEMENTARY_WHOLE, n = sum - ELEMENTARY_WHOLE,
                 r = x - n * ELEMENTARY_LOG_2 - n * ELEMENTARY_LOG_2_REST;
    double p = 1. / 6227020800; /* 1 / 13! */
    p = p * r + 1. / 479001600;
    p = p * r + 1. / 39916800;
    p = p * r + 1. / 3628800;
    p = p * r + 1. / 362880;
    p = p * r + 1. / 40320;
    p = p * r + 1. / 5040;
    p = p * r + 1. / 720;
    p = p * r + 1. / 120;
    p = p * r + 1. / 24;
    p = p * r + 1. / 6;
    p = p * r + 1. / 2;
    *scale = elementary_of_bits((elementary_bits(sum) + 1023) << 52);
    return p * r * r + r;
}

EVERY_DEVICE double elementary_exp(double x) {
    double scale, p = elementary_exp_parts(x, &scale);
    const double y = scale + scale * p;
    return x < -708 ? 0 : x > 709 ? (double)INFINITY : y;
}

EVERY_DEVICE double elementary_expm1(double x) {
    double scale, p = elementary_exp_parts(x, &scale);
    const double y = scale * p + (scale - 1);
    return x > 709 ? (double)INFINITY : x == 0 ? x : y;
}

EVERY_DEVICE double elementary_tanh(double x) {
    const double size = fabs(x), e = elementary_expm1(2 * (size > 20 ? 20 : size));
    return copysign(e / (e + 2), x);
}

/* Computes log for x above 0 that is neither infinite nor subnormal. */
EVERY_DEVICE double elementary_log_inside(double x) {
    /* x = m 2^e, m in [sqrt(1/2), sqrt(2)): shifting sqrt(1/2) to 1 leaves e in the exponent */
    const uint64_t bits = elementary_bits(x),
                   exponent = (bits + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd)) >> 52;
    const double m = elementary_of_bits(bits - ((exponent - 1023) << 52)),
                 n = elementary_of_bits(0x4330000000000000 | exponent) - (0x1p52 + 1023),
                 s = (m - 1) / (m + 1), z = s * s;
    double p = 1. / 23;
    p = p * z + 1. / 21;
    p = p * z + 1. / 19;
    p = p * z + 1. / 17;
    p = p * z + 1. / 15;
    p = p * z + 1. / 13;
    p = p * z + 1. / 11;
    p = p * z + 1. / 9;
    p = p * z + 1. / 7;
    p = p * z + 1. / 5;
    p = p * z + 1. / 3;
    return n * ELEMENTARY_LOG_2 + (n * ELEMENTARY_LOG_2_REST + 2 * s * z * p + 2 * s);
}

/* Computes log for x that is not subnormal. */
EVERY_DEVICE double elementary_log(double x) {
    const double beyond = x < 0 ? (double)NAN : x == 0 ? -(double)INFINITY : x;
    return x > 0 && x < (double)INFINITY ? elementary_log_inside(x) : beyond;
}

/* Computes log1p for finite x from 0. */
EVERY_DEVICE double elementary_log1p(double x) {
    const double sum = 1 + x, lost = (x - (sum - 1)) / sum;
    return elementary_log_inside(sum) + lost;
}

/* erfc(x) for x from 0, without the factor exp(-x^2). */
EVERY_DEVICE double elementary_erfc_factor(double x) {
    const double t = 4 / (4 + x), u = t * (16. / 7) - 9. / 7;
    double p = 0x1.a1df1d3e9e1f9p-35;
    p = p * u - 0x1.e9d1632f33a4fp-34;
    p = p * u - 0x1.8df640854a90fp-31;
    p = p * u + 0x1.a0b83bb3ee08bp-30;
    p = p * u + 0x1.19099e722f2bbp-27;
    p = p * u - 0x1.944eb9fafd7f3p-27;
    p = p * u - 0x1.907cfdf7dbeacp-24;
    p = p * u + 0x1.9c0092bf595e0p-26;
    p = p * u + 0x1.1a896c26f73e6p-20;
    p = p * u + 0x1.b1840535ce7edp-20;
    p = p * u - 0x1.2e3e4fbfba7aep-17;
    p = p * u - 0x1.7ce559c474e5cp-15;
    p = p * u - 0x1.140e78a3342f8p-15;
    p = p * u + 0x1.108be81470d0fp-11;
    p = p * u + 0x1.a27424e327eb2p-9;
    p = p * u + 0x1.778e658615e0bp-7;
    p = p * u + 0x1.f984debd3878dp-6;
    p = p * u + 0x1.13c406cc040d5p-4;
    p = p * u + 0x1.f95e41c119458p-4;
    p = p * u + 0x1.8c35ff09d9d75p-3;
    p = p * u + 0x1.0c5afdcb194cdp-2;
    p = p * u + 0x1.3b35b725c71c9p-2;
    return t * p;
}

EVERY_DEVICE double elementary_erfc(double x) {
    const double size = fabs(x), y = elementary_exp(-x * x) * elementary_erfc_factor(size);
    return x < 0 ? 2 - y : y;
}

/* For a small x the 1 in 1 - erfc(x) would cost bits, so the series is used. */
EVERY_DEVICE double elementary_erf(double x) {
    const double z = x * x;
    double p = 1. / 11975040000; /* 1 / (12! 25), 1 / (11! 23), ... */
    p = p * z - 1. / 918086400;
    p = p * z + 1. / 76204800;
    p = p * z - 1. / 6894720;
    p = p * z + 1. / 685440;
    p = p * z - 1. / 75600;
    p = p * z + 1. / 9360;
    p = p * z - 1. / 1320;
    p = p * z + 1. / 216;
    p = p * z - 1. / 42;
    p = p * z + 1. / 10;
    p = p * z - 1. / 3;
    const double near = 0x1.20dd750429b6dp0 * x * (p * z + 1); /* 2 / sqrt(pi) */
    return fabs(x) < 0.5 ? near : 1 - elementary_erfc(x);
}

/* 2 / pi in pieces of 29 bits: a piece times a float is exact. */
#define ELEMENTARY_EACH_PIECE(PIECE) \
    PIECE(0x1.45f306dp-1)            \
    PIECE(0x1.9391054p-30)           \
    PIECE(0x1.4fe13abp-59)           \
    PIECE(0x1.d1f534dp-88)           \
    PIECE(0x1.b81b6c5p-117)          \
    PIECE(0x1.5993c4p-148)           \
    PIECE(0x1.c820ff2p-175)
#define ELEMENTARY_QUARTER 0x1.921fb54442d18p0 /* pi / 2 */

/* The sine of `whole` quarter turns and a `rest`, which is at most about half a quarter turn. */
EVERY_DEVICE double elementary_sin_of_turns(uint64_t whole, double rest) {
    const double y = rest * ELEMENTARY_QUARTER, z = y * y;
    double s = 1. / 355687428096000; /* 1 / 17! */
    s = s * z - 1. / 1307674368000;
    s = s * z + 1. / 6227020800;
    s = s * z - 1. / 39916800;
    s = s * z + 1. / 362880;
    s = s * z - 1. / 5040;
    s = s * z + 1. / 120;
    s = s * z - 1. / 6;
    double c = 1. / 20922789888000; /* 1 / 16! */
    c = c * z - 1. / 87178291200;
    c = c * z + 1. / 479001600;
    c = c * z - 1. / 3628800;
    c = c * z + 1. / 40320;
    c = c * z - 1. / 720;
    c = c * z + 1. / 24;
    c = c * z - 1. / 2;
    const double sine = s * z * y + y, cosine = c * z + 1;
    return elementary_of_bits(elementary_bits(whole & 1 ? cosine : sine) ^ (whole & 2) << 62);
}

/* The sine of x, a float, and `more` quarter turns. It drops multiples of 4 from each product, and
 * adds up the rest and the rounding errors of that sum. */
EVERY_DEVICE double elementary_sin_and(double x, uint64_t more) {
    const double big = copysign(ELEMENTARY_WHOLE, x); /* has the sign of x */
    double sum = 0, lost = 0;
#define ELEMENTARY_ADD(PIECE)                                                                     \
    {                                                                                             \
        const double product = x * PIECE, part = fabs(product) < 0x1p55 ? product : 0,            \
                     fours = part * 0.25 + big - big, term = part - 4 * fours, next = sum + term, \
                     added = next - sum;                                                          \
        lost += (sum - (next - added)) + (term - added);                                          \
        sum = next;                                                                               \
    }
    ELEMENTARY_EACH_PIECE(ELEMENTARY_ADD)
    const double whole = sum + ELEMENTARY_WHOLE, rest = sum - (whole - ELEMENTARY_WHOLE) + lost,
                 y = elementary_sin_of_turns(elementary_bits(whole) + more, rest);
    return fabs(x) < (double)INFINITY ? y : (double)NAN;
}

EVERY_DEVICE double elementary_sin(double x) {
    const double y = elementary_sin_and(x, 0);
    return x == 0 ? x : y;
}

EVERY_DEVICE double elementary_cos(double x) {
    return elementary_sin_and(x, 1);
}

/* Rounds to the nearest integer, ties to even. */
EVERY_DEVICE double elementary_round(double x) {
    const double y = copysign(fabs(x) + ELEMENTARY_WHOLE - ELEMENTARY_WHOLE, x);
    return fabs(x) < 0x1p51 ? y : x;
}

EVERY_DEVICE double elementary_floor(double x) {
    const double y = elementary_round(x);
    return y > x ? y - 1 : y;
}

#endif
