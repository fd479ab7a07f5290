/* torch.where and masked_fill choose between two operands with a third, whose numbers are 1 or 0,
 * as a comparison gives. The third has no gradient. */
#include "base/error.h"
#include "nn/tape/tape_internal.h"

enum { TERMS = 3 }; /* the condition and the two choices; NULL: a number */

/* If the condition chose the other operand, the gradient is 0. */
static int gradient(duet_tape *t, const struct node *n, duet_var *x, int chosen) {
    struct op_args args = {.in[0] = n->args.in[0], .out[0] = n->args.out[0]};
    args.in[1 + !chosen] = n->y->grad;
    return tape_give(t, x, OP_WHERE, &args);
}

static int where_backward(duet_tape *t, struct node *n) {
    CHECK(gradient(t, n, n->x, 1));
    return gradient(t, n, n->x2, 0);
}

/* Operands with samples have one rank; constants and parameters become a copy for each sample. */
static int for_samples(duet_tape *t, const char *name, duet_var *term[TERMS]) {
    const int rank = tape_for_all_samples(t, name, term, TERMS);
    for (int i = 0; rank >= 0 && i < TERMS; i++) {
        if (!term[i]) continue;
        if (tape_stuck(t, term[i]) || (term[i]->value.rank != rank && tape_mixes_samples(t, name)))
            return 0;
        term[i] = to_plain(t, term[i]);
    }
    return !t->error;
}

static duet_var *choose(duet_tape *t, const char *name, duet_var *term[TERMS], double value) {
    if (!for_samples(t, name, term) || !tape_broadcast_all(t, name, term, TERMS, 0)) return NULL;
    const struct tensor *v = &term[0]->value;
    struct node node = {.backward = where_backward,
                        .op = OP_WHERE,
                        .x = term[1],
                        .x2 = term[2],
                        .spares = SPARES_ALL};
    int needs_grad = 0;
    node.args.in[0] = *v;
    for (int i = 1; i < TERMS; i++) {
        if (term[i]) node.args.in[i] = term[i]->value, needs_grad |= term[i]->needs_grad;
    }
    node.args.out[0] = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, v->rank, v->dims);
    node.args.p.fill.value = (float)value;
    if (t->error || tape_fail(t, launch(t->stream, OP_WHERE, &node.args))) return NULL;
    term[0]->saved |= needs_grad;
    return tape_append(t, &node, node.args.out[0], needs_grad);
}

duet_var *tape_where(duet_tape *t, duet_var *condition, duet_var *a, duet_var *b, double value) {
    if (tape_failed(t, condition)) return NULL;
    return choose(t, "where", (duet_var *[]){condition, a, b}, value);
}

duet_var *duet_where(duet_tape *t, duet_var *condition, duet_var *a, duet_var *b) {
    if (tape_failed(t, condition) || tape_failed(t, a) || tape_failed(t, b)) return NULL;
    return choose(t, "where", (duet_var *[]){condition, a, b}, 0);
}

duet_var *duet_masked_fill(duet_tape *t, duet_var *x, duet_var *mask, double value) {
    if (tape_failed(t, x) || tape_failed(t, mask)) return NULL;
    return choose(t, "masked_fill", (duet_var *[]){mask, NULL, x}, value);
}
