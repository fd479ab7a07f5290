/* Comparisons, which make predicates. Of floats there are two of each: setp.lt is false where one
 * of the numbers is a NaN, setp.ltu is true. */
#include "tests/stand_ins/ptx/form.h"

#define COMPARE(name, type, ...)                                       \
    static void name(struct ptx_warp *w, const struct ptx_instr *in) { \
        const type *x = PTX_AT(type, 1), *y = PTX_AT(type, 2);         \
        uint32_t *d = PTX_AT(uint32_t, 0), bits = 0;                   \
        for (int l = 0; l < PTX_LANES; l++) {                          \
            const type a = x[l], b = y[l];                             \
            bits |= (uint32_t)((__VA_ARGS__) != 0) << l;               \
        }                                                              \
        *d = (*d & ~w->mask) | (bits & w->mask);                       \
    }
#define OF_INTEGERS(type)            \
    COMPARE(eq_##type, type, a == b) \
    COMPARE(ne_##type, type, a != b) \
    COMPARE(lt_##type, type, a < b)  \
    COMPARE(le_##type, type, a <= b) \
    COMPARE(gt_##type, type, a > b)  \
    COMPARE(ge_##type, type, a >= b)
#define OF_FLOATS(type)                             \
    COMPARE(eq_##type, type, a == b)                \
    COMPARE(ne_##type, type, (a < b) | (a > b))     \
    COMPARE(lt_##type, type, a < b)                 \
    COMPARE(le_##type, type, a <= b)                \
    COMPARE(gt_##type, type, a > b)                 \
    COMPARE(ge_##type, type, a >= b)                \
    COMPARE(equ_##type, type, !((a < b) | (a > b))) \
    COMPARE(neu_##type, type, !(a == b))            \
    COMPARE(ltu_##type, type, !(a >= b))            \
    COMPARE(leu_##type, type, !(a > b))             \
    COMPARE(gtu_##type, type, !(a <= b))            \
    COMPARE(geu_##type, type, !(a < b))             \
    COMPARE(num_##type, type, (a == a) & (b == b))  \
    COMPARE(nan_##type, type, (a != a) | (b != b))

OF_INTEGERS(s16)
OF_INTEGERS(u16)
OF_INTEGERS(s32)
OF_INTEGERS(u32)
OF_INTEGERS(s64)
OF_INTEGERS(u64)
OF_FLOATS(f32)
OF_FLOATS(f64)

#define ROW(how, type, widths) \
    { "setp." #how "." #type, how##_##type, widths }
#define SIX(type, widths)                                                                       \
    ROW(eq, type, widths), ROW(ne, type, widths), ROW(lt, type, widths), ROW(le, type, widths), \
        ROW(gt, type, widths), ROW(ge, type, widths)
#define EIGHT(type, widths)                                                     \
    ROW(equ, type, widths), ROW(neu, type, widths), ROW(ltu, type, widths),     \
        ROW(leu, type, widths), ROW(gtu, type, widths), ROW(geu, type, widths), \
        ROW(num, type, widths), ROW(nan, type, widths)

const struct ptx_form ptx_compare_forms[] = {
    SIX(s32, "pww"),
    SIX(u32, "pww"),
    SIX(s64, "pdd"),
    SIX(u64, "pdd"),
    SIX(f32, "pww"),
    EIGHT(f32, "pww"),
    SIX(f64, "pdd"),
    EIGHT(f64, "pdd"),
    SIX(s16, "phh"),
    SIX(u16, "phh"),
    {"setp.eq.b16", eq_u16, "phh"},
    {"setp.ne.b16", ne_u16, "phh"},
    {"setp.eq.b32", eq_u32, "pww"},
    {"setp.ne.b32", ne_u32, "pww"},
    {"setp.eq.b64", eq_u64, "pdd"},
    {"setp.ne.b64", ne_u64, "pdd"},
    {NULL, NULL, NULL},
};
