/* Checks operands against the table of the ops (op_table.c). Kernels check nothing themselves, so a
 * wrong shape would be a wild read on a GPU; here it becomes a one-line error in the caller.
 *
 * Three checks follow one another: the signature (which operands an op takes, their types, ranks
 * and layouts), how their shapes relate (op_letters.c, op_rules.c), and overlaps in memory. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "device/op_table.h"

enum dtype operand_type(const struct operand *operand) {
    switch (operand->type[0]) {
    case 'd': return DTYPE_F64;
    case 'i': return DTYPE_I32;
    case 'l': return DTYPE_I64;
    case 'u': return DTYPE_U64;
    case 'b': return DTYPE_U8;
    default: return DTYPE_F32;
    }
}

static int wrong(enum op op, const struct operand *operand, const struct tensor *t,
                 const char *what) {
    char shape[SHAPE_TEXT];
    return fail(ERR_FAILED, "%s: operand %s %s: %s", op_name(op), operand->name,
                op_shape_text(t, shape), what);
}

int operand_may_be_n16(const struct operand *operand) {
    return operand->name && strchr(operand->type, 'n') != NULL;
}

int op_is_plain(enum op op, const struct op_args *args) {
    return (op == OP_ACTIVATION_FORWARD || op == OP_ACTIVATION_BACKWARD) &&
           activation_is_plain(args->p.activation.kind);
}

static int may_be_strided(const struct operand *operand) {
    return operand->name && strchr(operand->type, 's') != NULL;
}

static int check_strides(enum op op, const struct operand *o, const struct tensor *t) {
    if (t->strided && !may_be_strided(o))
        return wrong(op, o, t, "is a view with gaps: this op takes none");
    for (int d = 0; t->strided && d < t->rank; d++)
        if (t->stride[d] < 0) return wrong(op, o, t, "a stride is below 0");
    if (tensor_stored_count(t) <= INT32_MAX || !t->strided) return OK;
    return wrong(op, o, t, "its elements span 2^31 or more");
}

static int check_layout(enum op op, const struct operand *o, const struct tensor *t, int segment) {
    if (t->layout == LAYOUT_PLAIN)
        return t->groups || t->lanes ? wrong(op, o, t, "a plain tensor has no groups")
                                     : check_strides(op, o, t);
    if (t->layout != LAYOUT_N16 || !operand_may_be_n16(o))
        return wrong(op, o, t, "must be in plain layout");
    if (t->lanes != 1 && t->lanes != 2 && t->lanes != 4 && t->lanes != 8 && t->lanes != MOST_LANES)
        return wrong(op, o, t, "groups of N16 have 1, 2, 4, 8 or 16 lanes");
    int least = (t->dims[0] + t->lanes - 1) / t->lanes;
    if (t->groups < least || t->groups > t->dims[0])
        return wrong(op, o, t, "the number of N16 groups does not fit the samples");
    if (segment && t->groups != least)
        return wrong(op, o, t, "one segment per launch: give tensor_segment()");
    return OK;
}

static int check_rank(enum op op, const struct operand *o, const struct tensor *t) {
    int length = (int)strcspn(o->shape, "|"), any = strchr(".?", o->shape[length - 1]) != NULL,
        least = any ? length - 1 : length;
    if (any ? t->rank >= least : t->rank == least) return OK;
    return fail(ERR_FAILED, "%s: operand %s: rank %d: must be %s%d", op_name(op), o->name, t->rank,
                any ? "at least " : "", least);
}

static int check_operand(enum op op, const char *place, int i, const struct operand *o,
                         const struct tensor *t, int segment) {
    if (!o->name)
        return t->data ? fail(ERR_FAILED, "%s: %s[%d] is given: this op takes none", op_name(op),
                              place, i)
                       : OK;
    if (!t->data)
        return strchr(o->type, '?') ? OK
                                    : fail(ERR_FAILED, "%s: operand %s (%s[%d]) is missing",
                                           op_name(op), o->name, place, i);
    if (t->rank < 1 || t->rank > MAX_RANK) return wrong(op, o, t, "rank must be 1 to 8");
    CHECK(check_rank(op, o, t));
    if (t->dtype != operand_type(o)) return wrong(op, o, t, "is of the wrong type");
    for (int d = 0; d < t->rank; d++)
        if (t->dims[d] < (d ? 1 : 0)) return wrong(op, o, t, "a dimension is too small");
    return check_layout(op, o, t, segment);
}

int op_takes_n16(const struct op_args *args) {
    int n16 = 0;
    for (int i = 0; i < OP_INPUTS; i++)
        n16 |= args->in[i].data && args->in[i].layout == LAYOUT_N16;
    for (int i = 0; i < OP_OUTPUTS; i++)
        n16 |= args->out[i].data && args->out[i].layout == LAYOUT_N16;
    return n16;
}

static int check_shape(enum op op, const char *name, const struct tensor *t,
                       const struct tensor *wanted) {
    char is[SHAPE_TEXT], should[SHAPE_TEXT];
    if (tensor_same_shape(t, wanted)) return OK;
    return fail(ERR_FAILED, "%s: operand %s is %s: the other operands make it %s", op_name(op),
                name, op_shape_text(t, is), op_shape_text(wanted, should));
}

/* A letter is the same dimension everywhere, and all activations have the same layout. */
static int check_letters(enum op op, const struct op_args *args) {
    const struct op_row *row = &op_table[op];
    const struct tensor *first = NULL;
    struct op_letters letters;
    memset(&letters, 0xff, sizeof letters);
    for (int i = 0; i < OP_INPUTS + OP_OUTPUTS; i++) {
        int output = i >= OP_INPUTS, k = output ? i - OP_INPUTS : i;
        const struct operand *o = output ? &row->out[k] : &row->in[k];
        const struct tensor *t = output ? &args->out[k] : &args->in[k];
        struct tensor wanted;
        if (!o->name || !t->data) continue;
        op_letters_read(&letters, op_shape(op, args, output, k), t, &wanted);
        CHECK(check_shape(op, o->name, t, &wanted));
        if (!operand_may_be_n16(o)) continue;
        if (!first) first = t;
        if (t->layout != first->layout || t->groups != first->groups || t->lanes != first->lanes)
            return wrong(op, o, t, "its layout must be that of the other operands");
    }
    return OK;
}

