/* torch.cat and torch.narrow along any dimension but the batch. They join parts of each sample, or
 * take a part of each sample, also in layout N16.
 *
 * The ops see any x as (N, O, L, I): dimension `dim` has size L, and O and I are the sizes before
 * and after it. Then a part is an image without some of its rows. */
#include <string.h>

#include "base/error.h"
#include "nn/tape/tape_internal.h"

static int product(const int *dims, int first, int end) {
    int count = 1;
    for (int i = first; i < end; i++)
        count *= dims[i];
    return count;
}

static struct tensor seen_by(const struct tensor *x, int dim) {
    struct tensor seen = *x;
    seen.rank = 4;
    seen.dims[1] = product(x->dims, 1, dim);
    seen.dims[2] = x->dims[dim];
    seen.dims[3] = product(x->dims, dim + 1, x->rank);
    return seen;
}

/* ---- narrow ---- */

static duet_var *plain_part(duet_tape *t, duet_var *x, int dim, int start, int length) {
    struct tensor lies = tape_lies(x),
                  in_x = tensor_plain(NULL, DTYPE_F32, x->value.rank, x->value.dims);
    tensor_strides(&in_x, in_x.stride);
    in_x.strided = 1;
    if (lies.data) lies.data = (float *)lies.data + (size_t)start * (size_t)lies.stride[dim];
    lies.dims[dim] = in_x.dims[dim] = length;
    return tape_part(t, x, &lies, &in_x, (size_t)start * (size_t)in_x.stride[dim]);
}

duet_var *duet_narrow(duet_tape *t, duet_var *x, int dim_given, int start, int length) {
    int dim;
    if (tape_blocked(t, x) ||
        tape_fail(t, tape_find_inner_dim("narrow", &x->value, dim_given, &dim)))
        return NULL;
    int size = x->value.dims[dim];
    if (start < 0 || length < 1 || start > size - length)
        return tape_refuse(
            t, "narrow: start (%d) + length (%d) exceeds dimension size (%d): check the model",
            start, length, size);
    if (x->value.layout == LAYOUT_PLAIN) return plain_part(t, x, dim, start, length);
    const struct tensor seen = seen_by(&x->value, dim);
    return tape_part_in_groups(t, x, &seen, dim, start, length);
}

/* ---- cat ---- */

/* The part of `whole` (PLAIN) that belongs to x: in dimension dim it begins at `before`. */
static struct tensor part_of(const struct tensor *whole, const struct tensor *x, int dim,
                             int before) {
    struct tensor part = *whole;
    tensor_strides(whole, part.stride);
    part.strided = 1;
    part.dims[dim] = x->dims[dim];
    if (part.data) part.data = (float *)part.data + (size_t)before * (size_t)part.stride[dim];
    return part;
}

/* The rows of dy that are x's: those after the first `before`. */
static int cat_gradient(duet_tape *t, struct node *n, duet_var *x, int dim, int before) {
    if (!x->needs_grad) return OK;
    struct tensor dx;
    if (tape_grad_view(t, x, &dx)) {
        struct tensor dy = part_of(&n->y->grad, &x->value, dim, before);
        CHECK(tape_error(t));
        return tape_copy_strided(t, &dy, &dx);
    }
    dx = grad_target(t, x);
    struct op_args args = {.in[0] = seen_by(&n->y->grad, dim), .out[0] = seen_by(&dx, dim)};
    args.p.pad.top = -before;
    CHECK(tape_error(t));
    CHECK(launch(t->stream, OP_PAD, &args));
    return grad_done(t, x, &dx);
}

/* n->x is the first operand, or all operands before x2 joined: the first part of y. */
static int cat_backward(duet_tape *t, struct node *n) {
    const struct tensor *y = &n->y->value, *a = &n->x->value, *b = &n->x2->value;
    int dim = b->rank - 1; /* the dimension in which x2 and y differ */
    while (b->dims[dim] == y->dims[dim])
        dim--;
    /* An eager program runs one backward for all operands. */
    if ((int)n->first + b->dims[dim] < y->dims[dim]) scheduled_more_operations(t->stream, -1);
    CHECK(cat_gradient(t, n, n->x2, dim, (int)n->first));
    if (a->dims[dim] < y->dims[dim]) return cat_gradient(t, n, n->x, dim, 0);
    return n->x->needs_grad ? grad_share(t, n->x, &n->y->grad) : OK;
}

