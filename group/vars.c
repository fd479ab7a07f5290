/* Calls of a process group as nodes of a tape, for layers whose weights are split over ranks. The
 * table lists each call's backward:
 *
 *                   forward                          backward
 *     to_group      x, the same on all ranks         dL/dx: all_reduce of the ranks' parts
 *     all_reduce    the sum of the ranks' x          dL/dy to x, the same on all ranks
 *     all_gather    the columns of all ranks         each rank's columns of dL/dy
 *
 * All ranks make the same calls in the same order, forward and backward. */
#include "duet.h"
#include "nn/tape/tape_internal.h"

static struct duet_tensor shown(duet_tape *t, const struct tensor *value) {
    return (struct duet_tensor){.device = t->device, .t = *value, .borrowed = 1};
}

static int copy(duet_tape *t, const struct tensor *to, const struct tensor *from) {
    struct duet_tensor target = shown(t, to);
    const struct duet_tensor source = shown(t, from);
    return duet_tensor_copy(&target, &source);
}

static int sum(duet_tape *t, const struct tensor *value, duet_group *group) {
    struct duet_tensor tensor = shown(t, value);
    return duet_all_reduce(group, &tensor, DUET_SUM, NULL);
}

static int to_group_backward(duet_tape *t, struct node *n) {
    if (!n->x->needs_grad) return OK;
    struct tensor dx = grad_target(t, n->x);
    CHECK(tape_error(t));
    CHECK(copy(t, &dx, &n->y->grad));
    CHECK(sum(t, &dx, n->context));
    return grad_done(t, n->x, &dx);
}

static int all_reduce_backward(duet_tape *t, struct node *n) {
    if (!n->x->needs_grad) return OK;
    struct tensor dx = grad_target(t, n->x);
    CHECK(tape_error(t));
    CHECK(copy(t, &dx, &n->y->grad));
    return grad_done(t, n->x, &dx);
}

/* y is (ranks, N, M), and rank r's part of it a block. */
static int all_gather_backward(duet_tape *t, struct node *n) {
    if (!n->x->needs_grad) return OK;
    struct tensor dx = grad_target(t, n->x), block = dx;
    CHECK(tape_error(t));
    block.data =
        (char *)n->y->grad.data + (size_t)duet_group_rank(n->context) * tensor_bytes(&n->x->value);
    CHECK(copy(t, &dx, &block));
    return grad_done(t, n->x, &dx);
}

/* x as a plain tensor of this tape; NULL: the tape has the error. */
static duet_var *taken(duet_tape *t, duet_group *group, duet_var *x, const char *call) {
    if (tape_stuck(t, x)) return NULL;
    if (!group) {
        tape_fail(t, fail(ERR_USAGE, "%s: no group was given", call));
        return NULL;
    }
    if (x->value.dtype == DTYPE_F32) return to_plain(t, x);
    tape_fail(t, fail(ERR_USAGE, "%s: a loss: give a var of floats", call));
    return NULL;
}

static duet_var *append(duet_tape *t, duet_group *group, duet_var *x, const struct tensor *y,
                        node_backward *backward) {
    struct node node = {.backward = backward, .x = x, .context = group};
    node.y = tape_var(t, *y, x->needs_grad);
    return tape_node(t, &node) ? NULL : node.y;
}

duet_var *duet_var_to_group(duet_tape *t, duet_group *group, duet_var *x) {
    if (!(x = taken(t, group, x, "var to group"))) return NULL;
    struct tensor y = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, x->value.rank, x->value.dims);
    if (t->error || tape_fail(t, copy(t, &y, &x->value))) return NULL;
    return append(t, group, x, &y, to_group_backward);
}

duet_var *duet_var_all_reduce(duet_tape *t, duet_group *group, duet_var *x) {
    if (!(x = taken(t, group, x, "var all_reduce"))) return NULL;
    struct tensor y = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, x->value.rank, x->value.dims);
    if (t->error || tape_fail(t, copy(t, &y, &x->value)) || tape_fail(t, sum(t, &y, group)))
        return NULL;
    return append(t, group, x, &y, all_reduce_backward);
}

duet_var *duet_var_all_gather(duet_tape *t, duet_group *group, duet_var *x) {
    if (!(x = taken(t, group, x, "var all_gather"))) return NULL;
    if (x->value.rank != 2) {
        tape_fail(t, fail(ERR_USAGE, "var all_gather: a var with %d dimensions: must have 2, (N,M)",
                          x->value.rank));
        return NULL;
    }
    int ranks = duet_group_size(group), shape[] = {ranks, x->value.dims[0], x->value.dims[1]};
    struct tensor all = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, 3, shape);
    if (t->error) return NULL;
    struct duet_tensor output = shown(t, &all);
    const struct duet_tensor input = shown(t, &x->value);
    if (tape_fail(t, duet_all_gather(group, &output, &input, NULL, NULL))) return NULL;
    duet_var *y = append(t, group, x, &all, all_gather_backward); /* (ranks,N,M) */
    y = duet_permute(t, y, (int[]){1, 0, 2});
    return duet_reshape(t, y, 2, (int[]){-1, ranks * shape[2]});
}
