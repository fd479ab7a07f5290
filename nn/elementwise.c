/* The layers that treat each element alone, and the views: relu and its like, sums and products
 * of two operands, flatten and reshape. They follow the pattern of layers.c. */
#include <string.h>

#include "base/error.h"
#include "nn/tape_internal.h"

/* ---- of one operand ---- */

/* No gradient has come: the pool behind it has gone back through the relu as well. */
static int relu_backward(duet_tape *t, struct node *n) {
    if (!n->y->grad.data) return OK;
    struct op_args args = {.in = {n->y->value, n->y->grad}};
    return tape_backward_to_x(t, OP_RELU_BACKWARD, n, &args, 1);
}

static int tanh_backward(duet_tape *t, struct node *n) {
    struct op_args args = {.in = {n->y->value, n->y->grad}};
    return tape_backward_to_x(t, OP_TANH_BACKWARD, n, &args, 1);
}

static int sigmoid_backward(duet_tape *t, struct node *n) {
    struct op_args args = {.in = {n->y->value, n->y->grad}};
    return tape_backward_to_x(t, OP_SIGMOID_BACKWARD, n, &args, 1);
}

static int activation_backward(duet_tape *t, struct node *n) {
    struct op_args args = {.in = {n->x->value, n->y->grad}};
    return tape_backward_to_x(t, OP_ACTIVATION_BACKWARD, n, &args, 1);
}

static duet_var *of_one(duet_tape *t, duet_var *x, enum op op, node_backward *backward) {
    if (tape_stuck(t, x)) return NULL;
    struct node node = {.backward = backward, .x = x};
    node.args.in[0] = x->value;
    node.args.out[0] = tape_tensor(t, DTYPE_F32, x->value.layout, x->value.rank, x->value.dims);
    return tape_append_op(t, op, &node, x->needs_grad);
}

/* The same var and node as at once, but its value has no memory yet. */
static duet_var *relu_put_off(duet_tape *t, duet_var *x) {
    struct tensor y = x->value;
    y.data = NULL;
    struct node node = {.backward = relu_backward,
                        .op = OP_RELU_FORWARD,
                        .x = x,
                        .y = tape_var(t, y, x->needs_grad)};
    if (!node.y || tape_node(t, &node)) return NULL;
    node.y->relu_of = x;
    return node.y;
}

static int relu_now(duet_tape *t, duet_var *y) {
    struct op_args args = {.in[0] = y->relu_of->value};
    args.out[0] = tape_tensor(t, DTYPE_F32, y->value.layout, y->value.rank, y->value.dims);
    if (t->error || tape_fail(t, tape_launch_batch(t, OP_RELU_FORWARD, &args))) return t->error;
    y->value = args.out[0];
    y->relu_of = NULL;
    return OK;
}

/* A parameter as a value is no operand of an op that does not know what its gradient needs. */
int tape_stuck(duet_tape *t, duet_var *x) {
    if (tape_failed(t, x)) return 1;
    if (x->param)
        return tape_fail(t, fail(ERR_USAGE,
                                 "parameter %s: as a value it goes into add, subtract, multiply, "
                                 "matmul, reshape and expand: expand it first",
                                 x->param->spec->name));
    return x->relu_of && relu_now(t, x);
}

duet_var *tape_relu_put_off(const duet_tape *t, const duet_var *x) {
    if (t->error || !x || !t->var_count || x != t->vars[t->var_count - 1]) return NULL;
    return x->relu_of;
}

duet_var *duet_relu(duet_tape *t, duet_var *x) {
    if (tape_stuck(t, x)) return NULL;
    if (x->value.rank == 4) return relu_put_off(t, x);
    return of_one(t, x, OP_RELU_FORWARD, relu_backward);
}

duet_var *duet_tanh(duet_tape *t, duet_var *x) {
    return of_one(t, x, OP_TANH_FORWARD, tanh_backward);
}

duet_var *duet_sigmoid(duet_tape *t, duet_var *x) {
    return of_one(t, x, OP_SIGMOID_FORWARD, sigmoid_backward);
}

duet_var *tape_activation(duet_tape *t, duet_var *x, struct activation_args function) {
    if (activation_is_plain(function.kind)) x = to_plain(t, x);
    if (tape_stuck(t, x)) return NULL;
    struct node node = {.backward = activation_backward, .x = x};
    node.args.p.activation = function;
    node.args.in[0] = x->value;
    node.args.out[0] = tape_tensor(t, DTYPE_F32, x->value.layout, x->value.rank, x->value.dims);
    return tape_append_op(t, OP_ACTIVATION_FORWARD, &node, x->needs_grad);
}