static int overlap(const struct tensor *a, const struct tensor *b) {
    uintptr_t at = (uintptr_t)a->data, bt = (uintptr_t)b->data;
    return a->data && b->data && at < bt + tensor_bytes(b) && bt < at + tensor_bytes(a);
}

/* In place means exactly the same memory as out[0], not a part of it. */
int operand_may_be_in_place(const struct operand *input) {
    return input->name && strchr(input->type, '=') != NULL;
}

static int check_overlaps(enum op op, const struct op_args *a) {
    const struct op_row *s = &op_table[op];
    for (int o = 0; o < OP_OUTPUTS; o++) {
        for (int i = 0; i < OP_INPUTS; i++) {
            if (!overlap(&a->out[o], &a->in[i])) continue;
            if (o == 0 && a->out[0].data == a->in[i].data && operand_may_be_in_place(&s->in[i]))
                continue;
            return fail(ERR_FAILED, "%s: operands %s and %s overlap in memory", op_name(op),
                        s->in[i].name, s->out[o].name);
        }
    }
    for (int o = 0; o < OP_OUTPUTS; o++)
        for (int other = 0; other < o; other++)
            if (a->out[o].strided && a->out[other].strided
                    ? a->out[o].data ==
                          a->out[other].data /* otherwise they may be parts of one tensor */
                    : overlap(&a->out[other], &a->out[o]))
                return fail(ERR_FAILED, "%s: operands %s and %s overlap in memory", op_name(op),
                            s->out[other].name, s->out[o].name);
    return OK;
}

int op_check(enum op op, const struct op_args *args) {
    if ((unsigned)op >= OP_COUNT) return fail(ERR_FAILED, "op %d does not exist", (int)op);
    const struct op_row *s = &op_table[op];
    for (int i = 0; i < OP_INPUTS; i++)
        CHECK(check_operand(op, "in", i, &s->in[i], &args->in[i], s->segment));
    for (int i = 0; i < OP_OUTPUTS; i++)
        CHECK(check_operand(op, "out", i, &s->out[i], &args->out[i], s->segment));
    if (s->step && !args->step)
        return fail(ERR_FAILED, "%s: the step block is missing", op_name(op));
    CHECK(check_letters(op, args));
    const char *misfit = s->rule ? s->rule(op, args) : NULL;
    if (misfit) return fail(ERR_FAILED, "%s: %s", op_name(op), misfit);
    return check_overlaps(op, args);
}
