/* Layers with computed indices in a dimension: torch.take_along_dim and gather, scatter_add,
 * argsort. Taking and adding are each other's gradient. Indices are integers and have no gradient.
 *
 * The ops see a tensor as (outer, indices, inner), a view that costs nothing. */
#include "base/error.h"
#include "nn/layers/text_functions.h"
#include "nn/tape/tape_internal.h"

static struct tensor seen_at(const struct tensor *x, int dim) {
    int outer = 1, inner = 1;
    for (int i = 0; i < x->rank; i++)
        if (i != dim) *(i < dim ? &outer : &inner) *= x->dims[i];
    return tensor_seen_as(x, 3, outer, x->dims[dim], inner);
}

/* ---- shapes ---- */

/* Both have samples and the same rank. An operand common to all samples becomes a copy for each. */
static int for_samples(duet_tape *t, const char *name, duet_var **x, duet_var **index) {
    duet_var *both[2] = {*x, *index};
    const int rank = tape_for_all_samples(t, name, both, 2);
    if (!rank)
        tape_fail(t, fail(ERR_USAGE, "%s: no tensor has samples: give one by duet_expand", name));
    for (int i = 0; i < 2 && !t->error; i++)
        if ((both[i] = to_plain(t, both[i]))) (void)tape_stuck(t, both[i]);
    if (t->error) return 0;
    *x = both[0], *index = both[1];
    if ((*x)->value.rank == (*index)->value.rank) return 1;
    tape_fail(t,
              fail(ERR_USAGE, "%s: index %s and input %s: give both the same number of dimensions",
                   name, SHAPE(&(*index)->value), SHAPE(&(*x)->value)));
    return 0;
}

static duet_var *sized(duet_tape *t, const char *name, duet_var *x, int dim, const int *dims) {
    int own[MAX_RANK];
    for (int i = 0; i < x->value.rank; i++)
        own[i] = i == dim ? x->value.dims[i] : dims[i];
    return tape_broadcast(t, name, x, x->value.rank, own);
}

/* Both get their common sizes, except in `dim`. If the index is 1 in all dimensions after it, it
 * stays so: then an index selects whole rows. */
static int together(duet_tape *t, const char *name, duet_var **x, duet_var **index, int dim) {
    struct tensor a = (*x)->value, b = (*index)->value;
    int rank, dims[MAX_RANK], ones = 1;
    a.dims[dim] = b.dims[dim] = 1;
    if (tape_fail(t, tape_broadcast_shape(name, &a, &b, 0, &rank, dims)) ||
        !(*x = sized(t, name, *x, dim, dims)))
        return 0;
    for (int i = dim + 1; i < rank; i++)
        ones &= b.dims[i] == 1;
    for (int i = dim + 1; ones && i < rank; i++)
        dims[i] = 1;
    return (*index = sized(t, name, *index, dim, dims)) != NULL;
}

/* ---- take and add ---- */

static int along_backward(duet_tape *t, struct node *n) {
    const int take = n->op == OP_TAKE_ALONG, dim = (int)n->first;
    struct op_args args = {.in = {seen_at(&n->y->grad, dim), n->args.in[1]},
                           .out[0] = seen_at(&n->x->value, dim)};
    return tape_give(t, n->x, take ? OP_ADD_ALONG : OP_TAKE_ALONG, &args);
}

/* The result is x with size `size` in dimension dim. */
static duet_var *along(duet_tape *t, enum op op, duet_var *x, duet_var *index, int dim, int size) {
    struct node node = {
        .backward = along_backward, .op = op, .x = x, .first = (size_t)dim, .spares = SPARES_ALL};
    struct tensor y = x->value;
    y.dims[dim] = size;
    if (tensor_count(&y) > INT32_MAX)
        return tape_refuse(t, "%s: %s: a tensor has at most 2^31 - 1 elements", op_name(op),
                           SHAPE(&y));
    y = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, y.rank, y.dims);
    node.args.in[0] = seen_at(&x->value, dim), node.args.in[1] = seen_at(&index->value, dim);
    node.args.out[0] = seen_at(&y, dim);
    if (t->error || tape_fail(t, launch(t->stream, op, &node.args))) return NULL;
    index->saved |= x->needs_grad;
    return tape_append(t, &node, y, x->needs_grad);
}

/* `from` and `to`: the sizes of x and of the result. */
static int check_indices(const char *name, const duet_var *index, int dim, int from, int to) {
    int indices = index->value.dims[dim];
    if (indices > 0 && from > 0 && to > 0) return OK;
    return fail(ERR_USAGE, "%s: %d indices, from %d to %d elements: give at least one of each",
                name, indices, from, to);
}

duet_var *tape_take_along_dim(duet_tape *t, duet_var *x, duet_var *index, int dim) {
    const char *name = "take_along_dim";
    int at;
    if (tape_failed(t, x) || tape_failed(t, index) || !for_samples(t, name, &x, &index) ||
        tape_fail(t, tape_find_inner_dim(name, &x->value, dim, &at)))
        return NULL;
    const int to = index->value.dims[at];
    return tape_fail(t, check_indices(name, index, at, x->value.dims[at], to)) ||
                   !together(t, name, &x, &index, at)
               ? NULL
               : along(t, OP_TAKE_ALONG, x, index, at, to);
}

duet_var *tape_scatter_add(duet_tape *t, duet_var *index, duet_var *src, int dim, int size) {
    const char *name = "scatter_add";
    int at;
    if (tape_failed(t, src) || tape_failed(t, index) || !for_samples(t, name, &src, &index) ||
        tape_fail(t, tape_find_inner_dim(name, &src->value, dim, &at)))
        return NULL;
    const int from = src->value.dims[at], indices = index->value.dims[at];
    if (indices != from)
        return tape_refuse(t, "%s: %d indices for %d numbers: give one for each", name, indices,
                           from);
    return tape_fail(t, check_indices(name, index, at, from, size)) ||
                   !together(t, name, &src, &index, at)
               ? NULL
               : along(t, OP_ADD_ALONG, src, index, at, size);
}

/* ---- the order ---- */

duet_var *tape_argsort(duet_tape *t, duet_var *x, int dim, int descending) {
    int at;
    if (tape_stuck(t, x) || !(x = to_plain(t, x)) ||
        tape_fail(t, tape_find_inner_dim("argsort", &x->value, dim, &at)))
        return NULL;
    struct tensor y = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, x->value.rank, x->value.dims);
    const struct op_args args = {.in[0] = seen_at(&x->value, at),
                                 .out[0] = seen_at(&y, at),
                                 .p.sort.descending = descending != 0};
    if (t->error || tape_fail(t, launch(t->stream, OP_ARGSORT, &args))) return NULL;
    return tape_var(t, y, 0);
}
