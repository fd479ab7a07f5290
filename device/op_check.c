/* The table of op.h as a checker. Kernels check nothing themselves, so a wrong shape would be a
 * wild read on a GPU; here it becomes one error line in the caller.
 *
 * Three checks follow one another: the signature (which operands an op takes, their types, ranks
 * and layouts), how their shapes relate (op_shapes.c), and overlaps in memory. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "device/op_shapes.h"

/* One operand. An all-zero one says that the op takes no such operand. */
struct operand {
    const char *name;
    const char *type; /* f F32, d F64, i I32, l I64, u U64, b U8, w F32 or I32; then n: may lie in
                         N16, or ?: may be left out */
    int rank;         /* 0: any */
};

static const struct signature {
    struct operand in[3], out[2];
    int step;    /* 1: the op always reads the step block */
    int segment; /* 1: one segment a launch, so an N16 operand holds one segment's groups */
} signatures[OP_COUNT] = {
    [OP_TO_N16] = {.in = {{"x", "f", 0}}, .out = {{"y", "fn", 0}}, .segment = 1},
    [OP_TO_PLAIN] = {.in = {{"x", "fn", 0}}, .out = {{"y", "f", 0}}, .segment = 1},
    [OP_CONV2D_FORWARD] = {.in = {{"x", "fn", 4}, {"w", "f", 4}, {"b", "f", 1}},
                           .out = {{"y", "fn", 4}}},
    [OP_CONV2D_BACKWARD_DATA] = {.in = {{"dy", "fn", 4}, {"w", "f", 4}}, .out = {{"dx", "fn", 4}}},
    [OP_CONV2D_BACKWARD_WEIGHT] = {.in = {{"x", "fn", 4}, {"dy", "fn", 4}},
                                   .out = {{"dw", "f", 4}, {"db", "f", 1}},
                                   .segment = 1},
    [OP_LINEAR_FORWARD] = {.in = {{"x", "fn", 2}, {"w", "f", 2}, {"b", "f", 1}},
                           .out = {{"y", "fn", 2}}},
    [OP_LINEAR_BACKWARD_DATA] = {.in = {{"dy", "fn", 2}, {"w", "f", 2}}, .out = {{"dx", "fn", 2}}},
    [OP_LINEAR_BACKWARD_WEIGHT] = {.in = {{"x", "fn", 2}, {"dy", "fn", 2}},
                                   .out = {{"dw", "f", 2}, {"db", "f", 1}},
                                   .segment = 1},
    [OP_RELU_FORWARD] = {.in = {{"x", "fn", 0}}, .out = {{"y", "fn", 0}}},
    [OP_RELU_BACKWARD] = {.in = {{"y", "fn", 0}, {"dy", "fn", 0}}, .out = {{"dx", "fn", 0}}},
    [OP_ADD_FORWARD] = {.in = {{"a", "fn", 0}, {"b", "fn", 0}}, .out = {{"y", "fn", 0}}},
    [OP_AVG_POOL_FORWARD] = {.in = {{"x", "fn", 4}}, .out = {{"y", "fn", 4}}},
    [OP_AVG_POOL_BACKWARD] = {.in = {{"dy", "fn", 4}}, .out = {{"dx", "fn", 4}}},
    [OP_MAX_POOL_FORWARD] = {.in = {{"x", "fn", 4}}, .out = {{"y", "fn", 4}}},
    [OP_MAX_POOL_BACKWARD] = {.in = {{"x", "fn", 4}, {"dy", "fn", 4}}, .out = {{"dx", "fn", 4}}},
    [OP_ADAPTIVE_AVG_POOL_FORWARD] = {.in = {{"x", "fn", 4}}, .out = {{"y", "fn", 4}}},
    [OP_ADAPTIVE_AVG_POOL_BACKWARD] = {.in = {{"dy", "fn", 4}}, .out = {{"dx", "fn", 4}}},
    [OP_DROPOUT_FORWARD] = {.in = {{"x", "fn", 0}},
                            .out = {{"y", "fn", 0}},
                            .step = 1,
                            .segment = 1},
    [OP_DROPOUT_BACKWARD] = {.in = {{"dy", "fn", 0}},
                             .out = {{"dx", "fn", 0}},
                             .step = 1,
                             .segment = 1},
    [OP_DROPOUT2D_FORWARD] = {.in = {{"x", "fn", 4}},
                              .out = {{"y", "fn", 4}},
                              .step = 1,
                              .segment = 1},
    [OP_DROPOUT2D_BACKWARD] = {.in = {{"dy", "fn", 4}},
                               .out = {{"dx", "fn", 4}},
                               .step = 1,
                               .segment = 1},
    [OP_SOFTMAX_FORWARD] = {.in = {{"x", "f", 2}}, .out = {{"y", "f", 2}}},
    [OP_SOFTMAX_BACKWARD] = {.in = {{"y", "f", 2}, {"dy", "f", 2}}, .out = {{"dx", "f", 2}}},
    [OP_LOG_SOFTMAX_FORWARD] = {.in = {{"x", "f", 2}}, .out = {{"y", "f", 2}}},
    [OP_LOG_SOFTMAX_BACKWARD] = {.in = {{"y", "f", 2}, {"dy", "f", 2}}, .out = {{"dx", "f", 2}}},
    [OP_NLL_FORWARD] = {.in = {{"logp", "f", 2}, {"labels", "i", 1}},
                        .out = {{"loss", "d", 1}, {"hits", "i", 1}}},
    [OP_NLL_BACKWARD] = {.in = {{"logp", "f", 2}, {"labels", "i", 1}, {"dloss", "f?", 1}},
                         .out = {{"dlogp", "f", 2}}},
    [OP_CROSS_ENTROPY_FORWARD] = {.in = {{"x", "f", 2}, {"labels", "i", 1}},
                                  .out = {{"loss", "d", 1}, {"hits", "i", 1}}},
    [OP_CROSS_ENTROPY_BACKWARD] = {.in = {{"x", "f", 2}, {"labels", "i", 1}, {"dloss", "f?", 1}},
                                   .out = {{"dx", "f", 2}}},
    [OP_MSE_FORWARD] = {.in = {{"x", "f", 2}, {"targets", "f", 2}},
                        .out = {{"loss", "d", 1}, {"hits", "i", 1}}},
    [OP_MSE_BACKWARD] = {.in = {{"x", "f", 2}, {"targets", "f", 2}, {"dloss", "f?", 1}},
                         .out = {{"dx", "f", 2}}},
    [OP_LOSS_SUM] = {.in = {{"loss", "d", 1}, {"hits", "i", 1}},
                     .out = {{"losses", "d", 2}, {"hits", "l", 2}},
                     .step = 1},
    [OP_BATCH_NORM_MOMENTS] = {.in = {{"x", "fn", 0}}, .out = {{"moments", "d", 2}}, .segment = 1},
    [OP_BATCH_NORM_MERGE] = {.in = {{"parts", "d", 3}}, .out = {{"moments", "d", 2}}},
    [OP_BATCH_NORM_OF_RUNNING] = {.in = {{"running", "f", 2}}, .out = {{"moments", "d", 2}}},
    [OP_BATCH_NORM_TRACK] = {.in = {{"moments", "d", 2}},
                             .out = {{"running", "f", 2}, {"batches", "l", 1}}},
    [OP_BATCH_NORM_FACTORS] = {.in = {{"moments", "d", 2}, {"w", "f", 1}, {"b", "f", 1}},
                               .out = {{"factors", "f", 2}}},
    [OP_BATCH_NORM_FORWARD] = {.in = {{"x", "fn", 0}, {"factors", "f", 2}},
                               .out = {{"y", "fn", 0}},
                               .segment = 1},
    [OP_BATCH_NORM_SUMS] = {.in = {{"x", "fn", 0}, {"dy", "fn", 0}, {"moments", "d", 2}},
                            .out = {{"sums", "d", 2}},
                            .segment = 1},
    [OP_BATCH_NORM_TOTAL] = {.in = {{"sums", "d", 3}}, .out = {{"total", "d", 2}}},
    [OP_BATCH_NORM_BACKWARD_WEIGHT] = {.in = {{"sums", "d", 2}, {"moments", "d", 2}},
                                       .out = {{"dw", "f", 1}, {"db", "f", 1}}},
    [OP_BATCH_NORM_BACKWARD_FACTORS] = {.in = {{"sums", "d", 2},
                                               {"moments", "d", 2},
                                               {"w", "f", 1}},
                                        .out = {{"factors", "f", 2}}},
    [OP_BATCH_NORM_BACKWARD_DATA] = {.in = {{"x", "fn", 0}, {"dy", "fn", 0}, {"factors", "f", 2}},
                                     .out = {{"dx", "fn", 0}},
                                     .segment = 1},
    [OP_FILL] = {.out = {{"y", "fn", 0}}},
    [OP_ADD] = {.in = {{"x", "fn", 0}}, .out = {{"y", "fn", 0}}},
    [OP_SCALE] = {.out = {{"y", "fn", 0}}},
    [OP_SGD] = {.in = {{"grad", "f", 0}},
                .out = {{"value", "f", 0}, {"momentum", "f?", 0}},
                .step = 1},
    [OP_ADADELTA] = {.in = {{"grad", "f", 0}},
                     .out = {{"value", "f", 0}, {"moments", "f", 2}},
                     .step = 1},
    [OP_ADAM] = {.in = {{"grad", "f", 0}},
                 .out = {{"value", "f", 0}, {"moments", "f", 2}},
                 .step = 1},
    [OP_HASH] = {.in = {{"x", "f", 0}}, .out = {{"hashes", "u", 2}}, .step = 1},
    [OP_GATHER_SAMPLES] = {.in = {{"images", "b", 4}, {"labels", "b", 1}, {"index", "i", 1}},
                           .out = {{"x", "f", 4}, {"labels of x", "i", 1}}},
    [OP_GATHER_ROWS] = {.in = {{"x", "w", 0}, {"index", "i", 1}}, .out = {{"y", "w", 0}}},
};

