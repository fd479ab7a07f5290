/* The vector of the fast path: one type, three widths. Included by n16_<isa>.c, which has set
 * the target.
 *
 * A group of N16 is 16 samples: one AVX-512 register, two of AVX2, four of the generic four-lane
 * kind. `vec` is one register's worth; a kernel treats the group's PARTS one after another, each
 * as if it were alone, so it has the same register tiles in mind whatever the width and every
 * lane sees the same operations in the same order: the bits are equal on all three. That needs
 * one thing more: a multiply-add that rounds once everywhere. Under -ffp-contract=off the
 * compiler never fuses by itself, so fused() asks for it by name. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#define ACCUMULATORS 28 /* of 32 registers; the rest hold operands */
#elif defined(__AVX2__)
#define LANES 8
#define ACCUMULATORS 13 /* of 16 */
#else
#define LANES 4
#define ACCUMULATORS 13
#endif
enum { PARTS = GROUP / LANES };

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));
typedef uint32_t uvec __attribute__((vector_size(LANES * 4)));
typedef uint64_t uvec64 __attribute__((vector_size(LANES * 4))); /* half as many lanes */
typedef float vec_in_memory __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))
/* A register tile is an array of fixed size, indexed by constants alone: every loop over it must
 * be unrolled whole. */
#define UNROLL _Pragma("GCC unroll 32")

INLINE vec load(const float *p) {
    return *(const vec_in_memory *)p;
}

/* The same, and kept in a register: for a vector that several multiply-adds use. The compiler
 * would rather load it anew as an operand of each, and the loads would then be what the loop
 * waits for. */
INLINE vec load_once(const float *p) {
    vec v = load(p);
#if defined(__AVX512F__)
    __asm__("" : "+v"(v));
#elif defined(__x86_64__)
    __asm__("" : "+x"(v));
#endif
    return v;
}

INLINE void store(float *p, vec v) {
    *(vec_in_memory *)p = v;
}

INLINE vec splat(float s) {
    return s - (vec){0};
}

/* a * b + c, rounded once. */
INLINE vec fused(vec a, vec b, vec c) {
#if defined(__AVX512F__)
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    UNROLL for (int i = 0; i < LANES; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
#endif
}

/* Square roots, correctly rounded everywhere. */
INLINE vec roots(vec x) {
#if defined(__AVX512F__)
    return (vec)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
    return (vec)_mm256_sqrt_ps((__m256)x);
#else
    UNROLL for (int i = 0; i < LANES; i++) x[i] = __builtin_sqrtf(x[i]);
    return x;
#endif
}

/* Pairs in memory, a b a b ..., as a vector of the a and one of the b; and back. */
INLINE void load_pairs(const float *pairs, vec *a, vec *b) {
    vec low = load(pairs), high = load(pairs + LANES);
    ivec even = {0}; /* indices into both, the second's from LANES on */
    UNROLL for (int i = 0; i < LANES; i++) even[i] = 2 * i;
    *a = __builtin_shuffle(low, high, even);
    *b = __builtin_shuffle(low, high, even + 1);
}

INLINE void store_pairs(float *pairs, vec a, vec b) {
    ivec low = {0};
    UNROLL for (int i = 0; i < LANES; i++) low[i] = i / 2 + i % 2 * LANES;
    store(pairs, __builtin_shuffle(a, b, low));
    store(pairs + LANES, __builtin_shuffle(a, b, low + LANES / 2));
}

/* mask (all ones or all zeros a lane) ? a : b */
INLINE vec select_vec(ivec mask, vec a, vec b) {
    return (vec)((mask & (ivec)a) | (~mask & (ivec)b));
}

/* The 16 lanes of a group as one number, in one order everywhere: 8 apart, then 4, 2, 1. */
INLINE float sum_of_group(const float *lanes) {
    float s[GROUP];
    memcpy(s, lanes, sizeof s);
    for (int apart = GROUP / 2; apart > 0; apart /= 2)
        for (int i = 0; i < apart; i++)
            s[i] += s[i + apart];
    return s[0];
}

/* y[column][row] = x[row][column] of a LANES x LANES block whose rows lie x_step and y_step
 * floats apart. In turn for d = 1, 2, 4, ...: rows that differ in bit d exchange the lanes that
 * differ in bit d. */
INLINE void transpose(const float *x, size_t x_step, float *y, size_t y_step) {
    vec row[LANES];
    UNROLL for (int i = 0; i < LANES; i++) row[i] = load(x + i * x_step);
    UNROLL for (int d = 1; d < LANES; d *= 2) {
        /* lane l of the new row: an index into both rows, the second's from LANES on */
        ivec low = {0}, high = {0};
        UNROLL for (int l = 0; l < LANES; l++) {
            low[l] = l & d ? LANES + l - d : l;
            high[l] = l & d ? LANES + l : l + d;
        }
        UNROLL for (int i = 0; i < LANES; i++) {
            if (i & d) continue;
            vec a = row[i], b = row[i + d];
            row[i] = __builtin_shuffle(a, b, low);
            row[i + d] = __builtin_shuffle(a, b, high);
        }
    }
    UNROLL for (int i = 0; i < LANES; i++) store(y + i * y_step, row[i]);
}
