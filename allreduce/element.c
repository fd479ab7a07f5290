/* The names of the operations that combine elements. */
#include "allreduce/element.h"

const char *element_op_name(enum element_op op) {
    static const char *const names[ELEMENT_OPS] = {"sum", "product", "min", "max"};
    return names[op];
}
