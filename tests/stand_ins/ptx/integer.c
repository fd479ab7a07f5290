/* Instructions on integers, bits and predicates. Sums and products wrap; a shift by the width or
 * more leaves nothing, or the sign. */
#include "tests/stand_ins/ptx/form.h"

__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 s128;

UNARY(copy_16, u16, u16, a)
UNARY(copy_32, u32, u32, a)
UNARY(copy_64, u64, u64, a)
BINARY(add_16, u16, u16, u16, a + b)
BINARY(add_32, u32, u32, u32, a + b)
BINARY(add_64, u64, u64, u64, a + b)
BINARY(sub_16, u16, u16, u16, a - b)
BINARY(sub_32, u32, u32, u32, a - b)
BINARY(sub_64, u64, u64, u64, a - b)
BINARY(mul_16, u16, u16, u16, (u32)a *b)
BINARY(mul_32, u32, u32, u32, a *b)
BINARY(mul_64, u64, u64, u64, a *b)
BINARY(high_u32, u32, u32, u32, (u64)a *b >> 32)
BINARY(high_s32, s32, s32, s32, (s64)a *b >> 32)
BINARY(high_u64, u64, u64, u64, (u128)a *b >> 64)
BINARY(high_s64, s64, s64, s64, (s128)a *b >> 64)
BINARY(wide_u16, u32, u16, u16, (u32)a *b)
BINARY(wide_u32, u64, u32, u32, (u64)a *b)
BINARY(wide_s32, s64, s32, s32, (s64)a *b)
TERNARY(mad_32, u32, u32, a *b + c)
TERNARY(mad_64, u64, u64, a *b + c)
TERNARY(mad_wide_u32, u64, u32, (u64)a *b + c)
TERNARY(mad_wide_s32, s64, s32, (s64)((u64)((s64)a *b) + (u64)c))

/* By zero: what PTX leaves open. */
BINARY(div_u32, u32, u32, u32, b ? a / b : ~0u)
BINARY(div_u64, u64, u64, u64, b ? a / b : ~(u64)0)
BINARY(rem_u32, u32, u32, u32, b ? a % b : a)
BINARY(rem_u64, u64, u64, u64, b ? a % b : a)
BINARY(div_s32, s32, s32, s32, !b ? -1 : b == -1 ? (s32)(0 - (u32)a) : a / b)
BINARY(rem_s32, s32, s32, s32, !b ? a : b == -1 ? 0 : a % b)
BINARY(div_s64, s64, s64, s64, !b ? -1 : b == -1 ? (s64)(0 - (u64)a) : a / b)
BINARY(rem_s64, s64, s64, s64, !b ? a : b == -1 ? 0 : a % b)

BINARY(min_u32, u32, u32, u32, a < b ? a : b)
BINARY(max_u32, u32, u32, u32, a > b ? a : b)
BINARY(min_s32, s32, s32, s32, a < b ? a : b)
BINARY(max_s32, s32, s32, s32, a > b ? a : b)
BINARY(min_u64, u64, u64, u64, a < b ? a : b)
BINARY(max_u64, u64, u64, u64, a > b ? a : b)
BINARY(min_s64, s64, s64, s64, a < b ? a : b)
BINARY(max_s64, s64, s64, s64, a > b ? a : b)
UNARY(neg_32, u32, u32, 0 - a)
UNARY(neg_64, u64, u64, 0 - a)
UNARY(abs_s32, u32, u32, a >> 31 ? 0 - a : a)

BINARY(and_16, u16, u16, u16, a &b)
BINARY(and_32, u32, u32, u32, a &b)
BINARY(and_64, u64, u64, u64, a &b)
BINARY(or_16, u16, u16, u16, a | b)
BINARY(or_32, u32, u32, u32, a | b)
BINARY(or_64, u64, u64, u64, a | b)
BINARY(xor_16, u16, u16, u16, a ^ b)
BINARY(xor_32, u32, u32, u32, a ^ b)
BINARY(xor_64, u64, u64, u64, a ^ b)
UNARY(not_16, u16, u16, ~a)
UNARY(not_32, u32, u32, ~a)
UNARY(not_64, u64, u64, ~a)
BINARY(shl_32, u32, u32, u32, b < 32 ? a << b : 0)
BINARY(shl_64, u64, u64, u32, b < 64 ? a << b : 0)
BINARY(shr_u32, u32, u32, u32, b < 32 ? a >> b : 0)
BINARY(shr_u64, u64, u64, u32, b < 64 ? a >> b : 0)
BINARY(shr_s32, s32, s32, u32, a >> (b < 32 ? b : 31))
BINARY(shr_s64, s64, s64, u32, a >> (b < 64 ? b : 63))
UNARY(popc_32, u32, u32, __builtin_popcount(a))
UNARY(popc_64, u32, u64, __builtin_popcountll(a))

