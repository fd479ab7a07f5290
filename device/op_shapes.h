/* Between op_check.c, which checks operands one by one, and op_shapes.c, which checks how they fit
 * each other. */
#ifndef DEVICE_OP_SHAPES_H
#define DEVICE_OP_SHAPES_H

#include "device/op.h"

/* ERR_FAILED with a line that names op and operand where the shapes or settings of `args` do not suit
 * each other. */
int op_check_shapes(enum op op, const struct op_args *args);

/* Writes "(256, 1, 28, 28)" into text; returns it. */
const char *op_shape_text(const struct tensor *t, char text[64]);

#endif
