/* MT19937, and PyTorch's rules on top of it. The same engine is not enough to draw the same floats
 * as another program. The order of the draws, the precision of each step, and whether a
 * multiply-add rounds once (fmaf) or twice all matter. If any of them changes, weights differ in
 * their last bit, and after a long run in every digit. */
#include "base/random.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { N = 624, M = 397, BLOCK = 16 };

void rng_seed(struct rng *r, uint64_t seed) {
    r->state[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < N; i++) {
        uint32_t before = r->state[i - 1];
        r->state[i] = 1812433253u * (before ^ (before >> 30)) + i;
    }
    r->next = N;
    r->has_normal = 0;
    r->normal = 0;
}

/* The recurrence: the new word i is made of its own top bit, the other bits of word i+1, and word
 * i+397; after the last word comes the first. */
INLINE uint32_t new_word(uint32_t word, uint32_t next, uint32_t far) {
    uint32_t mixed = (word & 0x80000000u) | (next & 0x7fffffffu);
    return far ^ (mixed >> 1) ^ (mixed & 1 ? 0x9908b0dfu : 0);
}

static void renew(struct rng *r) {
    uint32_t *s = r->state;
    for (int i = 0; i < N - M; i++)
        s[i] = new_word(s[i], s[i + 1], s[i + M]);
    for (int i = N - M; i < N - 1; i++)
        s[i] = new_word(s[i], s[i + 1], s[i + M - N]);
    s[N - 1] = new_word(s[N - 1], s[0], s[M - 1]);
    r->next = 0;
}

