/* What op_check.c, which checks operands one by one, shares with op_shapes.c, which checks how they
 * fit each other. */
#ifndef DEVICE_OP_SHAPES_H
#define DEVICE_OP_SHAPES_H

#include "device/op.h"

/* ERR_FAILED names the op and the operand whose shape or setting does not fit the others. The
 * signature of `args` has been checked. */
int op_check_shapes(enum op op, const struct op_args *args);

/* Writes "(256, 1, 28, 28)" into text and returns it. */
const char *op_shape_text(const struct tensor *t, char text[64]);

#endif
