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
 * Backward. If a var is read only through views without a common element, their gradients are
 * written directly into its gradient, by the op itself if it can (attention.c) or by one copy; all
 * other elements are zero. Otherwise each view is its own op, and its gradient, padded with zeros,
 * is one term of the var's gradient. */
#include <string.h>

#include "base/error.h"
#include "nn/tape/tape_internal.h"

enum { MOST_PARTS = 64 }; /* parts of a var that are compared with each other */

int tape_copy_strided(duet_tape *t, const struct tensor *from, const struct tensor *to) {
    struct op_args args = {.in[0] = *from, .out[0] = *to};
    return tensor_count(from) ? launch(t->stream, OP_PERMUTE, &args) : OK;
}

int tape_copy_view(duet_tape *t, duet_var *x) {
    struct tensor y = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, x->value.rank, x->value.dims);
    if (t->error || tape_fail(t, tape_copy_strided(t, &x->value, &y))) return t->error;
    step_arena_hold(&t->arena, y.data); /* besides x->view's memory; lifetime.c says how long */
    x->beside = x->saved ? VIEW_SAVED : VIEW_MADE;
    x->value = y;
    return OK;
}

/* The same layout in other memory, which begins at `data`. */
static struct tensor moved(struct tensor view, const struct tensor *to, size_t first) {
    view.data = to->data ? (char *)to->data + first * sizeof(float) : NULL;
    return view;
}

/* ---- the gradients of views ---- */

void tape_count_part(duet_var *y) {
    duet_var *base = y->view_of;
    y->next_part = base->parts;
    base->parts = y;
}

/* 1: `t`, which begins at element `first`, has only elements in columns *from to *end - 1 of rows
 * of `row`. */
static int columns_of(const struct tensor *t, size_t first, size_t row, size_t *from, size_t *end) {
    *from = first % row;
    *end = *from + 1;
    for (int d = 0; d < t->rank; d++) {
        if (t->dims[d] == 1 || (size_t)t->stride[d] % row == 0) continue;
        *end += (size_t)(t->dims[d] - 1) * (size_t)t->stride[d];
    }
    return *end <= row;
}

/* 1: in rows of some length they have different columns. */
static int lie_apart(const duet_var *a, const duet_var *b) {
    struct tensor x = a->view, y = b->view;
    size_t from[2], end[2];
    tensor_strides(&x, x.stride);
    tensor_strides(&y, y.stride);
    for (int d = 0; d < x.rank + y.rank; d++) {
        int row = d < x.rank ? x.stride[d] : y.stride[d - x.rank];
        if (row > 1 && columns_of(&x, a->view_at, (size_t)row, &from[0], &end[0]) &&
            columns_of(&y, b->view_at, (size_t)row, &from[1], &end[1]) &&
            (end[0] <= from[1] || end[1] <= from[0]))
            return 1;
    }
    return 0;
}

/* 1: the gradients of the views of `base` are written directly into its gradient. Every op that
 * reads it or them has been counted. */
static int views_are_disjoint(duet_var *base) {
    int parts = 0;
    if (base->overlap) return base->overlap == OVERLAP_NONE;
    base->overlap = OVERLAP_SOME;
    if (base->uses || base->grad.data) return 0;
    for (const duet_var *y = base->parts; y; y = y->next_part)
        if (++parts > MOST_PARTS) return 0;
    base->overlap = OVERLAP_NONE;
    for (const duet_var *y = base->parts; y && base->overlap == OVERLAP_NONE; y = y->next_part)
        for (const duet_var *other = y->next_part; other; other = other->next_part)
            if (!lie_apart(y, other)) base->overlap = OVERLAP_SOME;
    return base->overlap == OVERLAP_NONE;
}

/* The elements of all views of base. */
static size_t covered(const duet_var *base) {
    size_t count = 0;
    for (const duet_var *y = base->parts; y; y = y->next_part)
        count += tensor_count(&y->view);
    return count;
}

/* The gradient of base, with zeros where no view will write. */
static int begin_view_grads(duet_tape *t, duet_var *base) {
    struct op_args zero = {.out[0] = grad_target(t, base)};
    CHECK(tape_error(t));
    CHECK(grad_set(t, base, &zero.out[0]));
    return covered(base) < tensor_stored_count(&base->value) ? launch(t->stream, OP_FILL, &zero)
                                                             : OK;
}

static struct tensor grad_view_of(duet_tape *t, const duet_var *y) {
    duet_var *base = y->view_of;
    if (!base->grad.data) tape_fail(t, begin_view_grads(t, base));
    return moved(y->view, &base->grad, y->view_at);
}

int tape_grad_view(duet_tape *t, duet_var *y, struct tensor *view) {
    if (!y->view_of || y->value.layout != LAYOUT_PLAIN || y->uses != 1 || y->grad.data ||
        !views_are_disjoint(y->view_of))
        return 0;
    *view = grad_view_of(t, y);
    y->in_place = 1;
    return 1;
}