uint32_t rng_u32(struct rng *r) {
    if (r->next >= N) renew(r);
    uint32_t y = r->state[r->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

uint64_t rng_u64(struct rng *r) {
    uint64_t high = rng_u32(r);
    return high << 32 | rng_u32(r);
}

double rng_double(struct rng *r) {
    return (double)(rng_u64(r) & ((1ull << 53) - 1)) * 0x1p-53;
}

static float unit_float(struct rng *r) {
    return (float)(rng_u32(r) & 0xffffffu) * 0x1p-24f;
}

void rng_uniform(struct rng *r, float *x, size_t count, double from, double to) {
    float low = (float)from, width = (float)to - low;
    for (size_t i = 0; i < count; i++)
        x[i] = fmaf(unit_float(r), width, low);
}

/* Kaiming uniform (He et al. 2015) with slope sqrt(5), whose gain is sqrt(1/3): the bound is that
 * of the bias. The steps are PyTorch's, because their roundings change the last bit. */
void rng_weight(struct rng *r, float *x, size_t count, int fan_in) {
    double slope = sqrt(5.0), gain = sqrt(2.0 / (1.0 + slope * slope));
    double bound = sqrt(3.0) * (gain / sqrt((double)fan_in));
    rng_uniform(r, x, count, -bound, bound);
}

void rng_bias(struct rng *r, float *x, size_t count, int fan_in) {
    double bound = 1.0 / sqrt((double)fan_in);
    rng_uniform(r, x, count, -bound, bound);
}

int64_t rng_integer(struct rng *r, int64_t low, uint64_t range) {
    uint64_t above = range < RNG_WIDE_RANGE ? rng_u32(r) % range : rng_u64(r) % range;
    return (int64_t)((uint64_t)low + above);
}

void rng_integers(struct rng *r, int32_t *x, size_t count, int32_t range) {
    for (size_t i = 0; i < count; i++)
        x[i] = (int32_t)rng_integer(r, 0, (uint64_t)range);
}

void rng_permutation(struct rng *r, int32_t *order, int n) {
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = 0; i < n - 1; i++) {
        int j = i + (int)(rng_u32(r) % (uint32_t)(n - i));
        int32_t kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

/* Natural logarithm in float, as in the vector form of Cephes: x = m 2^e with m in [sqrt(1/2),
 * sqrt(2)), a polynomial in m - 1, and e ln 2 added in two parts. '*' and '+' round the product and
 * the sum separately, fmaf rounds once; the bits of the result depend on which is used where. */
INLINE float log_cephes(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    float e = (float)((int)(bits >> 23) - 126);
    bits = (bits & 0x007fffffu) | 0x3f000000u;
    float m;
    memcpy(&m, &bits, sizeof m);
    e -= m < 0.70710678f ? 1.0f : 0.0f;
    m = (m - 1.0f) + (m < 0.70710678f ? m : 0.0f);
    float z = m * m, y = 7.0376836292e-2f;
    y = fmaf(y, m, -1.1514610310e-1f);
    y = fmaf(y, m, 1.1676998740e-1f);
    y = fmaf(y, m, -1.2420140846e-1f);
    y = fmaf(y, m, 1.4249322787e-1f);
    y = fmaf(y, m, -1.6668057665e-1f);
    y = fmaf(y, m, 2.0000714765e-1f);
    y = fmaf(y, m, -2.4999993993e-1f);
    y = fmaf(y, m, 3.3333331174e-1f);
    y = y * m;
    y = fmaf(y, z, e * -2.12194440e-4f);
    y -= z * 0.5f;
    m += y;
    return fmaf(e, 0.693359375f, m);
}

/* Sine and cosine of x >= 0, also as in Cephes: j times pi/4 is subtracted from x in three parts,
 * and the bits of j select which polynomial gives the sine, and the signs. */
INLINE void sincos_cephes(float x, float *sine, float *cosine) {
    int j = ((int)(x * 1.27323954473516f) + 1) & ~1;
    float k = (float)j;
    x = fmaf(k, -0.78515625f, x);
    x = fmaf(k, -2.4187564849853515625e-4f, x);
    x = fmaf(k, -3.77489497744594108e-8f, x);
    float z = x * x;
    float c = 2.443315711809948e-5f;
    c = fmaf(c, z, -1.388731625493765e-3f);
    c = fmaf(c, z, 4.166664568298827e-2f);
    c = c * z;
    c = fmaf(c, z, -(z * 0.5f));
    c += 1.0f;
    float s = -1.9515295891e-4f;
    s = fmaf(s, z, 8.3321608736e-3f);
    s = fmaf(s, z, -1.6666654611e-1f);
    s = s * z;
    s = fmaf(s, x, x);
    const float first = j & 2 ? c : s, second = j & 2 ? s : c;
    *sine = j & 4 ? -first : first;
    *cosine = (j - 2) & 4 ? second : -second;
}

/* Box-Muller on 16 uniform values in place. Element i of the first half is paired with element i
 * of the second half. */
INLINE void normal_block(float *x, float mean, float std) {
    for (int i = 0; i < BLOCK / 2; i++) {
        /* u1 is in (0, 1], so its logarithm is finite. */
        float u1 = 1.0f - x[i], u2 = x[i + BLOCK / 2];
        float radius = sqrtf(-2.0f * log_cephes(u1)), sine, cosine;
        sincos_cephes((float)(2.0 * 3.14159265358979323846) * u2, &sine, &cosine);
        x[i] = fmaf(radius * cosine, std, mean);
        x[i + BLOCK / 2] = fmaf(radius * sine, std, mean);
    }
}

INLINE void normal_blocks(float *x, size_t count, float mean, float std) {
    for (size_t i = 0; i + BLOCK <= count; i += BLOCK)
        normal_block(x + i, mean, std);
}

#if defined(__x86_64__)
/* The same, with fmaf as an instruction instead of a call, so that the compiler vectorises it. */
__attribute__((target("avx2,fma"))) static void fused_normal_blocks(float *x, size_t count,
                                                                    float mean, float std) {
    normal_blocks(x, count, mean, std);
}
#endif

static void all_normal_blocks(float *x, size_t count, float mean, float std) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        fused_normal_blocks(x, count, mean, std);
        return;
    }
#endif
    normal_blocks(x, count, mean, std);
}

/* One normal value for a tensor of fewer than 16 elements. Values come in pairs; the second is kept
 * for the next call, even if that fills another tensor. */
static double normal_double(struct rng *r) {
    if (r->has_normal) {
        r->has_normal = 0;
        return r->normal;
    }
    double u1 = rng_double(r), u2 = rng_double(r);
    double radius = sqrt(-2.0 * log1p(-u2)), angle = 2.0 * 3.14159265358979323846 * u1;
    r->normal = radius * sin(angle);
    r->has_normal = 1;
    return radius * cos(angle);
}

void rng_normal(struct rng *r, float *x, size_t count, double mean, double std) {
    if (count < BLOCK) {
        for (size_t i = 0; i < count; i++)
            x[i] = (float)(normal_double(r) * std + mean);
        return;
    }
    for (size_t i = 0; i < count; i++)
        x[i] = unit_float(r);
    all_normal_blocks(x, count, (float)mean, (float)std);
    if (count % BLOCK == 0) return;
    /* The count is not a multiple of 16: PyTorch draws the last 16 elements again. */
    float *last = x + count - BLOCK;
    for (int i = 0; i < BLOCK; i++)
        last[i] = unit_float(r);
    all_normal_blocks(last, BLOCK, (float)mean, (float)std);
}
