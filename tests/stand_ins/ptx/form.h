/* What the files of instructions share: PTX's names of types, and the makers of functions that run
 * an instruction in all active lanes. A form (struct ptx_form) names such a function. */
#ifndef TESTS_STAND_INS_PTX_FORM_H
#define TESTS_STAND_INS_PTX_FORM_H

#include "tests/stand_ins/ptx/machine.h"

typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef float f32;
typedef double f64;

/* Functions of one, two and three operands, which are a, b and c in the expression. */
#define UNARY(name, to, from, ...)                                     \
    static void name(struct ptx_warp *w, const struct ptx_instr *in) { \
        to *d = PTX_AT(to, 0);                                         \
        const from *x = PTX_AT(from, 1);                               \
        PTX_EACH_LANE(const from a = x[l]; d[l] = (to)(__VA_ARGS__));  \
    }
#define BINARY(name, to, first, second, ...)                                                  \
    static void name(struct ptx_warp *w, const struct ptx_instr *in) {                        \
        to *d = PTX_AT(to, 0);                                                                \
        const first *x = PTX_AT(first, 1);                                                    \
        const second *y = PTX_AT(second, 2);                                                  \
        PTX_EACH_LANE(const first a = x[l]; const second b = y[l]; d[l] = (to)(__VA_ARGS__)); \
    }
#define TERNARY(name, to, from, ...)                                               \
    static void name(struct ptx_warp *w, const struct ptx_instr *in) {             \
        to *d = PTX_AT(to, 0);                                                     \
        const from *x = PTX_AT(from, 1), *y = PTX_AT(from, 2);                     \
        const to *z = PTX_AT(to, 3);                                               \
        PTX_EACH_LANE(const from a = x[l]; const from b = y[l]; const to c = z[l]; \
                      d[l] = (to)(__VA_ARGS__));                                   \
    }

#endif
