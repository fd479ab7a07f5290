/* The gradients of vars: where a backward writes them, and how several become one sum.
 *
 * If a var is read only through views without a common element (strided.c), their gradients are
 * written directly into its gradient, by the op itself if it can (attention.c) or by one copy; all
 * other elements are zero. Otherwise each view is its own op, and its gradient, padded with zeros,
 * is one term of the var's gradient. */
#include "base/error.h"
#include "nn/tape/tape_internal.h"

enum { MOST_PARTS = 64 }; /* parts of a var that are compared with each other */

/* ---- where they are written ---- */

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

int tape_views_disjoint(duet_var *base) {
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

struct tensor grad_view_of(duet_tape *t, const duet_var *y) {
    duet_var *base = y->view_of;
    if (!base->grad.data) tape_fail(t, begin_view_grads(t, base));
    return tensor_moved(y->view, &base->grad, y->view_at);
}

int tape_grad_view(duet_tape *t, duet_var *y, struct tensor *view) {
    if (!y->view_of || y->value.layout != LAYOUT_PLAIN || y->uses != 1 || y->grad.data ||
        !tape_views_disjoint(y->view_of))
        return 0;
    *view = grad_view_of(t, y);
    y->in_place = 1;
    return 1;
}

/* The same for a view that is one piece of memory, also in N16; it needs grad_done. */
static int piece_view(duet_tape *t, const duet_var *y, struct tensor *view) {
    const duet_var *base = y->view_of;
    if (!base || y->value.strided || y->uses != 1 || y->grad.data ||
        (float *)y->value.data != (float *)base->value.data + y->view_at ||
        !tape_views_disjoint(y->view_of))
        return 0;
    *view = y->value;
    view->data = grad_view_of(t, y).data;
    return 1;
}

int tape_is_split(duet_var *base) {
    return tape_views_disjoint(base) && covered(base) == tensor_stored_count(&base->value);
}

struct tensor grad_target(duet_tape *t, const duet_var *x) {
    struct tensor view;
    if (piece_view(t, x, &view)) return view;
    return tape_tensor(t, DTYPE_F32, x->value.layout, x->value.rank, x->value.dims);
}

/* ---- their sums ---- */

/* Memory of other tapes has no holders here. */
int grad_may_reuse(const duet_tape *t, const duet_var *y) {
    return step_arena_holders(&t->arena, y->grad.data) == 1;
}

int grad_set(duet_tape *t, duet_var *x, const struct tensor *grad) {
    const void *before = x->grad.data;
    step_arena_hold(&t->arena, grad->data);
    x->grad = *grad;
    return step_arena_drop(&t->arena, before);
}

int grad_drop(duet_tape *t, duet_var *x) {
    const void *before = x->grad.data;
    x->grad = (struct tensor){0};
    return step_arena_drop(&t->arena, before);
}

int tape_add(duet_tape *t, const struct tensor *from, const struct tensor *to) {
    struct op_args args = {.in = {*to, *from}, .out[0] = *to};
    return launch(t->stream, OP_ADD_FORWARD, &args);
}

/* The sum of two gradients goes into the one that nobody else reads; the bits are the same. */
int grad_done(duet_tape *t, duet_var *x, const struct tensor *grad) {
    if (x->grad.data) scheduled_additions(t->stream, 1);
    if (x->grad.data && grad_may_reuse(t, x)) return tape_add(t, grad, &x->grad);
    if (x->grad.data) CHECK(tape_add(t, &x->grad, grad));
    return grad_set(t, x, grad);
}

int grad_share(duet_tape *t, duet_var *x, const struct tensor *grad) {
    if (!x->grad.data) return grad_set(t, x, grad);
    scheduled_additions(t->stream, 1);
    if (grad_may_reuse(t, x)) return tape_add(t, grad, &x->grad);
    struct op_args args = {.in = {x->grad, *grad}, .out[0] = grad_target(t, x)};
    CHECK(t->error);
    CHECK(launch(t->stream, OP_ADD_FORWARD, &args));
    return grad_set(t, x, &args.out[0]);
}
