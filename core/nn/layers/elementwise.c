/* The layers that treat each element independently: relu and similar functions, sums and products
 * of two operands. They follow the pattern of layers.c. */
#include "base/error.h"
#include "nn/tape/tape_internal.h"

/* ---- of one operand ---- */

/* No gradient has come: the pool after a relu has already gone back through the relu. */
static int activation_backward(duet_tape *t, struct node *n) {
    if (!n->y->grad.data) return OK;
    const int result = activation_reads_result(n->args.p.activation.kind);
    struct op_args args = {.in = {result ? n->y->value : n->x->value, n->y->grad}};
    return tape_backward_to_x(t, OP_ACTIVATION_BACKWARD, n, &args, 1);
}

/* The gradients of a x, and of x + a and remainders, which do not read x: a dy, and 1 dy. */
static int linear_backward(duet_tape *t, struct node *n) {
    struct node to = *n;
    struct op_args args = {.in = {n->y->grad}};
    if (n->args.p.activation.kind != ACTIVATION_SCALE)
        to.args.p.activation = (struct activation_args){ACTIVATION_SCALE, 1, 0};
    return tape_backward_to_x(t, OP_ACTIVATION_FORWARD, &to, &args, 1);
}

/* The var and node of an immediate relu, but the value has no memory yet. */
static duet_var *relu_put_off(duet_tape *t, duet_var *x) {
    struct tensor y = x->value;
    y.data = NULL;
    struct node node = {.backward = activation_backward,
                        .op = OP_ACTIVATION_FORWARD,
                        .args.p.activation.kind = ACTIVATION_RELU,
                        .x = x,
                        .spares = SPARES_X,
                        .y = tape_var(t, y, x->needs_grad)};
    if (!node.y || tape_node(t, &node)) return NULL;
    node.y->relu_of = x;
    x->put_off++;
    return node.y;
}

duet_var *duet_relu(duet_tape *t, duet_var *x) {
    if (tape_stuck(t, x)) return NULL;
    if (x->value.rank == 4) return relu_put_off(t, x);
    return tape_activation(t, x, (struct activation_args){ACTIVATION_RELU, 0, 0});
}

duet_var *tape_activation(duet_tape *t, duet_var *x, struct activation_args function) {
    if (activation_is_plain(function.kind)) x = to_plain(t, x);
    if (tape_stuck(t, x)) return NULL;
    struct node node = {.backward = activation_backward,
                        .x = x,
                        .spares = activation_reads_result(function.kind) ? SPARES_X : SPARES_Y};
    if (function.kind == ACTIVATION_SCALE || function.kind == ACTIVATION_SHIFT ||
        function.kind == ACTIVATION_REMAINDER || function.kind == ACTIVATION_FMOD)
        node.backward = linear_backward, node.spares = SPARES_ALL;
    node.args.p.activation = function;
    node.args.in[0] = x->value;
    node.args.out[0] = tape_tensor(t, DTYPE_F32, x->value.layout, x->value.rank, x->value.dims);
    const int compares = function.kind == ACTIVATION_ABOVE || function.kind == ACTIVATION_EQUAL;
    return tape_append_op(t, OP_ACTIVATION_FORWARD, &node, x->needs_grad && !compares);
}

/* ---- of two operands ---- */

static int same_samples(const struct tensor *a, const struct tensor *b) {
    return a->rank == b->rank && a->dims[0] == b->dims[0];
}

/* Both operands broadcast to their common shape, in the layout of the larger one; small[2]: the
 * original operands. 0: there is no common shape; the tape has the reason. */
static int broadcast_terms(duet_tape *t, duet_var *x[2], const char *name, duet_var *small[2]) {
    const struct tensor *of_a = &x[0]->value, *of_b = &x[1]->value,
                        *larger = tensor_count(of_a) > tensor_count(of_b) ? of_a : of_b;
    const int n16 = larger->layout == LAYOUT_N16 && same_samples(of_a, of_b);
    for (int i = 0; i < 2; i++)
        if (!(small[i] = x[i] = n16 ? to_device_layout(t, x[i]) : to_plain(t, x[i]))) return 0;
    return tape_broadcast_all(t, name, x, 2, 0);
}

/* A factor with copies along some dimensions, which the other one's gradient reads: only the factor
 * is saved, and backward remakes the copies if they were freed. */
enum { SMALL_NONE, SMALL_X, SMALL_X2 };

