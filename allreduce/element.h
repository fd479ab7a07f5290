/* Elements: the types that collectives move and the operations that combine them.
 *
 * A value of 16 bits is combined as a float, and the result is rounded to 16 bits after each
 * operation, so that the fold order determines every bit. Integers wrap around. A minimum or
 * maximum is NaN if any of the values is NaN. */
#ifndef ALLREDUCE_ELEMENT_H
#define ALLREDUCE_ELEMENT_H

#include "base/half.h"
#include "device/tensor.h"

enum { ELEMENT_TYPES = DTYPE_U64 }; /* types before it can be added */
enum element_op { ELEMENT_SUM, ELEMENT_PRODUCT, ELEMENT_MIN, ELEMENT_MAX, ELEMENT_OPS };

/* How a call combines its elements. The zeroed struct is the sum of floats. */
struct arithmetic {
    enum dtype type;
    enum element_op op;
};

const char *element_op_name(enum element_op op); /* PyTorch's word, "sum": static storage */

#endif