/* x goes to its part of y. Only the elements of a strided operand are read, not the gaps. */
static int copy_into(duet_tape *t, const struct tensor *y, const struct tensor *x, int dim,
                     int before) {
    if (x->layout == LAYOUT_PLAIN) {
        struct tensor part = part_of(y, x, dim, before);
        return tape_copy_strided(t, x, &part);
    }
    struct tensor from = seen_by(x, dim), to = seen_by(y, dim);
    from = tape_in_groups(&from), to = tape_in_groups(&to);
    to = part_of(&to, &from, 2, before);
    return tape_copy_strided(t, &from, &to);
}

/* Two dense operands share a launch; others have one each. */
static int launch_cat(duet_tape *t, const struct tensor *y, duet_var *const *x, int count,
                      int dim) {
    const struct tensor *a = &x[0]->value, *b = &x[1]->value;
    scheduled_concatenation(t->stream);
    if (count == 2 && !a->strided && !b->strided) {
        struct op_args args = {.in = {seen_by(a, dim), seen_by(b, dim)}, .out[0] = seen_by(y, dim)};
        return launch(t->stream, OP_CAT, &args);
    }
    for (int i = 0, before = 0; i < count; before += x[i++]->value.dims[dim])
        CHECK(copy_into(t, y, &x[i]->value, dim, before));
    return OK;
}

/* Each operand is copied once. A node has at most two, so there is a node for each but the first,
 * and all write y. */
static duet_var *cat(duet_tape *t, duet_var *const *x, int count, int dim, int length) {
    if (count == 1) return x[0];
    int dims[MAX_RANK];
    memcpy(dims, x[0]->value.dims, sizeof dims);
    dims[dim] = length;
    struct tensor y = tape_tensor(t, DTYPE_F32, x[0]->value.layout, x[0]->value.rank, dims);
    if (t->error || tape_fail(t, launch_cat(t, &y, x, count, dim))) return NULL;
    duet_var *all = x[0];
    for (int i = 1, before = all->value.dims[dim]; i < count; before += x[i++]->value.dims[dim]) {
        struct node node = {.backward = cat_backward,
                            .op = OP_CAT,
                            .x = all,
                            .x2 = x[i],
                            .first = (size_t)before,
                            .spares = SPARES_ALL};
        const int needs_grad = all->needs_grad || x[i]->needs_grad;
        node.y = i == 1 ? tape_var(t, y, needs_grad) : tape_view_var(t, y, all);
        if (!node.y) return NULL;
        node.y->needs_grad = needs_grad;
        if (tape_node(t, &node)) return NULL;
        all = node.y;
    }
    return all;
}

/* ERR_USAGE: operand i does not suit operand 0, or the result would be too large. */
static int check_operand(const struct tensor *first, const struct tensor *x, int i, int dim,
                         int64_t *length) {
    for (int d = 0; d < first->rank && x->rank == first->rank; d++)
        if (d != dim && x->dims[d] != first->dims[d])
            return fail(ERR_USAGE,
                        "cat: Sizes of tensors must match except in dimension %d. Expected size %d "
                        "but got size %d for tensor number %d in the list: check the model",
                        dim, first->dims[d], x->dims[d], i);
    if (x->rank != first->rank)
        return fail(ERR_USAGE, "cat: a tensor of %s and one of %s: check the model", SHAPE(first),
                    SHAPE(x));
    *length += x->dims[dim];
    int64_t others = first->dims[0] ? first->dims[0] : 1; /* an empty batch counts as one sample */
    for (int d = 1; d < first->rank; d++)
        if (d != dim) others *= first->dims[d];
    if (*length <= INT32_MAX / others) return OK;
    return fail(ERR_USAGE, "cat: %lld x %lld elements: a tensor has at most 2^31 - 1",
                (long long)others, (long long)*length);
}

duet_var *duet_cat(duet_tape *t, duet_var *const *vars, int count, int dim_given) {
    enum { MOST = 64 };
    duet_var *x[MOST];
    int64_t length = 0;
    int mixed = 0, dim;
    if (!t || t->error) return NULL;
    if (!vars || count < 1 || count > MOST)
        return tape_refuse(t, "cat: %d vars: give an array of 1 to %d", count, (int)MOST);
    for (int i = 0; i < count; i++)
        if (tape_failed(t, vars[i])) return NULL;
    if (tape_fail(t, tape_find_inner_dim("cat", &vars[0]->value, dim_given, &dim))) return NULL;
    for (int i = 0; i < count; i++) {
        if (tape_blocked(t, vars[i]) ||
            tape_fail(t, check_operand(&vars[0]->value, &vars[i]->value, i, dim, &length)))
            return NULL;
        mixed |= vars[i]->value.layout != vars[0]->value.layout;
    }
    for (int i = 0; i < count; i++) {
        x[i] = mixed ? to_device_layout(t, vars[i]) : vars[i];
        if (!x[i]) return NULL;
    }
    return cat(t, x, count, dim, (int)length);
}
