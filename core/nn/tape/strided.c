/* Strided views of PLAIN vars: narrow, permute, and a reshape of these if it is a view in PyTorch
 * too. Such a var has a description in place of memory, and a view of a view is a view of the same
 * memory. Ops that take strided operands read it in place; for others tape_stuck makes one copy,
 * however long the chain of views is.
 *
 *     memory of     qkv (N,T,3C)   | q | k | v |   q | k | v |   ...   one row for each token
 *     narrow        (N,T,C)        | q |           | q |               strides 3CT, 3C, 1
 *     reshape       (N,T,H,D)                                          strides 3CT, 3C, D, 1
 *     transpose     (N,H,T,D)                                          strides 3CT, D, 3C, 1
 *
 * grads.c says where the gradients of views are written. */
#include <string.h>

#include "base/error.h"
#include "nn/tape/tape_internal.h"

static int view_backward(duet_tape *t, struct node *n) {
    if (!n->x->needs_grad) return OK;
    struct tensor dx = n->y->grad;
    dx.rank = n->x->value.rank;
    memcpy(dx.dims, n->x->value.dims, sizeof dx.dims);
    return grad_may_reuse(t, n->y) ? grad_done(t, n->x, &dx) : grad_share(t, n->x, &dx);
}

/* The memory is the same, in both layouts: in N16 a group is innermost, after all other
 * dimensions. */
duet_var *tape_view(duet_tape *t, duet_var *x, int rank, const int *dims) {
    if (x->value.strided && tape_stuck(t, x)) return NULL;
    struct tensor y = x->value;
    y.rank = rank;
    for (int i = 0; i < MAX_RANK; i++)
        y.dims[i] = i < rank ? dims[i] : 0;
    struct node node = {.backward = view_backward, .x = x, .spares = SPARES_ALL};
    node.y = tape_view_var(t, y, x);
    return tape_node(t, &node) ? NULL : node.y;
}

/* The gradient of y, copied into that of its base. */
static int copy_to(duet_tape *t, const duet_var *y, const struct tensor *view) {
    struct tensor dy = y->grad;
    if (dy.layout == LAYOUT_N16) dy = tensor_plain(dy.data, DTYPE_F32, view->rank, view->dims);
    return tape_copy_strided(t, &dy, view);
}

/* The gradient of y's base. args.in[0] and `first` give y's layout in a row-major x. */
static int to_var_behind(duet_tape *t, struct node *n) {
    struct op_args zero = {.out[0] = grad_target(t, n->x)};
    const struct tensor *dx = &zero.out[0], view = tensor_moved(n->args.in[0], dx, n->first);
    CHECK(tape_error(t));
    if (tensor_count(&view) < tensor_stored_count(dx)) CHECK(launch(t->stream, OP_FILL, &zero));
    CHECK(copy_to(t, n->y, &view));
    return grad_done(t, n->x, dx);
}

/* In an eager program a copy of a view is its own operation, and so is a part of a var, whose
 * gradient is added to those of the other parts. All parts of a split are one operation. */
static void count_operations(duet_tape *t, const struct node *n) {
    const struct tensor *x = &n->x->value;
    int part = tensor_count(&n->args.in[0]) < (x->strided ? tensor_count : tensor_stored_count)(x);
    int split = part && n->y->view_of && tape_is_split(n->y->view_of);
    scheduled_more_operations(t->stream,
                              (split ? n->first == 0 : part) + (n->y->beside != VIEW_ALONE));
    scheduled_additions(t->stream, part && !split && n->first > 0);
}

static int part_backward(duet_tape *t, struct node *n) {
    duet_var *y = n->y;
    if (!n->x->needs_grad) return OK;
    count_operations(t, n);
    if (y->view_of && tape_views_disjoint(y->view_of)) {
        if (y->in_place || !y->uses) return OK; /* it exists, or the views of y will create it */
        struct tensor view = grad_view_of(t, y);
        CHECK(tape_error(t));
        return view.data == y->grad.data ? OK : copy_to(t, y, &view);
    }
    return n->args.in[0].strided ? to_var_behind(t, n) : view_backward(t, n);
}

struct tensor tape_lies(const duet_var *x) {
    struct tensor lies = x->view_of ? x->view : x->value;
    tensor_strides(&lies, lies.stride);
    lies.strided = 1;
    return lies;
}

/* 1: t is row-major in one piece. */
static int is_dense(const struct tensor *t) {
    struct tensor merged = *t;
    return tensor_merge(t->rank, merged.dims, merged.stride, NULL) == 1 &&
           (merged.dims[0] == 1 || merged.stride[0] == 1);
}

duet_var *tape_part(duet_tape *t, duet_var *x, const struct tensor *lies, const struct tensor *in_x,
                    size_t first) {
    duet_var *base = x->view_of ? x->view_of : x;
    struct node node = {.backward = part_backward,
                        .x = x,
                        .args.in[0] = *in_x,
                        .first = first,
                        .spares = SPARES_ALL};
    struct tensor view = *lies;
    view.strided = !is_dense(lies);
    size_t at = view.data ? (size_t)((float *)view.data - (float *)base->value.data) : 0;
    if (!view.strided && !base->value.strided && tensor_count(&view) == tensor_count(&base->value))
        return tape_view(t, base, view.rank, view.dims);
    node.y = tape_view_var(t, view, x);
    if (!node.y) return NULL;
    node.y->view = view, node.y->view_at = at, node.y->view_of = base;
    return tape_node(t, &node) ? NULL : node.y;
}

/* ---- parts in N16 ---- */

struct tensor tape_in_groups(const struct tensor *x) {
    struct tensor seen = tensor_plain(x->data, DTYPE_F32, x->rank + 1, x->dims);
    seen.dims[0] = x->groups, seen.dims[x->rank] = x->lanes;
    return seen;
}

/* With a single group, a range of channels is one piece of its memory; other parts are copies. The
 * gradients of a part of a part go back one after the other. */
duet_var *tape_part_in_groups(duet_tape *t, duet_var *x, const struct tensor *seen, int dim,
                              int start, int length) {
    struct tensor y = x->value, from = tape_in_groups(seen);
    y.dims[dim] = length;
    tensor_strides(&from, from.stride);
    from.strided = 1, from.dims[2] = length;
    const size_t first = (size_t)start * (size_t)from.stride[2];
    const int dense = is_dense(&from);
    y = dense ? tensor_moved(y, &x->value, first)
              : tape_tensor(t, DTYPE_F32, LAYOUT_N16, y.rank, y.dims);
    struct node node = {.backward = part_backward,
                        .x = x,
                        .args.in[0] = from,
                        .first = first,
                        .spares = SPARES_ALL};
    struct tensor to = tensor_plain(y.data, DTYPE_F32, from.rank, from.dims);
    from = tensor_moved(from, &x->value, first);
    if (t->error || (!dense && tape_fail(t, tape_copy_strided(t, &from, &to)))) return NULL;
    node.y = tape_view_var(t, y, x);
    if (node.y && !x->view_of) {
        node.y->view = tensor_moved(from, &y, 0), node.y->view_at = first;
        node.y->view_of = x;
    }
    return tape_node(t, &node) ? NULL : node.y;
}
