/* The loops of typed.c for one type NAME. T is the type in memory, C the type of the computation.
 * LOAD converts a T into a C, and STORE a C into a T; ROUND is a STORE followed by a LOAD; ADD and
 * MUL combine two C; SCALE multiplies one; IS_NAN tests one. UNSIGNED: the type is an unsigned
 * integer, which is never scaled and wraps around on overflow. Blocks stay in the nearest cache,
 * and compilers can vectorise each loop. */
#define PASTE(a, b) a##_##b
#define WITH_NAME(a, b) PASTE(a, b)
#define SUFFIX(name) WITH_NAME(name, NAME)
#ifndef C
#define C T
#endif
#ifndef LOAD
#define LOAD(x) (x)
#define STORE(x) (x)
#endif
#define ROUND(x) LOAD(STORE(x))
#ifdef UNSIGNED
#define ADD(a, b) (T)((UNSIGNED)(a) + (UNSIGNED)(b))
#define MUL(a, b) (T)((UNSIGNED)(a) * (UNSIGNED)(b))
#define SCALE(x, scale) (x)
#define IS_NAN(x) 0
#else
#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define SCALE(x, scale) ((x) * (C)(scale))
#define IS_NAN(x) ((x) != (x))
#endif

static void SUFFIX(load)(C *to, const T *from, double scale, size_t m) {
    if (scale == 1) {
        for (size_t i = 0; i < m; i++)
            to[i] = LOAD(from[i]);
    } else {
        for (size_t i = 0; i < m; i++)
            to[i] = ROUND(SCALE(LOAD(from[i]), scale));
    }
}

static void SUFFIX(combine)(enum element_op op, C *a, const C *b, size_t m) {
    switch (op) {
    case ELEMENT_PRODUCT:
        for (size_t i = 0; i < m; i++)
            a[i] = ROUND(MUL(a[i], b[i]));
        break;
    case ELEMENT_MIN:
        for (size_t i = 0; i < m; i++)
            a[i] = a[i] < b[i] || IS_NAN(a[i]) ? a[i] : b[i];
        break;
    case ELEMENT_MAX:
        for (size_t i = 0; i < m; i++)
            a[i] = a[i] > b[i] || IS_NAN(a[i]) ? a[i] : b[i];
        break;
    default:
        for (size_t i = 0; i < m; i++)
            a[i] = ROUND(ADD(a[i], b[i]));
    }
}

static void SUFFIX(store)(void *const *dest, int dests, size_t at, const C *from, size_t m) {
    for (int d = 0; d < dests; d++) {
        T *to = (T *)dest[d] + at;
        for (size_t i = 0; i < m; i++)
            to[i] = STORE(from[i]);
    }
}

static void SUFFIX(scale_copy)(void *const *dest, int dests, const void *source, double scale,
                               size_t length) {
    C block[BLOCK];
    for (size_t at = 0; at < length; at += BLOCK) {
        size_t m = length - at < BLOCK ? length - at : BLOCK;
        SUFFIX(load)(block, (const T *)source + at, scale, m);
        SUFFIX(store)(dest, dests, at, block, m);
    }
}

static void SUFFIX(reduce)(enum element_op op, void *const *dest, int dests, const void *own,
                           double own_scale, const void *source, double source_scale,
                           size_t length) {
    C a[BLOCK], b[BLOCK];
    for (size_t at = 0; at < length; at += BLOCK) {
        size_t m = length - at < BLOCK ? length - at : BLOCK;
        SUFFIX(load)(a, (const T *)own + at, own_scale, m);
        SUFFIX(load)(b, (const T *)source + at, source_scale, m);
        SUFFIX(combine)(op, a, b, m);
        SUFFIX(store)(dest, dests, at, a, m);
    }
}

/* The first halving happens while the sources are loaded, so only half of the terms are stored. */
static void SUFFIX(fold)(enum element_op op, void *const *dest, int dests,
                         const void *const *source, int n, double scale, size_t length) {
    C term[(MAX_DEVICES + 1) / 2][BLOCK], other[BLOCK];
    for (size_t at = 0; at < length; at += BLOCK) {
        size_t m = length - at < BLOCK ? length - at : BLOCK;
        int half = fold_half(n);
        for (int r = 0; r < half; r++) {
            SUFFIX(load)(term[r], (const T *)source[r] + at, scale, m);
            if (r + half >= n) continue;
            SUFFIX(load)(other, (const T *)source[r + half] + at, scale, m);
            SUFFIX(combine)(op, term[r], other, m);
        }
        for (int left = half; left > 1; left = half) {
            half = fold_half(left);
            for (int r = 0; r + half < left; r++)
                SUFFIX(combine)(op, term[r], term[r + half], m);
        }
        SUFFIX(store)(dest, dests, at, term[0], m);
    }
}

#undef PASTE
#undef WITH_NAME
#undef SUFFIX
#undef NAME
#undef T
#undef C
#undef LOAD
#undef STORE
#undef ROUND
#undef ADD
#undef MUL
#undef SCALE
#undef IS_NAN
#undef UNSIGNED
