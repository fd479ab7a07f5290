/* Linear layers for x (N,..,K). Every run of K numbers is a row, such as a word of a sentence, and
 * all rows of a sample belong to its segment. The operands are PLAIN, because such a layer does not
 * multiply a whole group of samples at once, for which N16 is made. */
#include <string.h>

#include "base/error.h"
#include "nn/tape/tape_internal.h"

/* x with its last dimension as columns. */
static struct tensor as_rows(const struct tensor *x) {
    int columns = x->dims[x->rank - 1];
    return tensor_seen_as(x, 2, (int)(tensor_count(x) / (size_t)columns), columns, 0);
}

/* Like tape_launch_batch, but there may be no rows. */
static int launch_rows(duet_tape *t, enum op op, const struct op_args *whole) {
    if (!tensor_count(&whole->out[0])) return OK;
    return tape_launch_batch(t, op, whole);
}

static int segment_grads(duet_tape *t, const struct node *n, int s, const struct tensor *dw,
                         const struct tensor *db) {
    struct tensor x = as_rows(&n->x->value), dy = as_rows(&n->y->grad);
    struct op_args args = {
        .in = {tensor_segment(&x, &t->segments, s), tensor_segment(&dy, &t->segments, s)},
        .out = {*dw, *db},
        .p = n->args.p};
    return launch(t->stream, OP_LINEAR_BACKWARD_WEIGHT, &args);
}

static int backward(duet_tape *t, struct node *n) {
    CHECK(tape_weight_grads(t, OP_LINEAR_BACKWARD_WEIGHT, n));
    if (!n->x->needs_grad) return OK;
    struct tensor dx = grad_target(t, n->x);
    struct op_args args = {
        .in = {as_rows(&n->y->grad), n->w->value}, .out[0] = as_rows(&dx), .p = n->args.p};
    CHECK(tape_error(t));
    CHECK(launch_rows(t, OP_LINEAR_BACKWARD_DATA, &args));
    return grad_done(t, n->x, &dx);
}

duet_var *tape_linear_rows(duet_tape *t, duet_var *x, struct param *w, struct param *b,
                           int weight_is_in_out) {
    if (!(x = to_plain(t, x)) || tape_check_params(t, "linear", w, b) ||
        tape_fail(t, tape_check_samples(t, &x->value)))
        return NULL;
    int in = w->value.dims[!weight_is_in_out], out = w->value.dims[weight_is_in_out],
        rank = x->value.rank, dims[MAX_RANK];
    if (x->value.dims[rank - 1] != in)
        return tape_refuse(
            t, "linear %s: takes %d inputs, but was given %s: flatten first, or check the model",
            w->spec->name, in, SHAPE(&x->value));
    memcpy(dims, x->value.dims, sizeof dims);
    dims[rank - 1] = out;
    struct node node = {.backward = backward,
                        .op = OP_LINEAR_FORWARD,
                        .spares = SPARES_Y,
                        .segment_grads = segment_grads,
                        .x = x,
                        .w = w,
                        .b = b};
    struct tensor y = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, rank, dims);
    node.args = (struct op_args){.in = {as_rows(&x->value), w->value, tape_bias(t, b, out)},
                                 .out[0] = as_rows(&y),
                                 .p.linear = {weight_is_in_out}};
    if (t->error || tape_fail(t, launch_rows(t, OP_LINEAR_FORWARD, &node.args))) return NULL;
    return tape_append(t, &node, y, tape_needs_grad(x, w, b));
}
