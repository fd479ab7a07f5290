/* The texts of op_check.c and op_rules.c for a shape that does not fit. */
#ifndef DEVICE_OP_WANTS_H
#define DEVICE_OP_WANTS_H

#include <string.h>

#include "base/error.h"
#include "device/op_table.h"

/* A tensor must have the shape of another (want_shape), or this one (want). */
static inline int want_shape(enum op op, const char *name, const struct tensor *t,
                             const struct tensor *wanted) {
    char is[SHAPE_TEXT], should[SHAPE_TEXT];
    if (t->rank == wanted->rank &&
        !memcmp(t->dims, wanted->dims, (size_t)t->rank * sizeof *t->dims))
        return OK;
    return fail(ERR_FAILED, "%s: operand %s is %s: the other operands make it %s", op_name(op),
                name, op_shape_text(t, is), op_shape_text(wanted, should));
}

static inline int want(enum op op, const char *name, const struct tensor *t, int rank, int d0,
                       int d1, int d2, int d3) {
    struct tensor wanted =
        tensor_plain(NULL, t->dtype, rank, (const int[MAX_RANK]){d0, d1, d2, d3});
    return want_shape(op, name, t, &wanted);
}

static inline int want_layout(enum op op, const char *name, const struct tensor *t,
                              const struct tensor *other) {
    if (t->layout == other->layout && t->groups == other->groups && t->lanes == other->lanes)
        return OK;
    return fail(ERR_FAILED,
                "%s: operand %s: layout %s, %d groups: must be those of the other operands",
                op_name(op), name, t->layout == LAYOUT_N16 ? "N16" : "plain", t->groups);
}

#endif
