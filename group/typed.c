/* Moves elements of any type. The loops are in typed.inc.h, compiled once for each type. */
#include "group/typed.h"

#include "base/fold.h"

#if !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum { BLOCK = 256 }; /* elements */

#define NAME f32
#define T float
#include "group/typed.inc.h"

#define NAME f64
#define T double
#include "group/typed.inc.h"

#define NAME f16
#define T uint16_t
#define C float
#define LOAD float_of_f16
#define STORE f16_of_float
#include "group/typed.inc.h"

#define NAME bf16
#define T uint16_t
#define C float
#define LOAD float_of_bf16
#define STORE bf16_of_float
#include "group/typed.inc.h"

#define NAME i32
#define T int32_t
#define UNSIGNED uint32_t
#include "group/typed.inc.h"

#define NAME i64
#define T int64_t
#define UNSIGNED uint64_t
#include "group/typed.inc.h"

#define NAME u8
#define T uint8_t
#define UNSIGNED uint8_t
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
    [DTYPE_F32] = LOOPS(f32),   [DTYPE_F64] = LOOPS(f64), [DTYPE_F16] = LOOPS(f16),
    [DTYPE_BF16] = LOOPS(bf16), [DTYPE_I32] = LOOPS(i32), [DTYPE_I64] = LOOPS(i64),
    [DTYPE_U8] = LOOPS(u8),
};

static void copy(enum dtype type, void *const *dest, int dests, const void *source, double scale,
                 size_t length) {
    if (scale != 1) {
        loops[type].scale_copy(dest, dests, source, scale, length);
        return;
    }
    for (int d = 0; d < dests; d++)
        if (dest[d] != source) memcpy(dest[d], source, length * dtype_bytes(type));
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