int tape_piece_view(duet_tape *t, const duet_var *y, struct tensor *view) {
    const duet_var *base = y->view_of;
    if (!base || y->value.strided || y->uses != 1 || y->grad.data ||
        (float *)y->value.data != (float *)base->value.data + y->view_at ||
        !views_are_disjoint(y->view_of))
        return 0;
    *view = y->value;
    view->data = grad_view_of(t, y).data;
    return 1;
}

/* ---- views as nodes ---- */

/* The gradient of y, copied into that of its base. */
static int copy_to(duet_tape *t, const duet_var *y, const struct tensor *view) {
    struct tensor dy = y->grad;
    if (dy.layout == LAYOUT_N16) dy = tensor_plain(dy.data, DTYPE_F32, view->rank, view->dims);
    return tape_copy_strided(t, &dy, view);
}

/* The gradient of y's base. args.in[0] and `first` give y's layout in a row-major x. */
static int to_var_behind(duet_tape *t, struct node *n) {
    struct op_args zero = {.out[0] = grad_target(t, n->x)};
    const struct tensor *dx = &zero.out[0], view = moved(n->args.in[0], dx, n->first);
    CHECK(tape_error(t));
    if (tensor_count(&view) < tensor_stored_count(dx)) CHECK(launch(t->stream, OP_FILL, &zero));
    CHECK(copy_to(t, n->y, &view));
    return grad_done(t, n->x, dx);
}

/* 1: the views of base cover it exactly once: a split. */
static int is_split(duet_var *base) {
    return views_are_disjoint(base) && covered(base) == tensor_stored_count(&base->value);
}

/* In an eager program a copy of a view is its own operation, and so is a part of a var, whose
 * gradient is added to those of the other parts. All parts of a split are one operation. */
static void count_operations(duet_tape *t, const struct node *n) {
    const struct tensor *x = &n->x->value;
    int part = tensor_count(&n->args.in[0]) < (x->strided ? tensor_count : tensor_stored_count)(x);
    int split = part && n->y->view_of && is_split(n->y->view_of);
    scheduled_more_operations(t->stream,
                              (split ? n->first == 0 : part) + (n->y->beside != VIEW_ALONE));
    scheduled_additions(t->stream, part && !split && n->first > 0);
}

static int part_backward(duet_tape *t, struct node *n) {
    duet_var *y = n->y;
    if (!n->x->needs_grad) return OK;
    count_operations(t, n);
    if (y->view_of && views_are_disjoint(y->view_of)) {
        if (y->in_place || !y->uses) return OK; /* it exists, or the views of y will create it */
        struct tensor view = grad_view_of(t, y);
        CHECK(tape_error(t));
        return view.data == y->grad.data ? OK : copy_to(t, y, &view);
    }
    return n->args.in[0].strided ? to_var_behind(t, n) : tape_view_backward(t, n);
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
    y = dense ? moved(y, &x->value, first) : tape_tensor(t, DTYPE_F32, LAYOUT_N16, y.rank, y.dims);
    struct node node = {.backward = part_backward,
                        .x = x,
                        .args.in[0] = from,
                        .first = first,
                        .spares = SPARES_ALL};
    struct tensor to = tensor_plain(y.data, DTYPE_F32, from.rank, from.dims);
    from = moved(from, &x->value, first);
    if (t->error || (!dense && tape_fail(t, tape_copy_strided(t, &from, &to)))) return NULL;
    node.y = tape_view_var(t, y, x);
    if (node.y && !x->view_of) {
        node.y->view = moved(from, &y, 0), node.y->view_at = first;
        node.y->view_of = x;
    }
    return tape_node(t, &node) ? NULL : node.y;
}

/* ---- reshape ---- */

/* The strides of dims[rank], with as many elements as x, in the memory of x, which is strided; 0:
 * it is not a view. As in PyTorch's view(). */
static int strides_of_shape(const struct tensor *x, int rank, const int *dims, int *stride) {
    struct tensor runs = *x;
    int run = tensor_merge(x->rank, runs.dims, runs.stride, NULL) - 1;
    int left = runs.dims[run], below = runs.stride[run];
    if (!tensor_count(x)) return 0;
    for (int d = rank - 1; d >= 0; d--) {
        if (dims[d] > 1 && left == 1) {
            if (run-- == 0) return 0;
            left = runs.dims[run], below = runs.stride[run];
        }
        if (left % dims[d]) return 0;
        stride[d] = below;
        below *= dims[d], left /= dims[d];
    }
    return run == 0 && left == 1;
}

duet_var *tape_reshape_view(duet_tape *t, duet_var *x, int rank, const int *dims) {
    struct tensor lies = tensor_plain(x->value.data, DTYPE_F32, rank, dims);
    if (!strides_of_shape(&x->value, rank, dims, lies.stride))
        return tape_stuck(t, x) ? NULL : tape_view(t, x, rank, dims);
    struct tensor in_x = tensor_plain(NULL, DTYPE_F32, rank, dims);
    lies.strided = 1;
    return tape_part(t, x, &lies, &in_x, 0);
}
