/* Moves for elements of any type: the loops of typed.inc.h, once for each type. */
#include "group/typed.h"

#include "base/fold.h"

#if !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum { BLOCK = 256 }; /* elements */

#define AS_IT_IS(x) (x)
#define PLUS(a, b) ((a) + (b))
#define TIMES(a, b) ((a) * (b))
#define UNSCALED(x, scale) (x)
#define DIFFERS(x) ((x) != (x))
#define NEVER(x) 0
#define TIMES_FLOAT(x, scale) ((x) * (float)(scale))
#define ROUND_F16(x) float_of_f16(f16_of_float(x))
#define ROUND_BF16(x) float_of_bf16(bf16_of_float(x))
/* Without a sign nothing overflows: it wraps around. */
#define PLUS_32(a, b) (int32_t)((uint32_t)(a) + (uint32_t)(b))
#define TIMES_32(a, b) (int32_t)((uint32_t)(a) * (uint32_t)(b))
#define PLUS_64(a, b) (int64_t)((uint64_t)(a) + (uint64_t)(b))
#define TIMES_64(a, b) (int64_t)((uint64_t)(a) * (uint64_t)(b))
#define PLUS_8(a, b) (uint8_t)((a) + (b))
#define TIMES_8(a, b) (uint8_t)((a) * (b))

#define SUFFIX(name) name##_f32
#define T float
#define C float
#define LOAD AS_IT_IS
#define STORE AS_IT_IS
#define ROUND AS_IT_IS
#define ADD PLUS
#define MUL TIMES
#define SCALE TIMES_FLOAT
#define IS_NAN DIFFERS
#include "group/typed.inc.h"

#define SUFFIX(name) name##_f64
#define T double
#define C double
#define LOAD AS_IT_IS
#define STORE AS_IT_IS
#define ROUND AS_IT_IS
#define ADD PLUS
#define MUL TIMES
#define SCALE TIMES
#define IS_NAN DIFFERS
#include "group/typed.inc.h"

#define SUFFIX(name) name##_f16
#define T uint16_t
#define C float
#define LOAD float_of_f16
#define STORE f16_of_float
#define ROUND ROUND_F16
#define ADD PLUS
#define MUL TIMES
#define SCALE TIMES_FLOAT
#define IS_NAN DIFFERS
#include "group/typed.inc.h"

#define SUFFIX(name) name##_bf16
#define T uint16_t
#define C float
#define LOAD float_of_bf16
#define STORE bf16_of_float
#define ROUND ROUND_BF16
#define ADD PLUS
#define MUL TIMES
#define SCALE TIMES_FLOAT
#define IS_NAN DIFFERS
#include "group/typed.inc.h"

#define SUFFIX(name) name##_i32
#define T int32_t
#define C int32_t
#define LOAD AS_IT_IS
#define STORE AS_IT_IS
#define ROUND AS_IT_IS
#define ADD PLUS_32
#define MUL TIMES_32
#define SCALE UNSCALED
#define IS_NAN NEVER
#include "group/typed.inc.h"

#define SUFFIX(name) name##_i64
#define T int64_t
#define C int64_t
#define LOAD AS_IT_IS
#define STORE AS_IT_IS
#define ROUND AS_IT_IS
#define ADD PLUS_64
#define MUL TIMES_64
#define SCALE UNSCALED
#define IS_NAN NEVER
#include "group/typed.inc.h"

#define SUFFIX(name) name##_u8
#define T uint8_t
#define C uint8_t
#define LOAD AS_IT_IS
#define STORE AS_IT_IS
#define ROUND AS_IT_IS
#define ADD PLUS_8
#define MUL TIMES_8
#define SCALE UNSCALED
#define IS_NAN NEVER
#include "group/typed.inc.h"

#define LOOPS(name) \
    { scale_copy_##name, reduce_##name, fold_##name }
static const struct {
    void (*scale_copy)(void *const *dest, int dests, const void *source, double scale,
                       size_t length);
    void (*reduce)(enum element_op op, void *const *dest, int dests, const void *own,
                   double own_scale, const void *source, double source_scale, size_t length);
    void (*fold)(enum element_op op, void *const *dest, int dests, const void *const *source, int n,
                 double scale, size_t length);
} loops[ELEMENT_TYPES] = {
    [ELEMENT_F32] = LOOPS(f32),   [ELEMENT_F64] = LOOPS(f64), [ELEMENT_F16] = LOOPS(f16),
    [ELEMENT_BF16] = LOOPS(bf16), [ELEMENT_I32] = LOOPS(i32), [ELEMENT_I64] = LOOPS(i64),
    [ELEMENT_U8] = LOOPS(u8),
};

static void copy(enum element_type type, void *const *dest, int dests, const void *source,
                 double scale, size_t length) {
    if (scale != 1) {
        loops[type].scale_copy(dest, dests, source, scale, length);
        return;
    }
    for (int d = 0; d < dests; d++)
        if (dest[d] != source) memcpy(dest[d], source, length * element_bytes(type));
}

void typed_move(struct arithmetic how, const struct plan_step *s, void *const *dest, int count,
                const void *const *sources, int n, const void *own, double source_scale,
                double own_scale) {
    if (plan_op_sums(s->op))
        loops[how.type].fold(how.op, dest, count, sources, n, source_scale, s->length);
    else if (s->op == PLAN_COPY)
        copy(how.type, dest, count, sources[0], source_scale, s->length);
    else
        loops[how.type].reduce(how.op, dest, count, own, own_scale, sources[0], source_scale,
                               s->length);
}
