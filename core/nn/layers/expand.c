/* Makes a parameter or a constant a value of the pass: a class token, a learned scale, positions, a
 * mask. Each sample gets a copy, so every op on samples accepts it. The gradient is the sum over
 * the samples of each segment, folded like every weight's. */
#include "base/error.h"
#include "nn/tape/tape_internal.h"

int tape_sum_first(duet_tape *t, const struct tensor *parts, const struct tensor *to) {
    int inner = (int)tensor_count(to);
    struct op_args args = {.in[0] = tensor_seen_as(parts, 3, 1, parts->dims[0], inner),
                           .out[0] = tensor_seen_as(to, 2, 1, inner, 0),
                           .p.sum.divide = 1};
    return tape_launch_some(t, OP_SUM, &args, 0);
}

/* The var may have another shape than the rows that it was made from: rpc/autograd.c. */
static int sum_segment(duet_tape *t, const struct node *n, int s, const struct tensor *dw,
                       const struct tensor *db) {
    const int *made = n->args.out[0].dims;
    const struct tensor rows = tensor_seen_as(&n->y->grad, 2, made[1], made[2], 0);
    struct tensor dy = tensor_segment(&rows, &t->segments, s);
    (void)db;
    return tape_sum_first(t, &dy, dw);
}

static int expand_backward(duet_tape *t, struct node *n) {
    return tape_weight_grads(t, OP_SUM, n);
}

static int check_shape(const duet_tape *t, const struct tensor *value, int rank, const int *dims) {
    size_t count = 1;
    for (int i = 1; i < rank; i++)
        count *= (size_t)dims[i];
    if (rank < 1 || rank > MAX_RANK || !tape_rows_fit(t, dims[0]) || count != tensor_count(value))
        return fail(ERR_USAGE,
                    "expand: %zu numbers for %d dimensions that need %zu for each of %d samples",
                    tensor_count(value), rank, count, rank < 1 ? 0 : dims[0]);
    if (count * (size_t)dims[0] <= INT32_MAX) return OK;
    return fail(ERR_USAGE,
                "expand: %zu numbers for each of %d samples: a tensor has at most "
                "2^31 - 1",
                count, dims[0]);
}

duet_var *tape_expand(duet_tape *t, const struct tensor *value, struct param *w, int rank,
                      const int *dims) {
    if (!t || t->error || tape_fail(t, check_shape(t, value, rank, dims)) ||
        tape_fail(t, params_use(t->owner, w, NULL, 0)))
        return NULL;
    int n = dims[0], count = (int)tensor_count(value);
    struct node node = {
        .backward = expand_backward, .w = w, .segment_grads = sum_segment, .spares = SPARES_Y};
    struct tensor y = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, rank, dims);
    node.args = (struct op_args){.in[0] = tensor_seen_as(value, 2, 1, count, 0),
                                 .out[0] = tensor_seen_as(&y, 3, 1, n, count),
                                 .p.sum.divide = 1};
    if (w) node.args.in[0].data = w->value.data; /* the reducer may have moved it since */
    if (t->error || (n && tape_fail(t, launch(t->stream, OP_SPREAD, &node.args)))) return NULL;
    node.y = tape_var(t, y, param_trains(w));
    if (node.y) node.y->outside = 1;
    return tape_node(t, &node) ? NULL : node.y;
}