/* d = b with `length` bits from bit `from` on replaced by those of a. */
#define INSERT(name, type, width)                                                            \
    static void name(struct ptx_warp *w, const struct ptx_instr *in) {                       \
        type *d = PTX_AT(type, 0);                                                           \
        const type *a = PTX_AT(type, 1), *b = PTX_AT(type, 2);                               \
        const u32 *from = PTX_AT(u32, 3), *length = PTX_AT(u32, 4);                          \
        PTX_EACH_LANE(const u32 f = from[l] & 0xff; const u32 n = length[l] & 0xff;          \
                      const type bits = n < width ? ((type)1 << n) - 1 : ~(type)0;           \
                      d[l] = f < width ? (b[l] & ~(bits << f)) | (a[l] & bits) << f : b[l]); \
    }
INSERT(insert_32, u32, 32)
INSERT(insert_64, u64, 64)

#define SELECT(name, type)                                             \
    static void name(struct ptx_warp *w, const struct ptx_instr *in) { \
        type *d = PTX_AT(type, 0);                                     \
        const type *a = PTX_AT(type, 1), *b = PTX_AT(type, 2);         \
        const u32 p = *PTX_AT(u32, 3);                                 \
        PTX_EACH_LANE(d[l] = p >> l & 1 ? a[l] : b[l]);                \
    }
SELECT(select_16, u16)
SELECT(select_32, u32)
SELECT(select_64, u64)

#define PREDICATE(name, ...)                                           \
    static void name(struct ptx_warp *w, const struct ptx_instr *in) { \
        const u32 a = *PTX_AT(u32, 1), b = *PTX_AT(u32, 2);            \
        u32 *d = PTX_AT(u32, 0);                                       \
        (void)b;                                                       \
        *d = (*d & ~w->mask) | ((__VA_ARGS__)&w->mask);                \
    }
PREDICATE(predicate_copy, a)
PREDICATE(predicate_not, ~a)
PREDICATE(predicate_and, a &b)
PREDICATE(predicate_or, a | b)
PREDICATE(predicate_xor, a ^ b)

/* mov.b64 %rd, {%r, %r}: two halves, the low one first; and the other way. */
void ptx_pack(struct ptx_warp *w, const struct ptx_instr *in) {
    u64 *d = PTX_AT(u64, 0);
    const u32 *low = PTX_AT(u32, 1), *high = PTX_AT(u32, 2);
    PTX_EACH_LANE(d[l] = (u64)high[l] << 32 | low[l]);
}

void ptx_unpack(struct ptx_warp *w, const struct ptx_instr *in) {
    u32 *low = PTX_AT(u32, 0), *high = PTX_AT(u32, 1);
    const u64 *a = PTX_AT(u64, 2);
    PTX_EACH_LANE(const u64 x = a[l]; low[l] = (u32)x; high[l] = (u32)(x >> 32));
}

/* An address in another space: the difference is a constant. */
void ptx_copy_address(struct ptx_warp *w, const struct ptx_instr *in) {
    u64 *d = PTX_AT(u64, 0);
    const u64 *a = PTX_AT(u64, 1);
    const u64 more = (u64)in->offset;
    PTX_EACH_LANE(d[l] = a[l] + more);
}

