/* Elements: the types that collectives move and the operations by which they combine them.
 *
 * A value of 16 bits is combined as a float, and the result is rounded to 16 bits again after each
 * single operation, so that the order of the fold fixes every bit. Integers wrap around. A minimum
 * or maximum is NaN if any of the values is NaN. */
#ifndef ALLREDUCE_ELEMENT_H
#define ALLREDUCE_ELEMENT_H

#include <stddef.h>

#include "base/half.h"

enum element_type {
    ELEMENT_F32,
    ELEMENT_F64,
    ELEMENT_F16,
    ELEMENT_BF16,
    ELEMENT_I32,
    ELEMENT_I64,
    ELEMENT_U8,
    ELEMENT_TYPES
};
enum element_op { ELEMENT_SUM, ELEMENT_PRODUCT, ELEMENT_MIN, ELEMENT_MAX, ELEMENT_OPS };

/* How a call combines its elements. The zeroed struct is the sum of floats. */
struct arithmetic {
    enum element_type type;
    enum element_op op;
};

size_t element_bytes(enum element_type type);
int element_is_float(enum element_type type);
/* PyTorch's words, "float32" and "sum": static storage. */
const char *element_type_name(enum element_type type);
const char *element_op_name(enum element_op op);

#endif
