/* The layers, under the names of PyTorch's functions. Each enqueues its forward kernel and appends
 * a node that knows its backward. All follow one pattern:
 *
 *     forward     check what only the tape knows; take y from the arena; launch; append the node
 *     backward    dy = y->grad; the parameters come first, so that their allreduce can start early,
 *                 then the gradient of x */
#include <string.h>

#include "base/error.h"
#include "nn/layers/text_functions.h"
#include "nn/tape/tape_internal.h"

/* x (N,..,K) as rows of K numbers, such as the words of a sentence; all rows of a sample belong to
 * its segment. x (N,K) has this shape already. */
static struct tensor as_rows(const struct tensor *x) {
    return x->rank == 2 ? *x : tensor_rows(x);
}

static int linear_grads(duet_tape *t, const struct node *n, int s, const struct tensor *dw,
                        const struct tensor *db) {
    const struct tensor x = as_rows(&n->x->value), dy = as_rows(&n->y->grad);
    struct op_args args = {
        .in = {tensor_segment(&x, &t->segments, s), tensor_segment(&dy, &t->segments, s)},
        .out = {*dw, *db},
        .p = n->args.p};
    return launch(t->stream, OP_LINEAR_BACKWARD_WEIGHT, &args);
}

static int linear_backward(duet_tape *t, struct node *n) {
    CHECK(tape_weight_grads(t, OP_LINEAR_BACKWARD_WEIGHT, n));
    struct op_args args = {.in = {as_rows(&n->y->grad), n->w->value},
                           .out[0] = as_rows(&n->x->value)};
    return tape_backward_to_x(t, OP_LINEAR_BACKWARD_DATA, n, &args, 0);
}

/* More than one row of a sample is PLAIN, because N16 is made for products with a whole group of
 * samples at once. */
static duet_var *linear(duet_tape *t, duet_var *x, struct param *w, struct param *b,
                        int weight_is_in_out) {
    if (tape_blocked(t, x)) return NULL;
    x = x->value.rank > 2 ? to_plain(t, x) : to_device_layout(t, x);
    if (!x || tape_check_params(t, "linear", w, b) ||
        tape_fail(t, tape_check_samples(t, &x->value)))
        return NULL;
    int in = w->value.dims[!weight_is_in_out], out = w->value.dims[weight_is_in_out],
        rank = x->value.rank, dims[MAX_RANK];
    if (rank < 2 || x->value.dims[rank - 1] != in)
        return tape_refuse(
            t, "linear %s: takes %d inputs, but was given %s: flatten first, or check the model",
            w->spec->name, in, SHAPE(&x->value));
    memcpy(dims, x->value.dims, sizeof dims);
    dims[rank - 1] = out;
    struct node node = {.backward = linear_backward,
                        .op = OP_LINEAR_FORWARD,
                        .segment_grads = linear_grads,
                        .x = x,
                        .w = w,
                        .b = b,
                        .spares = SPARES_Y};
    struct tensor y = tape_tensor(t, DTYPE_F32, x->value.layout, rank, dims);
    node.args = (struct op_args){.in = {as_rows(&x->value), w->value, tape_bias(t, b, out)},
                                 .out[0] = as_rows(&y),
                                 .p.linear = {weight_is_in_out}};
    if (t->error || tape_fail(t, tape_launch_batch(t, node.op, &node.args))) return NULL;
    return tape_append(t, &node, y, tape_needs_grad(x, w, b));
}

/* The rows that a linear layer sees in each sample of x (N,..,K). */
static int64_t rows_of_sample(duet_var *x) {
    const struct tensor *v = &x->value;
    return v->rank > 2 ? (int64_t)tensor_sample_count(v) / v->dims[v->rank - 1] : 1;
}

duet_var *duet_linear(duet_tape *t, duet_var *x, int w, int b) {
    if (tape_failed(t, x)) return NULL;
    int wrong;
    struct param *weight = tape_param_at(t, "linear", w, 2),
                 *bias = tape_bias_at(t, "linear", b, &wrong);
    if (!weight || wrong ||
        tape_too_large(t, "linear", x, weight->value.dims[0], rows_of_sample(x), 1))
        return NULL;
    return linear(t, x, weight, bias, 0);
}