/* ---- of two operands ---- */

int tape_check_terms(const char *op, const struct tensor *a, const struct tensor *b) {
    if (a->rank != b->rank)
        return fail(ERR_USAGE, "%s: a tensor of %s and one of %s: check the model", op, SHAPE(a),
                    SHAPE(b));
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return fail(ERR_USAGE,
                        "%s: The size of tensor a (%d) must match the size of tensor b (%d) at "
                        "non-singleton dimension %d: check the model",
                        op, a->dims[i], b->dims[i], i);
    return OK;
}

static int same_shape(const struct tensor *a, const struct tensor *b) {
    return a->rank == b->rank && !memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims);
}

/* A constant or a parameter becomes a copy for each sample of the other operand. */
static int for_samples(duet_tape *t, duet_var **a, duet_var **b, const char *name) {
    if (tape_failed(t, *a) || tape_failed(t, *b)) return 0;
    if ((*a)->common && !(*b)->common) *a = tape_for_samples(t, name, *a, (*b)->value.rank);
    if (*a && (*b)->common && !(*a)->common) *b = tape_for_samples(t, name, *b, (*a)->value.rank);
    return *a && *b;
}

/* Both operands in the shape that they have together. 0: they have none; the tape says why. */
static int broadcast_terms(duet_tape *t, duet_var **a, duet_var **b, const char *name) {
    int rank, dims[MAX_RANK];
    if (tape_fail(t, tape_broadcast_shape(name, &(*a)->value, &(*b)->value, 0, &rank, dims)))
        return 0;
    *a = to_plain(t, *a);
    *b = to_plain(t, *b);
    if (*a && *b) *a = tape_broadcast(t, name, *a, rank, dims);
    if (*a && *b) *b = tape_broadcast(t, name, *b, rank, dims);
    return *a && *b;
}

static duet_var *of_two(duet_tape *t, duet_var *a, duet_var *b, const char *name, enum op op,
                        node_backward *backward) {
    if (!for_samples(t, &a, &b, name) || tape_stuck(t, a) || tape_stuck(t, b)) return NULL;
    if (a->value.rank != b->value.rank && tape_mixes_samples(t, name)) return NULL;
    if (!same_shape(&a->value, &b->value) && !broadcast_terms(t, &a, &b, name)) return NULL;
    if (a->value.layout != b->value.layout) {
        a = to_device_layout(t, a);
        b = to_device_layout(t, b);
        if (!a || !b) return NULL;
    }
    struct node node = {.backward = backward, .x = a, .x2 = b};
    node.args.in[0] = a->value;
    node.args.in[1] = b->value;
    node.args.out[0] = tape_tensor(t, DTYPE_F32, a->value.layout, a->value.rank, a->value.dims);
    return tape_append_op(t, op, &node, a->needs_grad || b->needs_grad);
}

/* Both get dy itself, which neither may then write to. */
static int add_backward(duet_tape *t, struct node *n) {
    if (n->x->needs_grad) CHECK(grad_share(t, n->x, &n->y->grad));
    return n->x2->needs_grad ? grad_share(t, n->x2, &n->y->grad) : OK;
}

/* The gradient of x by `op` of dy and `other` (NULL: of dy alone), in memory of its own: dy may be
 * read again. */
static int gradient_of(duet_tape *t, duet_var *x, enum op op, const struct tensor *dy,
                       const struct tensor *other) {
    if (!x->needs_grad) return OK;
    struct op_args args = {.in[0] = *dy, .out[0] = grad_target(t, x)};
    if (other) args.in[1] = *other;
    CHECK(tape_error(t));
    CHECK(tape_launch_batch(t, op, &args));
    return grad_done(t, x, &args.out[0]);
}

static int subtract_backward(duet_tape *t, struct node *n) {
    CHECK(gradient_of(t, n->x2, OP_NEGATE, &n->y->grad, NULL));
    return n->x->needs_grad ? grad_share(t, n->x, &n->y->grad) : OK;
}

static int multiply_backward(duet_tape *t, struct node *n) {
    CHECK(gradient_of(t, n->x, OP_MULTIPLY_FORWARD, &n->y->grad, &n->x2->value));
    return gradient_of(t, n->x2, OP_MULTIPLY_FORWARD, &n->y->grad, &n->x->value);
}