static enum dtype type_of(char letter) {
    switch (letter) {
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
    char shape[64];
    return fail(ERR_FAILED, "%s: operand %s %s: %s", op_name(op), operand->name,
                op_shape_text(t, shape), what);
}

static int check_layout(enum op op, const struct operand *o, const struct tensor *t, int segment) {
    if (t->layout == LAYOUT_PLAIN)
        return t->groups == 0 ? OK : wrong(op, o, t, "a plain tensor has no groups");
    int least = (t->dims[0] + GROUP - 1) / GROUP;
    if (t->layout != LAYOUT_N16 || !strchr(o->type, 'n'))
        return wrong(op, o, t, "must be in plain layout");
    if (t->groups < least || t->groups > t->dims[0])
        return wrong(op, o, t, "the number of N16 groups does not fit the samples");
    if (segment && t->groups != least)
        return wrong(op, o, t, "one segment a launch: give tensor_segment()");
    return OK;
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
    if (t->rank < 1 || t->rank > MAX_RANK) return wrong(op, o, t, "rank must be 1 to 4");
    if (o->rank && t->rank != o->rank)
        return fail(ERR_FAILED, "%s: operand %s: rank %d: must be %d", op_name(op), o->name,
                    t->rank, o->rank);
    if (t->dtype != type_of(o->type[0]) && !(o->type[0] == 'w' && t->dtype == DTYPE_I32))
        return wrong(op, o, t, "is of the wrong type");
    for (int d = 0; d < t->rank; d++)
        if (t->dims[d] < (d ? 1 : 0)) return wrong(op, o, t, "a dimension is too small");
    return check_layout(op, o, t, segment);
}

int op_takes_n16(const struct op_args *args) {
    int n16 = 0;
    for (int i = 0; i < 3; i++)
        n16 |= args->in[i].data && args->in[i].layout == LAYOUT_N16;
    for (int i = 0; i < 2; i++)
        n16 |= args->out[i].data && args->out[i].layout == LAYOUT_N16;
    return n16;
}

static int overlap(const struct tensor *a, const struct tensor *b) {
    uintptr_t at = (uintptr_t)a->data, bt = (uintptr_t)b->data;
    return a->data && b->data && at < bt + tensor_bytes(b) && bt < at + tensor_bytes(a);
}

/* May out[0] be in[i]? In place means exactly the same memory, not a part of it. */
static int may_be_in_place(enum op op, int i) {
    switch (op) {
    case OP_RELU_FORWARD:
    case OP_BATCH_NORM_FORWARD:
    case OP_DROPOUT_FORWARD:
    case OP_DROPOUT_BACKWARD:
    case OP_DROPOUT2D_FORWARD:
    case OP_DROPOUT2D_BACKWARD: return i == 0;
    case OP_RELU_BACKWARD:
    case OP_BATCH_NORM_BACKWARD_DATA: return i == 1;
    default: return 0;
    }
}

static int check_overlaps(enum op op, const struct op_args *a) {
    const struct signature *s = &signatures[op];
    for (int o = 0; o < 2; o++) {
        for (int i = 0; i < 3; i++) {
            if (!overlap(&a->out[o], &a->in[i])) continue;
            if (o == 0 && a->out[0].data == a->in[i].data && may_be_in_place(op, i)) continue;
            return fail(ERR_FAILED, "%s: operands %s and %s overlap in memory", op_name(op),
                        s->in[i].name, s->out[o].name);
        }
    }
    if (overlap(&a->out[0], &a->out[1]))
        return fail(ERR_FAILED, "%s: operands %s and %s overlap in memory", op_name(op),
                    s->out[0].name, s->out[1].name);
    return OK;
}

int op_check(enum op op, const struct op_args *args) {
    if ((unsigned)op >= OP_COUNT)
        return fail(ERR_FAILED, "op %d: there is none of this number", (int)op);
    const struct signature *s = &signatures[op];
    for (int i = 0; i < 3; i++)
        CHECK(check_operand(op, "in", i, &s->in[i], &args->in[i], s->segment));
    for (int i = 0; i < 2; i++)
        CHECK(check_operand(op, "out", i, &s->out[i], &args->out[i], s->segment));
    if (s->step && !args->step)
        return fail(ERR_FAILED, "%s: the step block is missing", op_name(op));
    CHECK(op_check_shapes(op, args));
    return check_overlaps(op, args);
}
