/* The vector types of the fast path. n16_<isa>.c includes it after choosing the instruction set and
 * defining WIDE, the floats in a vector register, and GROUP, the samples in a group.
 *
 * A group of 16 samples is one register with AVX-512, two with AVX2, four in the generic code.
 * `vec` is one register, or the part of it that a smaller group fills. A kernel treats the PARTS of
 * a group one after another, independently. So every lane sees the same operations in the same
 * order whatever the width, and all give the same bits. That also needs a multiply-add that rounds
 * once everywhere. Under -ffp-contract=off the compiler never fuses one by itself, so fused() is
 * explicit.
 *
 * `wide` is always a whole register: neighbouring pixels or tiles of a small group, or channels. */
#if WIDE == 16
#define ACCUMULATORS 28 /* of 32 registers; the rest hold operands */
#else
#define ACCUMULATORS 13 /* of 16 registers */
#endif
#if GROUP < WIDE
#define LANES GROUP
#else
#define LANES WIDE
#endif
/* A group of one or two samples uses only the first lanes of a vector of four: compilers keep
 * smaller vectors in memory. They are moved as one number of `few`. */
enum { PARTS = GROUP / LANES, VEC_LANES = LANES < 4 ? 4 : LANES };

typedef float vec __attribute__((vector_size(VEC_LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(VEC_LANES * 4)));
typedef uint32_t uvec __attribute__((vector_size(VEC_LANES * 4)));
typedef uint64_t uvec64 __attribute__((vector_size(VEC_LANES * 4))); /* has half as many lanes */
#if LANES < 4
typedef __typeof__(__builtin_choose_expr(LANES == 1, 0.0f, 0.0)) few;
typedef few few_vec __attribute__((vector_size(16)));
typedef few few_in_memory __attribute__((aligned(4), may_alias));
#else
typedef float vec_in_memory __attribute__((vector_size(VEC_LANES * 4), aligned(4), may_alias));
#endif

#define INLINE static inline __attribute__((always_inline))
/* A register tile is an array of fixed size. It stays in registers only if every index into it is
 * a constant, so every loop over it is unrolled completely. A ROLLED loop moves the pixels of an
 * incomplete vector through memory; unrolled it would be no faster and take long to compile. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#define ROLLED _Pragma("GCC unroll 1")
#endif

#if defined(__x86_64__)
#define KEEP_IN_REGISTER(v) __asm__("" : "+v"(v))
#else
#define KEEP_IN_REGISTER(v) (void)(v)
#endif

INLINE vec load(const float *p) {
#if LANES < 4
    return (vec)(few_vec){*(const few_in_memory *)p};
#else
    return *(const vec_in_memory *)p;
#endif
}

/* The same for a vector that several multiply-adds use, which stays in a register. The compiler
 * would otherwise load it again as an operand of each, and the loop would wait for these loads. */
INLINE vec load_once(const float *p) {
    vec v = load(p);
    KEEP_IN_REGISTER(v);
    return v;
}

INLINE void store(float *p, vec v) {
#if LANES < 4
    *(few_in_memory *)p = ((few_vec)v)[0];
#else
    *(vec_in_memory *)p = v;
#endif
}

INLINE vec splat(float s) {
    return s - (vec){0};
}

#if WIDE == 4 && !defined(__FP_FAST_FMAF)
#define FUSED_IS_CALL 1
typedef double two_doubles __attribute__((vector_size(16)));
typedef int64_t two_words __attribute__((vector_size(16)));

/* a * b + c, rounded once, for processors that may have no instruction for it. In double a * b is
 * exact, and sum + error is exactly a * b + c. The sum is rounded to odd: if it is not exact, it is
 * truncated towards 0 and its last bit becomes 1. Rounded to float, it equals the rounded exact
 * sum. It is a call, because inlining it everywhere would make compiling slow. */
static __attribute__((noinline)) vec fused(vec a, vec b, vec c) {
    UNROLL for (int i = 0; i < VEC_LANES; i += 2) {
        two_doubles x = {a[i], a[i + 1]}, y = {b[i], b[i + 1]}, z = {c[i], c[i + 1]},
                    product = x * y, sum = product + z, rest = sum - product,
                    error = (product - (sum - rest)) + (z - rest);
        two_words inexact = (error < 0) | (error > 0), beyond = inexact & ((error < 0) ^ (sum < 0)),
                  odd = ((two_words)sum + beyond) | (inexact & 1);
        c[i] = (float)((two_doubles)odd)[0], c[i + 1] = (float)((two_doubles)odd)[1];
    }
    return c;
}
#else
#define FUSED_IS_CALL 0
/* a * b + c, rounded once. */
INLINE vec fused(vec a, vec b, vec c) {
#if LANES == 16
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif LANES == 8
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif WIDE > 4
    return (vec)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
#else
    UNROLL for (int i = 0; i < VEC_LANES; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
#endif
}
#endif

/* The same for `wide`. */
#if LANES == WIDE
typedef vec wide;
#define load_wide load
#define load_wide_once load_once
#define store_wide store
#define splat_wide splat
#define fused_wide fused
#else
typedef float wide __attribute__((vector_size(WIDE * 4)));
typedef float wide_in_memory __attribute__((vector_size(WIDE * 4), aligned(4), may_alias));

INLINE wide load_wide(const float *p) {
    return *(const wide_in_memory *)p;
}

INLINE wide load_wide_once(const float *p) {
    wide v = load_wide(p);
    KEEP_IN_REGISTER(v);
    return v;
}

INLINE void store_wide(float *p, wide v) {
    *(wide_in_memory *)p = v;
}

INLINE wide splat_wide(float s) {
    return s - (wide){0};
}

INLINE wide fused_wide(wide a, wide b, wide c) {
#if WIDE == 16
    return (wide)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif WIDE == 8
    return (wide)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return fused(a, b, c);
#endif
}
#endif

/* Loads the first `count` lanes; the others are 0. */
INLINE wide load_some(const float *p, int count) {
    wide v = {0};
    if (count == WIDE) return load_wide(p);
    memcpy(&v, p, (size_t)count * sizeof *p);
    return v;
}

INLINE void store_some(float *p, wide v, int count) {
    if (count == WIDE)
        store_wide(p, v);
    else
        memcpy(p, &v, (size_t)count * sizeof *p);
}

/* SHUFFLE(a, b, from, d) is the vector whose lane l is lane from(l, d) of a and b together; the
 * lanes of b are numbered from VEC_LANES on. Compilers need each index as a constant, hence the
 * macros. gcc before version 12 has only the older builtin. */
#if LANES == 16
#define EACH_LANE(f, d)                                                                       \
    f(0, d), f(1, d), f(2, d), f(3, d), f(4, d), f(5, d), f(6, d), f(7, d), f(8, d), f(9, d), \
        f(10, d), f(11, d), f(12, d), f(13, d), f(14, d), f(15, d)
#elif LANES == 8
#define EACH_LANE(f, d) f(0, d), f(1, d), f(2, d), f(3, d), f(4, d), f(5, d), f(6, d), f(7, d)
#else
#define EACH_LANE(f, d) f(0, d), f(1, d), f(2, d), f(3, d)
#endif
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, from, d) __builtin_shufflevector(a, b, EACH_LANE(from, d))
#else
#define SHUFFLE(a, b, from, d) __builtin_shuffle(a, b, (ivec){EACH_LANE(from, d)})
#endif

/* mask ? a : b, lane by lane; a lane of the mask is all ones or all zeros. */
INLINE vec select_vec(ivec mask, vec a, vec b) {
    return (vec)((mask & (ivec)a) | (~mask & (ivec)b));
}

/* The sum of a group's lanes in fold order (base/fold.h): for 16, lanes 8 apart, then 4, 2, 1. */
INLINE float sum_of_group(const float *lanes) {
    float s[GROUP];
    memcpy(s, lanes, sizeof s);
    for (int apart = GROUP / 2; apart > 0; apart /= 2)
        for (int i = 0; i < apart; i++)
            s[i] += s[i + apart];
    return s[0];
}

/* One step of a transposition: rows that differ in bit d of their number exchange the lanes that
 * differ in bit d of theirs. */
#define LOW_ROW(l, d) ((l) & (d) ? VEC_LANES + (l) - (d) : (l))
#define HIGH_ROW(l, d) ((l) & (d) ? VEC_LANES + (l) : (l) + (d))
#define EXCHANGE(row, d)                                \
    UNROLL for (int i = 0; i < LANES; i++) {            \
        if (i & (d)) continue;                          \
        vec low = row[i], high = row[i + (d)];          \
        row[i] = SHUFFLE(low, high, LOW_ROW, d);        \
        row[i + (d)] = SHUFFLE(low, high, HIGH_ROW, d); \
    }

/* y[column][row] = x[row][column] of a LANES x LANES block whose rows are x_step and y_step floats
 * apart. */
INLINE void transpose(const float *x, size_t x_step, float *y, size_t y_step) {
    vec row[LANES];
    UNROLL for (int i = 0; i < LANES; i++) row[i] = load(x + i * x_step);
#if LANES > 1
    EXCHANGE(row, 1)
#endif
#if LANES > 2
    EXCHANGE(row, 2)
#endif
#if LANES > 4
    EXCHANGE(row, 4)
#endif
#if LANES > 8
    EXCHANGE(row, 8)
#endif
    UNROLL for (int i = 0; i < LANES; i++) store(y + i * y_step, row[i]);
}

/* sums[i] = sum_of_group(lanes + i * GROUP), for LANES groups at once. */
INLINE void sums_of_groups(const float *lanes, float *sums) {
    float transposed[GROUP][LANES];
    vec s[GROUP];
    for (int lane = 0; lane < GROUP; lane += LANES)
        transpose(lanes + lane, GROUP, transposed[lane], LANES);
    UNROLL for (int i = 0; i < GROUP; i++) s[i] = load(transposed[i]);
    UNROLL for (int apart = GROUP / 2; apart > 0; apart /= 2) {
        UNROLL for (int i = 0; i < apart; i++) s[i] += s[i + apart];
    }
    store(sums, s[0]);
}
