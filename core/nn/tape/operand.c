/* The functions that all layers use. They launch an op over a batch, make it a node, and give its
 * operands memory and the op's layout. layers.c shows how layers use them. */
#include "base/error.h"
#include "nn/tape/tape_internal.h"

/* ---- launches ---- */

int tape_launch_segments(duet_tape *t, enum op op, const struct op_args *whole) {
    for (int s = 0; s < t->segments.count; s++) {
        struct op_args args = *whole;
        args.in[0] = tensor_segment(&whole->in[0], &t->segments, s);
        args.out[0] = tensor_segment(&whole->out[0], &t->segments, s);
        /* All rows (rows.h) are equal, so every sample uses the first. */
        if (op == OP_DROPOUT || op == OP_RANDOM)
            args.p.dropout.v = t->rows.inside ? 0 : t->segments.seg[s].v;
        CHECK(launch(t->stream, op, &args));
    }
    return OK;
}

int tape_launch_batch(duet_tape *t, enum op op, const struct op_args *args) {
    return device_whole_batch(t->device, op) ? launch(t->stream, op, args)
                                             : tape_launch_segments(t, op, args);
}

duet_var *tape_append(duet_tape *t, struct node *node, struct tensor y, int needs_grad) {
    node->y = tape_var(t, y, needs_grad);
    return tape_node(t, node) ? NULL : node->y;
}

duet_var *tape_append_launched(duet_tape *t, enum op op, struct node *node, int needs_grad) {
    node->op = op;
    return tape_append(t, node, node->args.out[0], needs_grad);
}

duet_var *tape_append_op(duet_tape *t, enum op op, struct node *node, int needs_grad) {
    if (t->error || tape_fail(t, tape_launch_batch(t, op, &node->args))) return NULL;
    return tape_append_launched(t, op, node, needs_grad);
}

int tape_backward_to_x(duet_tape *t, enum op op, struct node *n, struct op_args *args,
                       int in_place) {
    if (!n->x->needs_grad) return OK;
    const struct tensor dx =
        in_place && grad_may_reuse(t, n->y) ? n->y->grad : grad_target(t, n->x);
    if (!args->out[0].rank) args->out[0] = dx;
    args->out[0].data = dx.data;
    args->p = n->args.p;
    args->step = n->args.step;
    CHECK(tape_error(t));
    CHECK(tape_launch_batch(t, op, args));
    return grad_done(t, n->x, &dx);
}

int tape_copy_strided(duet_tape *t, const struct tensor *from, const struct tensor *to) {
    struct op_args args = {.in[0] = *from, .out[0] = *to};
    return tensor_count(from) ? launch(t->stream, OP_PERMUTE, &args) : OK;
}

int tape_launch_some(duet_tape *t, enum op op, const struct op_args *args, float empty) {
    struct op_args fill = {.out[0] = args->out[0], .p.fill.value = empty};
    if (!tensor_count(&args->out[0])) return OK;
    return tensor_count(&args->in[0]) ? launch(t->stream, op, args)
                                      : launch(t->stream, OP_FILL, &fill);
}

int tape_give(duet_tape *t, duet_var *x, enum op op, struct op_args *args) {
    if (!x || !x->needs_grad) return OK;
    const struct tensor dx = grad_target(t, x);
    args->out[0].data = dx.data;
    CHECK(tape_error(t));
    CHECK(tape_launch_some(t, op, args, 0));
    return grad_done(t, x, &dx);
}

/* ---- deferred relus ---- */

static int relu_now(duet_tape *t, duet_var *y) {
    struct op_args args = {.in[0] = y->relu_of->value, .p.activation.kind = ACTIVATION_RELU};
    args.out[0] = tape_tensor(t, DTYPE_F32, y->value.layout, y->value.rank, y->value.dims);
    scheduled_operation(t->stream);
    if (t->error || tape_fail(t, tape_launch_batch(t, OP_ACTIVATION_FORWARD, &args)))
        return t->error;
    duet_var *x = y->relu_of;
    y->value = args.out[0];
    step_arena_hold(&t->arena, y->value.data);
    y->relu_of = NULL;
    return tape_fail(t, tape_relu_done(t, x));
}

/* A parameter as a value cannot be an operand of an op that does not handle its gradient. */
int tape_blocked(duet_tape *t, duet_var *x) {
    if (tape_failed(t, x)) return 1;
    if (x->param)
        return tape_fail(t, fail(ERR_USAGE,
                                 "parameter %s: only add, subtract, multiply, matmul, reshape "
                                 "and expand take a parameter: expand it first",
                                 x->param->spec->name));
    int stuck = x->relu_of && relu_now(t, x);
    scheduled_operation(t->stream);
    return stuck;
}

