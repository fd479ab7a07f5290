/* Elements one at a time, written so that a reader can see that they are right. The fast loops are
 * in host/. */
#include "allreduce/element.h"

static const struct {
    const char *name;
    size_t bytes;
    int is_float;
} types[ELEMENT_TYPES] = {
    [ELEMENT_F32] = {"float32", 4, 1}, [ELEMENT_F64] = {"float64", 8, 1},
    [ELEMENT_F16] = {"float16", 2, 1}, [ELEMENT_BF16] = {"bfloat16", 2, 1},
    [ELEMENT_I32] = {"int32", 4, 0},   [ELEMENT_I64] = {"int64", 8, 0},
    [ELEMENT_U8] = {"uint8", 1, 0},
};

size_t element_bytes(enum element_type type) {
    return types[type].bytes;
}

int element_is_float(enum element_type type) {
    return types[type].is_float;
}

const char *element_type_name(enum element_type type) {
    return types[type].name;
}

const char *element_op_name(enum element_op op) {
    static const char *const names[ELEMENT_OPS] = {"sum", "product", "min", "max"};
    return names[op];
}

static int64_t combine_integers(enum element_op op, int64_t a, int64_t b) {
    switch (op) {
    case ELEMENT_PRODUCT: return (int64_t)((uint64_t)a * (uint64_t)b);
    case ELEMENT_MIN: return a < b ? a : b;
    case ELEMENT_MAX: return a > b ? a : b;
    default: return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

/* Holds for narrower elements, too: the sum or product of two floats, rounded to a float once more,
 * is that of one float operation, since a double has more than twice their digits. */
static double combine_floats(enum element_op op, double a, double b) {
    switch (op) {
    case ELEMENT_PRODUCT: return a * b;
    case ELEMENT_MIN: return a < b || a != a ? a : b;
    case ELEMENT_MAX: return a > b || a != a ? a : b;
    default: return a + b;
    }
}

static double get_float(enum element_type type, const void *from) {
    double wide;
    float x;
    uint16_t half;
    memcpy(type == ELEMENT_F64   ? (void *)&wide
           : type == ELEMENT_F32 ? (void *)&x
                                 : (void *)&half,
           from, types[type].bytes);
    return type == ELEMENT_F64   ? wide
           : type == ELEMENT_F32 ? x
           : type == ELEMENT_F16 ? float_of_f16(half)
                                 : float_of_bf16(half);
}

static void put_float(enum element_type type, void *to, double wide) {
    const float x = (float)wide;
    const uint16_t half = type == ELEMENT_F16 ? f16_of_float(x) : bf16_of_float(x);
    memcpy(to,
           type == ELEMENT_F64   ? (const void *)&wide
           : type == ELEMENT_F32 ? (const void *)&x
                                 : (const void *)&half,
           types[type].bytes);
}

static int64_t get_integer(enum element_type type, const void *from) {
    int64_t wide;
    int32_t narrow;
    if (type == ELEMENT_U8) return *(const uint8_t *)from;
    if (type == ELEMENT_I32) {
        memcpy(&narrow, from, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, from, sizeof wide);
    return wide;
}

/* The low bytes: this is where sums and products wrap around. */
static void put_integer(enum element_type type, void *to, int64_t x) {
    memcpy(to, &x, types[type].bytes); /* little endian: comm/flag.c asserts it */
}

void element_combine(struct arithmetic how, void *to, const void *a, const void *b) {
    if (types[how.type].is_float)
        put_float(how.type, to,
                  combine_floats(how.op, get_float(how.type, a), get_float(how.type, b)));
    else
        put_integer(how.type, to,
                    combine_integers(how.op, get_integer(how.type, a), get_integer(how.type, b)));
}

void element_scale(enum element_type type, void *to, const void *from, double scale) {
    if (!types[type].is_float || scale == 1)
        memmove(to, from, types[type].bytes);
    else
        put_float(type, to, get_float(type, from) * (type == ELEMENT_F64 ? scale : (float)scale));
}
