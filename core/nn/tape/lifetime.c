/* Returns memory of a pass to the arena before the pass ends.
 *
 *     gradients of vars    after the backward of the node that made the var, which is the last to
 *                          read the gradient; all nodes that add to it have run before
 *     values               with `once` (nn/tape/tape.h). In forward, after the last op that reads
 *                          the value, if a model marks that op and no backward reads the value;
 *                          otherwise after the backward of the node that made it, since all its
 *                          readers are later in forward
 *     data of a node       with `once`, after its backward: moments, masks, indices
 *     views                that were copied for an op, with `once`, when forward has read the copy
 *                          for the last time, unless an earlier op has saved the view
 *
 * A piece is returned when nothing holds it. A view of a value also holds its memory, and several
 * vars may share a gradient. A program's pass has no `once`, because the program may read values,
 * and run backward again, until the next pass begins. The values of a loss stay, because the log of
 * losses reads them. */
#include "base/error.h"
#include "nn/tape/tape_internal.h"

/* The base memory of a view whose value is a copy. */
static int drop_view(duet_tape *t, duet_var *x) {
    if (x->beside == VIEW_ALONE || x->beside == VIEW_DROPPED) return OK;
    x->beside = VIEW_DROPPED;
    return step_arena_drop(&t->arena, x->view.data);
}

static int drop_value(duet_tape *t, duet_var *x) {
    if (x->gone || x->hits.data) return OK;
    x->gone = 1;
    CHECK(drop_view(t, x));
    return step_arena_drop(&t->arena, x->value.data);
}

static int leave(duet_tape *t, duet_var *x) {
    if (x->forgotten && x->beside == VIEW_MADE) CHECK(drop_view(t, x));
    return x->forgotten && !x->saved && !x->put_off ? drop_value(t, x) : OK;
}

int tape_relu_done(duet_tape *t, duet_var *x) {
    x->put_off--;
    return leave(t, x);
}

/* A relu that still has no memory will never need any. */
static int forget(duet_tape *t, duet_var *x) {
    if (x->forgotten) return OK;
    x->forgotten = 1;
    if (x->relu_of) CHECK(tape_relu_done(t, x->relu_of));
    return leave(t, x);
}

void tape_forget(duet_tape *t, duet_var *x) {
    if (x && t->step.once && !t->error) tape_fail(t, forget(t, x));
}

void tape_forget_since(duet_tape *t, int first, const duet_var *kept) {
    for (int i = first; i < t->var_count; i++)
        if (t->vars[i] != kept) tape_forget(t, t->vars[i]);
}

int tape_var_count(const duet_tape *t) {
    return t->var_count;
}

int tape_node_done(duet_tape *t, int index, int first) {
    const struct node *n = &t->nodes[index];
    if (!n->y->keeps_grad) CHECK(grad_drop(t, n->y));
    CHECK(step_arena_release(&t->arena, first, t->arena.number));
    if (!t->step.once) return OK;
    CHECK(drop_value(t, n->y));
    return step_arena_release(&t->arena, index ? n[-1].pieces_end : 0, n->pieces_end);
}