duet_var *duet_matmul_add(duet_tape *t, duet_var *x, int w, int b) {
    if (tape_failed(t, x)) return NULL;
    int wrong;
    struct param *weight = tape_param_at(t, "matmul_add", w, 2),
                 *bias = tape_bias_at(t, "matmul_add", b, &wrong);
    if (!weight || wrong ||
        tape_too_large(t, "matmul_add", x, weight->value.dims[1], rows_of_sample(x), 1))
        return NULL;
    return linear(t, x, weight, bias, 1);
}

/* ---- layers without parameters ---- */

/* The mask depends on the virtual device, so each segment is its own launch, forward and
 * backward alike. */
static int drop_backward(duet_tape *t, struct node *n) {
    if (!n->x->needs_grad) return OK;
    struct op_args args = n->args;
    args.in[0] = n->y->grad;
    args.out[0] = grad_may_reuse(t, n->y) ? n->y->grad : grad_target(t, n->x);
    CHECK(tape_error(t));
    CHECK(tape_launch_segments(t, OP_DROPOUT, &args));
    return grad_done(t, n->x, &args.out[0]);
}

static duet_var *drop(duet_tape *t, duet_var *x, double p, int planes) {
    if (!(p >= 0 && p <= 1))
        return tape_refuse(t, "dropout probability has to be between 0 and 1, but got %g", p);
    if (tape_fail(t, tape_check_samples(t, &x->value))) return NULL;
    int layer = t->dropout_layers++;
    if (!t->step.training || p == 0) return x;
    struct node node = {.backward = drop_backward, .op = OP_DROPOUT, .x = x, .spares = SPARES_ALL};
    node.args = (struct op_args){.in = {x->value},
                                 .step = t->step.step,
                                 .p.dropout = {.p = (float)p, .layer = layer, .planes = planes}};
    node.args.out[0] = tape_tensor(t, DTYPE_F32, x->value.layout, x->value.rank, x->value.dims);
    if (t->error || tape_fail(t, tape_launch_segments(t, OP_DROPOUT, &node.args))) return NULL;
    return tape_append(t, &node, node.args.out[0], x->needs_grad);
}

duet_var *duet_dropout(duet_tape *t, duet_var *x, double p) {
    if (tape_stuck(t, x)) return NULL;
    return drop(t, x, p, 0);
}

duet_var *duet_dropout2d(duet_tape *t, duet_var *x, double p) {
    if (tape_stuck(t, x)) return NULL;
    if (x->value.rank != 4)
        return tape_refuse(t, "dropout2d: an input of %s has no planes: check the model",
                           SHAPE(&x->value));
    return drop(t, x, p, 1);
}

static int check_drawn(const duet_tape *t, int rank, const int *shape, enum tape_draw how) {
    if ((unsigned)how > RANDOM_NORMAL)
        return fail(ERR_USAGE, "random: %d: give RANDOM_UNIFORM or RANDOM_NORMAL", (int)how);
    if (rank < 1 || rank > MAX_RANK || !shape || (shape[0] != -1 && !tape_rows_fit(t, shape[0])))
        return fail(ERR_USAGE,
                    "random: the shape must begin with -1 or the %d samples, and have 1 "
                    "to %d dimensions",
                    t->segments.n, MAX_RANK);
    double count = shape[0] == -1 ? t->segments.n : shape[0];
    for (int i = 1; i < rank; count *= shape[i++])
        if (shape[i] < 1)
            return fail(ERR_USAGE, "random: a dimension of %d: must be at least 1", shape[i]);
    return count <= INT32_MAX ? OK
                              : fail(ERR_USAGE,
                                     "random: %.0f numbers: a tensor has at most "
                                     "2^31 - 1",
                                     count);
}

duet_var *tape_random(duet_tape *t, int rank, const int *shape, enum tape_draw how) {
    if (!t || t->error || tape_fail(t, check_drawn(t, rank, shape, how))) return NULL;
    struct op_args args = {
        .step = t->step.step,
        .p.dropout = {.layer = t->dropout_layers++, .normal = how == RANDOM_NORMAL}};
    int dims[MAX_RANK];
    memcpy(dims, shape, (size_t)rank * sizeof *dims);
    if (dims[0] == -1) dims[0] = t->segments.n;
    args.out[0] = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, rank, dims);
    if (t->error || tape_fail(t, tape_launch_segments(t, OP_RANDOM, &args))) return NULL;
    return tape_var(t, args.out[0], 0);
}
