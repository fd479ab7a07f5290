/* The words in which op_shapes.c and op_shapes_whole.c say how the shapes of operands relate. */
#ifndef DEVICE_OP_WANTS_H
#define DEVICE_OP_WANTS_H

#include <string.h>

#include "base/error.h"
#include "device/op_table.h"

/* A tensor must have this shape (want, want_vector),
 * the layout of another (want_layout), or both (want_same). */
static inline int want(enum op op, const char *name, const struct tensor *t, int rank, int d0,
                       int d1, int d2, int d3) {
    const int dims[MAX_RANK] = {d0, d1, d2, d3};
    struct tensor wanted = tensor_plain(NULL, t->dtype, rank, dims);
    char is[64], should[64];
    if (t->rank == rank && !memcmp(t->dims, dims, (size_t)rank * sizeof *dims)) return OK;
    return fail(ERR_FAILED, "%s: operand %s is %s: the other operands make it %s", op_name(op),
                name, op_shape_text(t, is), op_shape_text(&wanted, should));
}

/* A vector of `count` elements: biases, labels, row losses. */
static inline int want_vector(enum op op, const char *name, const struct tensor *t, int count) {
    return want(op, name, t, 1, count, 0, 0, 0);
}

static inline int want_layout(enum op op, const char *name, const struct tensor *t,
                              const struct tensor *other) {
    if (t->layout == other->layout && t->groups == other->groups) return OK;
    return fail(ERR_FAILED,
                "%s: operand %s: layout %s, %d groups: must lie as the other operands do",
                op_name(op), name, t->layout == LAYOUT_N16 ? "N16" : "plain", t->groups);
}

static inline int want_same(enum op op, const char *name, const struct tensor *t,
                            const struct tensor *other) {
    CHECK(want(op, name, t, other->rank, other->dims[0], other->dims[1], other->dims[2],
               other->dims[3]));
    return want_layout(op, name, t, other);
}

#endif
