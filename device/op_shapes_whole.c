/* How shapes relate in the ops that know no segments and take plain tensors alone: products and
 * sums of whole tensors, the order of dimensions, rows that are normalised; and the settings of
 * activations. (The others: op_shapes.c.) */
#include "device/op_wants.h"

int shapes_matmul(enum op op, const struct op_args *a) {
    const struct tensor *x = &a->in[0], *y = &a->out[0];
    int turn_a = a->p.matmul.turn_a, turn_b = a->p.matmul.turn_b;
    int rows = x->dims[turn_a ? 2 : 1], depth = x->dims[turn_a ? 1 : 2], columns = y->dims[2];
    if (turn_a && turn_b)
        return fail(ERR_FAILED, "%s: both operands are turned: turn one at most", op_name(op));
    CHECK(want(op, "b", &a->in[1], 3, x->dims[0], turn_b ? columns : depth,
               turn_b ? depth : columns, 0));
    return want(op, "y", y, 3, x->dims[0], rows, columns, 0);
}

static int check_sum(enum op op, const struct op_args *a, const struct tensor *many,
                     const struct tensor *few, const char *name) {
    if (a->p.sum.divide < 1)
        return fail(ERR_FAILED, "%s: a divisor of %d: it must be at least 1", op_name(op),
                    a->p.sum.divide);
    return want(op, name, few, 2, many->dims[0], many->dims[2], 0, 0);
}

int shapes_sum(enum op op, const struct op_args *a) {
    return check_sum(op, a, &a->in[0], &a->out[0], "y");
}

int shapes_spread(enum op op, const struct op_args *a) {
    return check_sum(op, a, &a->out[0], &a->in[0], "dy");
}

int shapes_embedding_backward(enum op op, const struct op_args *a) {
    CHECK(want_vector(op, "index", &a->in[1], a->in[0].dims[0]));
    return want(op, "dw", &a->out[0], 2, a->out[0].dims[0], a->in[0].dims[1], 0, 0);
}

/* Each dimension once. */
int shapes_permute(enum op op, const struct op_args *a) {
    const struct tensor *x = &a->in[0];
    const int *order = a->p.permute.order;
    int dims[MAX_RANK] = {0};
    unsigned seen = 0;
    for (int i = 0; i < x->rank; i++) {
        if (order[i] < 0 || order[i] >= x->rank || seen & (1u << order[i]))
            return fail(ERR_FAILED, "%s: dimension %d of y is dimension %d of x: each once, please",
                        op_name(op), i, order[i]);
        seen |= 1u << order[i];
        dims[i] = x->dims[order[i]];
    }
    return want(op, "y", &a->out[0], x->rank, dims[0], dims[1], dims[2], dims[3]);
}

int shapes_layer_norm(enum op op, const struct op_args *a) {
    const struct tensor *in = a->in, *out = a->out;
    const struct layer_norm_args *p = &a->p.layer_norm;
    int rows = in[0].dims[0], length = in[0].dims[1], weight = op == OP_LAYER_NORM_BACKWARD_WEIGHT;
    if (p->groups < 1 || p->inner < 1 || length % p->inner || rows % p->groups ||
        (int64_t)p->groups * (length / p->inner) > INT32_MAX)
        return fail(ERR_FAILED, "%s: %d groups, %d neighbours a weight: %d rows of %d must divide",
                    op_name(op), p->groups, p->inner, rows, length);
    int weights = p->groups * (length / p->inner);
    if (op != OP_LAYER_NORM_FORWARD) CHECK(want_same(op, "dy", &in[1], &in[0]));
    if (weight) {
        CHECK(want(op, "moments", &in[2], 2, rows, 2, 0, 0));
        CHECK(want_vector(op, "dw", &out[0], weights));
        return want_vector(op, "db", &out[1], weights);
    }
    if (op == OP_LAYER_NORM_FORWARD) {
        if (in[1].data) CHECK(want_vector(op, "w", &in[1], weights));
        CHECK(want(op, "moments", &out[1], 2, rows, 2, 0, 0));
    }
    if (in[2].data) CHECK(want_vector(op, "w or b", &in[2], weights));
    return want_same(op, "out[0]", &out[0], &in[0]);
}

int shapes_activation(enum op op, const struct op_args *a) {
    const struct activation_args *p = &a->p.activation;
    if ((unsigned)p->kind >= ACTIVATION_COUNT)
        return fail(ERR_FAILED, "%s: function %d: there is none of this number", op_name(op),
                    (int)p->kind);
    if (activation_is_plain(p->kind) && a->in[0].layout != LAYOUT_PLAIN)
        return fail(ERR_FAILED, "%s: function %d: all operands must be in plain layout",
                    op_name(op), (int)p->kind);
    if (op == OP_ACTIVATION_BACKWARD) CHECK(want_same(op, "dy", &a->in[1], &a->in[0]));
    return want_same(op, "out[0]", &a->out[0], &a->in[0]);
}
