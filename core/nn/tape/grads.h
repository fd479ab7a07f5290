/* The gradients of vars (grads.c). */
#ifndef NN_TAPE_GRADS_H
#define NN_TAPE_GRADS_H

#include "nn/tape/tape.h"

/* The gradient of x. A backward op writes it to grad_target, which is shaped like x->value;
 * grad_done then makes that x->grad, or adds it to the gradient that x already has. grad_share does
 * the same with the gradient of y, which others also read: it never writes to that memory. grad_set
 * replaces the gradient of x, and grad_drop removes it. grad_may_reuse is 1 if an elementwise
 * backward op may write the gradient of x over y's, because this is the last read of y's, no other
 * var has it, and it is memory of this tape. */
struct tensor grad_target(duet_tape *t, const duet_var *x);
int grad_done(duet_tape *t, duet_var *x, const struct tensor *grad);
int grad_set(duet_tape *t, duet_var *x, const struct tensor *grad);
int grad_share(duet_tape *t, duet_var *x, const struct tensor *grad);
int grad_drop(duet_tape *t, duet_var *x);
int grad_may_reuse(const duet_tape *t, const duet_var *y);

/* Notes in a walk that an op on the way to the root reads the view y. */
void tape_count_part(duet_var *y);

/* 1: only one op reads the view y, and writes its gradient to *view, in y's layout, without a
 * grad_done. 0: the gradient goes to y->grad, as usual. */
int tape_grad_view(duet_tape *t, duet_var *y, struct tensor *view);

/* 1: the gradients of the views of `base` are written directly into its gradient: y's into
 * grad_view_of. Every op that reads base or its views has been counted. tape_is_split is 1 if they
 * also cover base exactly once. */
int tape_views_disjoint(duet_var *base);
int tape_is_split(duet_var *base);
struct tensor grad_view_of(duet_tape *t, const duet_var *y);

/* *to += *from. */
int tape_add(duet_tape *t, const struct tensor *from, const struct tensor *to);

#endif