const struct ptx_form ptx_integer_forms[] = {
    {"mov.b16", copy_16, "hh"},
    {"mov.u16", copy_16, "hh"},
    {"mov.b32", copy_32, "ww"},
    {"mov.u32", copy_32, "ww"},
    {"mov.s32", copy_32, "ww"},
    {"mov.f32", copy_32, "ww"},
    {"mov.b64", copy_64, "dd"},
    {"mov.u64", copy_64, "dd"},
    {"mov.s64", copy_64, "dd"},
    {"mov.f64", copy_64, "dd"},
    {"add.s16", add_16, "hhh"},
    {"add.u16", add_16, "hhh"},
    {"add.s32", add_32, "www"},
    {"add.u32", add_32, "www"},
    {"add.s64", add_64, "ddd"},
    {"add.u64", add_64, "ddd"},
    {"sub.s16", sub_16, "hhh"},
    {"sub.u16", sub_16, "hhh"},
    {"sub.s32", sub_32, "www"},
    {"sub.u32", sub_32, "www"},
    {"sub.s64", sub_64, "ddd"},
    {"sub.u64", sub_64, "ddd"},
    {"mul.lo.s16", mul_16, "hhh"},
    {"mul.lo.u16", mul_16, "hhh"},
    {"mul.lo.s32", mul_32, "www"},
    {"mul.lo.u32", mul_32, "www"},
    {"mul.lo.s64", mul_64, "ddd"},
    {"mul.lo.u64", mul_64, "ddd"},
    {"mul.hi.u32", high_u32, "www"},
    {"mul.hi.s32", high_s32, "www"},
    {"mul.hi.u64", high_u64, "ddd"},
    {"mul.hi.s64", high_s64, "ddd"},
    {"mul.wide.u16", wide_u16, "whh"},
    {"mul.wide.u32", wide_u32, "dww"},
    {"mul.wide.s32", wide_s32, "dww"},
    {"mad.lo.s32", mad_32, "wwww"},
    {"mad.lo.u32", mad_32, "wwww"},
    {"mad.lo.s64", mad_64, "dddd"},
    {"mad.lo.u64", mad_64, "dddd"},
    {"mad.wide.u32", mad_wide_u32, "dwwd"},
    {"mad.wide.s32", mad_wide_s32, "dwwd"},
    {"div.u32", div_u32, "www"},
    {"div.u64", div_u64, "ddd"},
    {"div.s32", div_s32, "www"},
    {"div.s64", div_s64, "ddd"},
    {"rem.u32", rem_u32, "www"},
    {"rem.u64", rem_u64, "ddd"},
    {"rem.s32", rem_s32, "www"},
    {"rem.s64", rem_s64, "ddd"},
    {"min.u32", min_u32, "www"},
    {"max.u32", max_u32, "www"},
    {"min.s32", min_s32, "www"},
    {"max.s32", max_s32, "www"},
    {"min.u64", min_u64, "ddd"},
    {"max.u64", max_u64, "ddd"},
    {"min.s64", min_s64, "ddd"},
    {"max.s64", max_s64, "ddd"},
    {"neg.s32", neg_32, "ww"},
    {"neg.s64", neg_64, "dd"},
    {"abs.s32", abs_s32, "ww"},
    {"and.b16", and_16, "hhh"},
    {"and.b32", and_32, "www"},
    {"and.b64", and_64, "ddd"},
    {"or.b16", or_16, "hhh"},
    {"or.b32", or_32, "www"},
    {"or.b64", or_64, "ddd"},
    {"xor.b16", xor_16, "hhh"},
    {"xor.b32", xor_32, "www"},
    {"xor.b64", xor_64, "ddd"},
    {"not.b16", not_16, "hh"},
    {"not.b32", not_32, "ww"},
    {"not.b64", not_64, "dd"},
    {"shl.b32", shl_32, "www"},
    {"shl.b64", shl_64, "ddw"},
    {"shr.u32", shr_u32, "www"},
    {"shr.b32", shr_u32, "www"},
    {"shr.u64", shr_u64, "ddw"},
    {"shr.b64", shr_u64, "ddw"},
    {"shr.s32", shr_s32, "www"},
    {"shr.s64", shr_s64, "ddw"},
    {"popc.b32", popc_32, "ww"},
    {"popc.b64", popc_64, "wd"},
    {"bfi.b32", insert_32, "wwwww"},
    {"bfi.b64", insert_64, "dddww"},
    {"selp.b16", select_16, "hhhp"},
    {"selp.u16", select_16, "hhhp"},
    {"selp.s16", select_16, "hhhp"},
    {"selp.b32", select_32, "wwwp"},
    {"selp.u32", select_32, "wwwp"},
    {"selp.s32", select_32, "wwwp"},
    {"selp.f32", select_32, "wwwp"},
    {"selp.b64", select_64, "dddp"},
    {"selp.u64", select_64, "dddp"},
    {"selp.s64", select_64, "dddp"},
    {"selp.f64", select_64, "dddp"},
    {"mov.pred", predicate_copy, "pp"},
    {"not.pred", predicate_not, "pp"},
    {"and.pred", predicate_and, "ppp"},
    {"or.pred", predicate_or, "ppp"},
    {"xor.pred", predicate_xor, "ppp"},
    {NULL, NULL, NULL},
};