static void save_small_factor(const duet_tape *t, struct node *n, duet_var *const small[2]) {
    for (int i = 0; i < 2 && t->step.training; i++) {
        const duet_var *large = i ? n->x2 : n->x, *other = i ? n->x : n->x2;
        if (!small[i] || small[i] == large || !other->needs_grad) continue;
        n->args.in[2] = small[i]->value;
        n->first = i ? SMALL_X2 : SMALL_X;
        n->spares |= i ? SPARES_X2 : SPARES_X;
        small[i]->saved = 1;
        return;
    }
}

static duet_var *of_two(duet_tape *t, duet_var *a, duet_var *b, const char *name, enum op op,
                        node_backward *backward) {
    const int product = op == OP_MULTIPLY_FORWARD;
    duet_var *x[2] = {a, b}, *small[2] = {NULL, NULL};
    if (tape_failed(t, a) || tape_failed(t, b) || tape_for_all_samples(t, name, x, 2) < 0 ||
        tape_blocked(t, x[0]) || tape_blocked(t, x[1]))
        return NULL;
    if (x[0]->value.rank != x[1]->value.rank && tape_mixes_samples(t, name)) return NULL;
    if (!tensor_same_shape(&x[0]->value, &x[1]->value) && !broadcast_terms(t, x, name, small))
        return NULL;
    a = x[0], b = x[1];
    if (a->value.layout != b->value.layout) {
        a = to_device_layout(t, a);
        b = to_device_layout(t, b);
        if (!a || !b) return NULL;
    }
    if (tape_stuck(t, a) || tape_stuck(t, b)) return NULL;
    struct node node = {.backward = backward, .x = a, .x2 = b, .spares = SPARES_ALL};
    if (product) node.spares = tape_product_spares(a, b);
    node.args.in[0] = a->value;
    node.args.in[1] = b->value;
    node.args.out[0] = tape_tensor(t, DTYPE_F32, a->value.layout, a->value.rank, a->value.dims);
    if (t->error || tape_fail(t, tape_launch_batch(t, op, &node.args))) return NULL;
    if (product) save_small_factor(t, &node, small);
    return tape_append_launched(t, op, &node, a->needs_grad || b->needs_grad);
}

/* Both get dy itself, so neither may write to it. */
static int add_backward(duet_tape *t, struct node *n) {
    if (n->x->needs_grad) CHECK(grad_share(t, n->x, &n->y->grad));
    return n->x2->needs_grad ? grad_share(t, n->x2, &n->y->grad) : OK;
}

/* The gradient of x by `op` on args->in, in new memory: dy may be read again. */
static int gradient_of(duet_tape *t, duet_var *x, enum op op, struct op_args *args) {
    if (!x->needs_grad) return OK;
    args->out[0] = grad_target(t, x);
    CHECK(tape_error(t));
    CHECK(tape_launch_batch(t, op, args));
    return grad_done(t, x, &args->out[0]);
}

static int subtract_backward(duet_tape *t, struct node *n) {
    struct op_args minus = {.in = {n->y->grad}, .p.activation = {ACTIVATION_SCALE, -1, 0}};
    CHECK(gradient_of(t, n->x2, OP_ACTIVATION_FORWARD, &minus));
    return n->x->needs_grad ? grad_share(t, n->x, &n->y->grad) : OK;
}

/* The gradient of x is dy times the other factor. */
static int gradient_by(duet_tape *t, const struct node *n, duet_var *x, duet_var *other,
                       int is_small) {
    struct op_args by = {.in = {n->y->grad, other->value}};
    if (!x->needs_grad) return OK;
    if (is_small && other->gone)
        CHECK(tape_broadcast_value(t, &n->args.in[2], other->value.rank, other->value.dims,
                                   &by.in[1]));
    return gradient_of(t, x, OP_MULTIPLY_FORWARD, &by);
}

static int multiply_backward(duet_tape *t, struct node *n) {
    CHECK(gradient_by(t, n, n->x, n->x2, n->first == SMALL_X2));
    return gradient_by(t, n, n->x2, n->x, n->first == SMALL_X);
}

static int is_loss(const duet_var *x) {
    return x->hits.data || x->terms[0];
}

duet_var *duet_add(duet_tape *t, duet_var *a, duet_var *b) {
    if (tape_failed(t, a) || tape_failed(t, b)) return NULL;
    if (is_loss(a) || is_loss(b)) return tape_add_losses(t, a, b);
    return of_two(t, a, b, "add", OP_ADD_FORWARD, add_backward);
}

duet_var *duet_subtract(duet_tape *t, duet_var *a, duet_var *b) {
    return of_two(t, a, b, "subtract", OP_SUBTRACT_FORWARD, subtract_backward);
}

duet_var *duet_multiply(duet_tape *t, duet_var *a, duet_var *b) {
    return of_two(t, a, b, "multiply", OP_MULTIPLY_FORWARD, multiply_backward);
}