duet_var *duet_add(duet_tape *t, duet_var *a, duet_var *b) {
    return of_two(t, a, b, "add", OP_ADD_FORWARD, add_backward);
}

duet_var *duet_subtract(duet_tape *t, duet_var *a, duet_var *b) {
    return of_two(t, a, b, "subtract", OP_SUBTRACT_FORWARD, subtract_backward);
}

duet_var *duet_multiply(duet_tape *t, duet_var *a, duet_var *b) {
    return of_two(t, a, b, "multiply", OP_MULTIPLY_FORWARD, multiply_backward);
}

/* ---- views ---- */

static int view_backward(duet_tape *t, struct node *n) {
    if (!n->x->needs_grad) return OK;
    struct tensor dx = n->y->grad;
    dx.rank = n->x->value.rank;
    memcpy(dx.dims, n->x->value.dims, sizeof dx.dims);
    return grad_may_reuse(n->y) ? grad_done(t, n->x, &dx) : grad_share(t, n->x, &dx);
}

/* The memory is the same, in both layouts: in N16 the 16 samples lie innermost, behind all other
 * dimensions. */
duet_var *tape_view(duet_tape *t, duet_var *x, int rank, const int *dims) {
    struct tensor y = x->value;
    y.rank = rank;
    for (int i = 0; i < MAX_RANK; i++)
        y.dims[i] = i < rank ? dims[i] : 0;
    struct node node = {.backward = view_backward, .x = x};
    node.y = tape_view_var(t, y, x);
    return tape_node(t, &node) ? NULL : node.y;
}

duet_var *duet_flatten(duet_tape *t, duet_var *x) {
    if (tape_stuck(t, x)) return NULL;
    return tape_view(t, x, 2, (int[]){x->value.dims[0], (int)tensor_sample_count(&x->value)});
}

/* Fills in the one -1 of a shape, and that of the samples. 0: `shape` is no shape for x. */
static int complete_shape(const struct tensor *x, int rank, const int *shape, int *to) {
    int64_t known = 1, want = (int64_t)tensor_sample_count(x);
    int open = -1;
    if (!shape || rank < 1 || rank > MAX_RANK || (shape[0] != -1 && shape[0] != x->dims[0]))
        return 0;
    for (int i = 1; i < rank; i++) {
        to[i] = shape[i];
        if (shape[i] == -1 && open < 0)
            open = i;
        else if (shape[i] < 1 || known > want)
            return 0;
        else
            known *= shape[i];
    }
    if (open > 0) to[open] = (int)(want / known);
    return open > 0 ? want % known == 0 : want == known;
}

/* A constant or a parameter keeps no dimension; there is no -1. */
static duet_var *reshape_common(duet_tape *t, duet_var *x, int rank, const int *shape) {
    int64_t count = shape && rank >= 1 && rank <= MAX_RANK;
    for (int i = 0; count > 0 && i < rank && count <= INT32_MAX; i++)
        count *= shape[i];
    if (count < 1 || count != (int64_t)tensor_count(&x->value)) {
        tape_fail(t,
                  fail(ERR_USAGE,
                       "reshape: the shape given, of %d dimensions, is invalid for a constant or "
                       "parameter of %s",
                       rank, SHAPE(&x->value)));
        return NULL;
    }
    const struct tensor seen = tensor_plain(x->value.data, DTYPE_F32, rank, shape);
    duet_var *y = tape_var(t, seen, x->needs_grad);
    if (y) y->common = 1, y->param = x->param;
    return y;
}

duet_var *duet_reshape(duet_tape *t, duet_var *x, int rank, const int *shape) {
    int dims[MAX_RANK] = {0};
    if (tape_failed(t, x)) return NULL;
    if (x->common) return reshape_common(t, x, rank, shape);
    if (tape_stuck(t, x)) return NULL;
    dims[0] = x->value.dims[0];
    if (!complete_shape(&x->value, rank, shape, dims)) {
        tape_fail(t, fail(ERR_USAGE,
                          "reshape: the shape given, of %d dimensions, is invalid for an input of "
                          "%s: the first dimension stays, and one other may be -1",
                          rank, SHAPE(&x->value)));
        return NULL;
    }
    return tape_view(t, x, rank, dims);
}