/* Makes the strided value of x a row-major copy. */
static int copy_view(duet_tape *t, duet_var *x) {
    struct tensor y = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, x->value.rank, x->value.dims);
    if (t->error || tape_fail(t, tape_copy_strided(t, &x->value, &y))) return t->error;
    step_arena_hold(&t->arena, y.data); /* besides x->view's memory; lifetime.c says how long */
    x->beside = x->saved ? VIEW_SAVED : VIEW_MADE;
    x->value = y;
    return OK;
}

int tape_stuck(duet_tape *t, duet_var *x) {
    int stuck = tape_blocked(t, x) || (x->value.strided && copy_view(t, x));
    if (!stuck) scheduled_operation(t->stream);
    return stuck;
}

duet_var *tape_relu_put_off(const duet_tape *t, const duet_var *x) {
    if (t->error || !x || !t->var_count || x != t->vars[t->var_count - 1]) return NULL;
    return x->relu_of;
}

/* ---- layouts ---- */

/* Converts segment by segment, because no group holds samples of two segments. */
static int convert(duet_tape *t, const struct tensor *from, const struct tensor *to) {
    for (int s = 0; s < t->segments.count; s++) {
        struct op_args args = {.in[0] = tensor_segment(from, &t->segments, s),
                               .out[0] = tensor_segment(to, &t->segments, s)};
        CHECK(launch(t->stream, to->layout == LAYOUT_N16 ? OP_TO_N16 : OP_TO_PLAIN, &args));
    }
    return OK;
}

/* args.in[0] is y with the dimensions of x. */
static int convert_backward(duet_tape *t, struct node *n) {
    if (!n->x->needs_grad) return OK;
    struct tensor dy = n->args.in[0], dx;
    dy.data = n->y->grad.data;
    if (tape_grad_view(t, n->x, &dx)) {
        CHECK(tape_error(t));
        return convert(t, &dy, &dx);
    }
    dx = grad_target(t, n->x);
    CHECK(tape_error(t));
    CHECK(convert(t, &dy, &dx));
    return grad_done(t, n->x, &dx);
}

/* The elements of a view are read in place. */
static duet_var *converted(duet_tape *t, duet_var *x, enum layout layout, const int *order) {
    int dims[MAX_RANK], back[MAX_RANK];
    for (int i = 0; i < x->value.rank; i++)
        dims[i] = x->value.dims[order ? order[i] : i], back[order ? order[i] : i] = i;
    struct tensor y = tape_tensor(t, DTYPE_F32, layout, x->value.rank, dims),
                  as_x = order ? tensor_permuted(&y, back) : y;
    if (t->error || tape_fail(t, convert(t, &x->value, &as_x))) return NULL;
    struct node node = {
        .backward = convert_backward, .x = x, .args.in[0] = as_x, .spares = SPARES_ALL};
    node.y = tape_view_var(t, y, x);
    return tape_node(t, &node) ? NULL : node.y;
}

duet_var *tape_plain_in_order(duet_tape *t, duet_var *x, const int *order) {
    return converted(t, x, LAYOUT_PLAIN, order);
}

static duet_var *to_layout(duet_tape *t, duet_var *x, enum layout layout) {
    if (tape_blocked(t, x)) return NULL;
    if (x->value.layout != layout) return converted(t, x, layout, NULL);
    return tape_stuck(t, x) ? NULL : x;
}

int tape_rows_fit(const duet_tape *t, int rows) {
    int samples = t->segments.n;
    return rows == samples || (samples && rows && rows % samples == 0);
}

int tape_check_samples(const duet_tape *t, const struct tensor *x) {
    if (tape_rows_fit(t, x->dims[0])) return OK;
    return fail(ERR_USAGE,
                "layer: its input has %d rows, the pass %d samples: only functions that ignore "
                "samples take it",
                x->dims[0], t->segments.n);
}

duet_var *to_device_layout(duet_tape *t, duet_var *x) {
    if (tape_blocked(t, x) || tape_fail(t, tape_check_samples(t, &x->value))) return NULL;
    return to_layout(t, x, device_layout(t->device));
}

duet_var *to_plain(duet_tape *t, duet_var *x) {
    return to_layout(t, x, LAYOUT_PLAIN);
}
