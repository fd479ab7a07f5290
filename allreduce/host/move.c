/* Adds ranges of memory as fast as the caches deliver them.
 *
 * A block of 64 floats is loaded from all sources, added in registers, and stored to all
 * destinations. So each source is read once and each destination written once, and a destination
 * may be one of the sources. An eager call has less than a block, so smaller units serve it. The
 * loops are in move.inc.h and are compiled for three sets of vector instructions; the widest set
 * that the processor has runs.
 *
 * All sets give the same bits. Each lane does the same as the scalar loop. With -ffp-contract=off a
 * product is rounded before it is added, both in vectors and in the remaining elements.
 *
 * If a copy's destination is longer than the caches, stores that bypass them are faster. A normal
 * store first reads the line that it overwrites, and evicts another line that is still needed. */
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "allreduce/host/executor.h"
#include "base/fold.h"

typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));
typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
enum {
    LANES = 16, /* floats in a vec */
    VECS = 4,   /* vectors in flight at a time */
};
#define LOAD(from) (*(const vec *)(from))
#define STORE(to, v) (*(vec *)(to) = (v))

#if defined(__clang__) /* clang unrolls these loops at -O2 and accepts vectors of any width */
#define WIDE "avx512f"
#else
#pragma GCC optimize("O3")
#define WIDE "avx512f,prefer-vector-width=512"
#endif
#define SUFFIX(name) name##_generic
#define TARGET
#include "allreduce/host/move.inc.h"
#undef SUFFIX
#undef TARGET
#if defined(__x86_64__)
#define SUFFIX(name) name##_avx2
#define TARGET __attribute__((target("avx2")))
#include "allreduce/host/move.inc.h"
#undef SUFFIX
#undef TARGET
#define SUFFIX(name) name##_avx512
#define TARGET __attribute__((target(WIDE)))
#include "allreduce/host/move.inc.h"
#undef SUFFIX
#undef TARGET
#endif

#define MOVES(name) \
    { #name, scale_copy_##name, reduce_##name, fold_##name }
static const struct move_set sets[] = {
    MOVES(generic),
#if defined(__x86_64__)
    MOVES(avx2),
    MOVES(avx512),
#endif
};

int move_set_count(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return 3;
    if (__builtin_cpu_supports("avx2")) return 2;
#endif
    return 1;
}

const struct move_set *move_set(int i) {
    return &sets[i];
}

static const struct move_set *widest(void) {
    return move_set(move_set_count() - 1);
}

void move_copy(float *const *dest, int dests, const float *source, float scale, size_t length) {
    if (scale != 1) {
        widest()->scale_copy(dest, dests, source, scale, length);
        return;
    }
    for (int d = 0; d < dests; d++)
        if (dest[d] != source) memcpy(dest[d], source, length * sizeof(float));
}

void move_reduce(float *const *dest, int dests, const float *own, float own_scale,
                 const float *source, float source_scale, size_t length) {
    widest()->reduce(dest, dests, own, own_scale, source, source_scale, length);
}

void move_fold(float *const *dest, int dests, const float *const *source, int n, float scale,
               size_t length) {
    widest()->fold(dest, dests, source, n, scale, length);
}

#if defined(__x86_64__)
/* Whole lines of 64 bytes, so that none has to be read. The fence completes the stores, which
 * otherwise would not be ordered before a later flag. */
void move_past_caches(void *to, const void *from, size_t bytes) {
    enum { LINE = 64, PER_LINE = LINE / sizeof(__m128i) };
    size_t head = -(uintptr_t)to % LINE, at = head < bytes ? head : bytes;
    memcpy(to, from, at);
    for (; at + LINE <= bytes; at += LINE) {
        const __m128i *source = (const __m128i *)((const char *)from + at);
        __m128i *dest = (__m128i *)((char *)to + at), line[PER_LINE];
        for (int i = 0; i < PER_LINE; i++)
            line[i] = _mm_loadu_si128(source + i);
        for (int i = 0; i < PER_LINE; i++)
            _mm_stream_si128(dest + i, line[i]);
    }
    _mm_sfence();
    memcpy((char *)to + at, (const char *)from + at, bytes - at);
}
#else
void move_past_caches(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
}
#endif
