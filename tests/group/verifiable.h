/* Inputs whose results are known without adding anything up, in the way of NVIDIA's nccl-tests
 * (`-c 1`): they use all bits of a type and nearly all of its exponents, and yet every order of
 * adding gives one exact result.
 *
 *     sum       whole numbers times one power of two, with either sign: no partial sum needs more
 *               bits than the type has
 *     product   one rank has a random mantissa, all others a power of two with either sign
 *     min, max  random numbers of any exponent
 *     average   two ranks have random numbers, all others 0; the terms are rounded, so the result
 *               may be off by AVERAGE_ULPS
 *     integers  random bits; sums and products wrap around
 *     copies    random bits, those of NaN included */
#ifndef TESTS_GROUP_VERIFIABLE_H
#define TESTS_GROUP_VERIFIABLE_H

#include <math.h>
#include <string.h>

#include "allreduce/element.h"

/* 1/n is rounded, so are both terms and their sum: half a unit in the last place each. */
static const double AVERAGE_ULPS = 2;

struct verifiable {
    struct arithmetic how;
    int average, n;
    uint64_t seed;
};

static inline uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline uint64_t bits_of(const struct verifiable *v, int rank, size_t i) {
    return mix(v->seed ^ mix((uint64_t)i * 64 + (uint64_t)rank + 1));
}

/* Bits of the mantissa behind the point, and the largest exponent. */
static inline int mantissa(enum element_type type) {
    return type == ELEMENT_F64 ? 52 : type == ELEMENT_F32 ? 23 : type == ELEMENT_F16 ? 10 : 7;
}
static inline int top_exponent(enum element_type type) {
    return type == ELEMENT_F64 ? 1023 : type == ELEMENT_F16 ? 15 : 127;
}

/* x must be a number of the type. */
static inline void put_float(enum element_type type, void *out, double x) {
    float f = (float)x;
    uint16_t h = type == ELEMENT_F16 ? f16_of_float(f) : bf16_of_float(f);
    memcpy(out,
           type == ELEMENT_F64   ? (void *)&x
           : type == ELEMENT_F32 ? (void *)&f
                                 : (void *)&h,
           element_bytes(type));
}

static inline double get_float(enum element_type type, const void *in) {
    double d = 0;
    float f;
    uint16_t h;
    memcpy(&h, in, sizeof h);
    if (type == ELEMENT_F16) return (double)float_of_f16(h);
    if (type == ELEMENT_BF16) return (double)float_of_bf16(h);
    memcpy(type == ELEMENT_F64 ? (void *)&d : (void *)&f, in, element_bytes(type));
    return type == ELEMENT_F64 ? d : (double)f;
}

static inline int64_t get_int(enum element_type type, const void *in) {
    int64_t l;
    int32_t i;
    if (type == ELEMENT_U8) return *(const uint8_t *)in;
    memcpy(type == ELEMENT_I64 ? (void *)&l : (void *)&i, in, element_bytes(type));
    return type == ELEMENT_I64 ? l : i;
}

/* ---- inputs ---- */

/* A whole number of a sum; all ranks' together have no more bits than the type. */
static inline double whole(const struct verifiable *v, int rank, size_t i) {
    uint64_t bits = bits_of(v, rank, i),
             most = (((uint64_t)2 << mantissa(v->how.type)) - 1) / (uint64_t)v->n;
    double x = (double)((bits >> 1) % (most + 1));
    return bits & 1 ? -x : x;
}

/* The exponent that all ranks share; subnormal results among them. */
static inline int shared_exponent(const struct verifiable *v, size_t i) {
    int most = top_exponent(v->how.type) - mantissa(v->how.type) - 1,
        least = 1 - top_exponent(v->how.type) - mantissa(v->how.type);
    return least + (int)(bits_of(v, -1, i) % (uint64_t)(most - least + 1));
}

static inline int factor_exponent(const struct verifiable *v, int rank, size_t i) {
    int most = (top_exponent(v->how.type) - 2) / v->n;
    return (int)((bits_of(v, rank, i) >> 8) % (uint64_t)(2 * most + 1)) - most;
}

static inline double factor(const struct verifiable *v, int rank, size_t i) {
    uint64_t bits = bits_of(v, rank, i), all = (uint64_t)1 << mantissa(v->how.type);
    int has_mantissa = rank == (int)(bits_of(v, -1, i) % (uint64_t)v->n);
    double x = has_mantissa ? 1 + (double)(bits_of(v, -2, i) % all) / (double)all : 1;
    return ldexp(bits & 1 ? -x : x, factor_exponent(v, rank, i));
}

