/* Instructions on floats and doubles, and conversions. They are IEEE's, rounded to nearest, which
 * is what PTX promises of the forms that say .rn; a form without it (add.f32) is not in the table,
 * since ptxas may fuse it with another. A NaN that a float instruction makes has the bits
 * 0x7fffffff, as on a GPU.
 *
 * Two forms are approximations, whose last bits each GPU has for itself. Here ex2.approx is the C
 * library's, and rcp.approx.ftz.f64, with which Newton's method begins, has 20 good bits. */
#include <math.h>
#include <string.h>

#include "tests/stand_ins/ptx/form.h"

static inline u32 bits_of(f32 x) {
    u32 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline f32 of_bits(u32 bits) {
    f32 x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline f32 one_nan(f32 x) {
    return x == x ? x : of_bits(0x7fffffff);
}

static inline f64 same(f64 x) {
    return x;
}

#define ARITHMETIC(type, made)                        \
    BINARY(add_##type, type, type, type, made(a + b)) \
    BINARY(sub_##type, type, type, type, made(a - b)) \
    BINARY(mul_##type, type, type, type, made(a *b))  \
    BINARY(div_##type, type, type, type, made(a / b)) \
    UNARY(rcp_##type, type, type, made((type)1 / a))
ARITHMETIC(f32, one_nan)
ARITHMETIC(f64, same)
TERNARY(fma_f32, f32, f32, one_nan(fmaf(a, b, c)))
TERNARY(fma_f64, f64, f64, fma(a, b, c))
UNARY(sqrt_f32, f32, f32, one_nan(sqrtf(a)))
UNARY(sqrt_f64, f64, f64, sqrt(a))
UNARY(neg_f32, u32, u32, a ^ 0x80000000u)
UNARY(neg_f64, u64, u64, a ^ (u64)1 << 63)
UNARY(abs_f32, u32, u32, a & 0x7fffffffu)
UNARY(abs_f64, u64, u64, a & ~((u64)1 << 63))
/* the sign of the first, the rest of the second */
BINARY(sign_f32, f32, f32, f32, copysignf(b, a))
BINARY(sign_f64, f64, f64, f64, copysign(b, a))

/* ftz: a subnormal float is zero, before and after. */
static inline f32 flushed(f32 x) {
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}
UNARY(ex2_approx, f32, f32, one_nan(flushed(exp2f(flushed(a)))))

/* Of the argument and the result the upper halves count. */
static inline f64 rcp_seed(u64 bits) {
    f64 x;
    bits &= ~(u64)0xffffffff;
    memcpy(&x, &bits, sizeof x);
    x = 1 / x;
    memcpy(&bits, &x, sizeof x);
    bits &= ~(u64)0xffffffff;
    memcpy(&x, &bits, sizeof x);
    return fabs(x) < 0x1p-1022 ? copysign(0, x) : x;
}
UNARY(rcp_approx, f64, u64, rcp_seed(a))

/* ---- conversions ---- */

UNARY(u16_of_u32, u16, u32, a)
UNARY(u16_of_u64, u16, u64, a)
UNARY(u32_of_u16, u32, u16, a)
UNARY(s32_of_s16, s32, int16_t, a)
UNARY(u64_of_u16, u64, u16, a)
UNARY(u64_of_u32, u64, u32, a)
UNARY(u32_of_u64, u32, u64, a)
UNARY(s64_of_s32, s64, s32, a)
UNARY(f64_of_f32, f64, f32, a)
UNARY(f32_of_f64, f32, f64, one_nan((f32)a))
UNARY(f32_of_u16, f32, u16, a)
UNARY(f32_of_s32, f32, s32, a)
UNARY(f32_of_u32, f32, u32, a)
UNARY(f64_of_s32, f64, s32, a)
UNARY(f64_of_u32, f64, u32, a)
UNARY(f64_of_s64, f64, s64, a)
UNARY(f64_of_u64, f64, u64, a)
UNARY(rounded, f32, f32, rintf(a))
UNARY(floor_f64, f64, f64, floor(a))
UNARY(trunc_f64, f64, f64, trunc(a))
/* to the nearest number that there is; NaN gives 0 */
UNARY(s32_of_f32, s32, f32,
      isnan(a)            ? 0
      : a >= 2147483648.f ? INT32_MAX
      : a < -2147483648.f ? INT32_MIN
                          : (s32)a)
/* to 10 bits of mantissa, ties away from zero */
UNARY(tf32_of_f32, u32, u32, (a & 0x7f800000u) == 0x7f800000u ? a : (a + 0x1000u) & ~0x1fffu)

const struct ptx_form ptx_float_forms[] = {
    {"fma.rn.f32", fma_f32, "wwww"},
    {"fma.rn.f64", fma_f64, "dddd"},
    {"add.rn.f32", add_f32, "www"},
    {"add.rn.f64", add_f64, "ddd"},
    {"sub.rn.f32", sub_f32, "www"},
    {"sub.rn.f64", sub_f64, "ddd"},
    {"mul.rn.f32", mul_f32, "www"},
    {"mul.rn.f64", mul_f64, "ddd"},
    {"div.rn.f32", div_f32, "www"},
    {"div.rn.f64", div_f64, "ddd"},
    {"rcp.rn.f32", rcp_f32, "ww"},
    {"rcp.rn.f64", rcp_f64, "dd"},
    {"sqrt.rn.f32", sqrt_f32, "ww"},
    {"sqrt.rn.f64", sqrt_f64, "dd"},
    {"neg.f32", neg_f32, "ww"},
    {"neg.f64", neg_f64, "dd"},
    {"abs.f32", abs_f32, "ww"},
    {"abs.f64", abs_f64, "dd"},
    {"copysign.f32", sign_f32, "www"},
    {"copysign.f64", sign_f64, "ddd"},
    {"ex2.approx.ftz.f32", ex2_approx, "ww"},
    {"rcp.approx.ftz.f64", rcp_approx, "dd"},
    {NULL, NULL, NULL},
};

const struct ptx_form ptx_convert_forms[] = {
    {"cvt.u16.u32", u16_of_u32, "hw"},
    {"cvt.u16.u64", u16_of_u64, "hd"},
    {"cvt.u32.u16", u32_of_u16, "wh"},
    {"cvt.s32.s16", s32_of_s16, "wh"},
    {"cvt.u64.u16", u64_of_u16, "dh"},
    {"cvt.u64.u32", u64_of_u32, "dw"},
    {"cvt.u32.u64", u32_of_u64, "wd"},
    {"cvt.s64.s32", s64_of_s32, "dw"},
    {"cvt.f64.f32", f64_of_f32, "dw"},
    {"cvt.rn.f32.f64", f32_of_f64, "wd"},
    {"cvt.rn.f32.u16", f32_of_u16, "wh"},
    {"cvt.rn.f32.s32", f32_of_s32, "ww"},
    {"cvt.rn.f32.u32", f32_of_u32, "ww"},
    {"cvt.rn.f64.s32", f64_of_s32, "dw"},
    {"cvt.rn.f64.u32", f64_of_u32, "dw"},
    {"cvt.rn.f64.s64", f64_of_s64, "dd"},
    {"cvt.rn.f64.u64", f64_of_u64, "dd"},
    {"cvt.rni.f32.f32", rounded, "ww"},
    {"cvt.rna.tf32.f32", tf32_of_f32, "ww"},
    {"cvt.rmi.f64.f64", floor_f64, "dd"},
    {"cvt.rzi.f64.f64", trunc_f64, "dd"},
    {"cvt.rzi.s32.f32", s32_of_f32, "ww"},
    {NULL, NULL, NULL},
};
