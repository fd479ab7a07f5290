/* The types of elements and the operations on them: sizes and names. */
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