/* A term of an average: two ranks have one. */
static inline double term(const struct verifiable *v, int rank, size_t i) {
    int first = (int)(bits_of(v, -1, i) % (uint64_t)v->n), distance = v->n - 1;
    int second = distance
                     ? (first + 1 + (int)((bits_of(v, -1, i) >> 8) % (uint64_t)distance)) % v->n
                     : first;
    if (rank != first && rank != second) return 0;
    return 1 + (double)(bits_of(v, rank, i) % ((uint64_t)1 << mantissa(v->how.type)));
}

/* Random bits, but for floats that are compared no NaN and no infinity. */
static inline void random_bits(const struct verifiable *v, int rank, size_t i, int copied,
                               void *out) {
    static const uint64_t highest_exponent_bit[] = {
        [ELEMENT_F32] = 1u << 30, [ELEMENT_F64] = 1ull << 62, [ELEMENT_F16] = 1 << 14,
        [ELEMENT_BF16] = 1 << 14, [ELEMENT_I32] = 0,          [ELEMENT_I64] = 0,
        [ELEMENT_U8] = 0};
    uint64_t bits = bits_of(v, rank, i);
    memcpy(out, &bits, element_bytes(v->how.type));
    if (copied || !element_is_float(v->how.type) || isfinite(get_float(v->how.type, out))) return;
    bits &= ~highest_exponent_bit[v->how.type];
    memcpy(out, &bits, element_bytes(v->how.type));
}

/* Element i of what a rank brings to be reduced; or, where `copied`, to be copied. */
static inline void verifiable_input(const struct verifiable *v, int rank, size_t i, int copied,
                                    void *out) {
    enum element_type type = v->how.type;
    int is_float = element_is_float(type) && !copied;
    if (is_float && v->average)
        put_float(type, out, term(v, rank, i));
    else if (is_float && v->how.op == ELEMENT_SUM)
        put_float(type, out, ldexp(whole(v, rank, i), shared_exponent(v, i)));
    else if (is_float && v->how.op == ELEMENT_PRODUCT)
        put_float(type, out, factor(v, rank, i));
    else
        random_bits(v, rank, i, copied, out);
}

/* ---- results ---- */

static inline double float_result(const struct verifiable *v, size_t i) {
    char input[8];
    double result = 0;
    for (int r = 0; r < v->n; r++) {
        if (v->average)
            result += term(v, r, i) / v->n;
        else if (v->how.op == ELEMENT_SUM)
            result += whole(v, r, i);
        else if (v->how.op == ELEMENT_PRODUCT)
            result = r ? result * factor(v, r, i) : factor(v, r, i);
        else {
            verifiable_input(v, r, i, 0, input);
            double x = get_float(v->how.type, input);
            if (r == 0 || (v->how.op == ELEMENT_MIN ? x < result : x > result)) result = x;
        }
    }
    int is_sum = v->how.op == ELEMENT_SUM && !v->average;
    return is_sum ? ldexp(result, shared_exponent(v, i)) : result;
}

static inline int64_t int_result(const struct verifiable *v, size_t i) {
    char input[8];
    int64_t result = 0;
    for (int r = 0; r < v->n; r++) {
        verifiable_input(v, r, i, 0, input);
        int64_t x = get_int(v->how.type, input);
        if (r == 0)
            result = x;
        else if (v->how.op == ELEMENT_SUM)
            result = (int64_t)((uint64_t)result + (uint64_t)x);
        else if (v->how.op == ELEMENT_PRODUCT)
            result = (int64_t)((uint64_t)result * (uint64_t)x);
        else if (v->how.op == ELEMENT_MIN ? x < result : x > result)
            result = x;
    }
    return v->how.type == ELEMENT_I32  ? (int32_t)(uint32_t)(uint64_t)result
           : v->how.type == ELEMENT_U8 ? (uint8_t)(uint64_t)result
                                       : result;
}

/* 1 if `got` is what element i of the reduction must be. */
static inline int verifiable_is(const struct verifiable *v, size_t i, const void *got) {
    enum element_type type = v->how.type;
    if (!element_is_float(type)) return get_int(type, got) == int_result(v, i);
    double x = get_float(type, got), want = float_result(v, i);
    if (!v->average) return x == want;
    double ulp = want > 0 ? ldexp(1, ilogb(want) - mantissa(type)) : 0;
    return fabs(x - want) <= AVERAGE_ULPS * ulp;
}

#endif
