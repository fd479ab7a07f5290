/* Walks back over the nodes of a tape, or of several tapes between which values have moved
 * (linked.c).
 *
 *     node 0: y0 = conv2d(x, W1, b1)        ^   the walk goes from the root upward
 *     node 1: y1 = relu(y0)                 |
 *     node 2: y2 = matmul_add(y1, W3, b3)   |
 *     root:   y2                            |
 *
 * It skips nodes whose output did not lead to the root. The gradients of the parameters complete in
 * about the reverse order of registration, which is the order of their arena (nn/param.h). */
#include "base/error.h"
#include "nn/tape/tape_internal.h"

/* An op on the way to the root reads x. */
static void reach(duet_var *x) {
    if (x) x->reached = 1, x->uses++;
}

/* All readers of y have been visited. */
static void reach_behind_view(const struct node *n) {
    n->x->reached = 1;
    if (n->y->uses) tape_count_part(n->y);
}

static void count_use(duet_tape *t, const struct param *p) {
    if (!param_trains(p)) return;
    t->use[p->index].total++;
    reach(p->from);
}

/* Forgets what an earlier walk has left in this tape. */
static void forget_walk(duet_tape *t) {
    for (int i = 0; i < tape_param_count(t); i++)
        t->use[i].total = 0;
    for (int i = 0; i < t->var_count; i++) {
        duet_var *x = t->vars[i];
        x->reached = x->uses = x->in_place = 0;
        x->grad = (struct tensor){0};
        x->parts = x->next_part = NULL;
        x->overlap = OVERLAP_UNKNOWN;
    }
}

static void begin_uses(duet_tape *t) {
    for (int i = 0; i < tape_param_count(t); i++) {
        t->use[i].left = t->use[i].total;
        t->use[i].segment_grads = NULL;
        if (!t->step.add_grads || i >= t->step.params->count) t->has_grad[i] = 0;
    }
}

static void walk_begin(duet_tape *t) {
    duet_tape *at = t;
    do
        at->walked = at->node_count;
    while ((at = at->next) != t);
}

/* The last node of the ring that was not walked; NULL: there is none. Nodes with equal clocks do
 * not depend on each other. */
static struct node *walk_next(duet_tape *t, duet_tape **owner) {
    duet_tape *at = t, *latest = NULL;
    do {
        if (!at->walked) continue;
        if (!latest || at->nodes[at->walked - 1].clock > latest->nodes[latest->walked - 1].clock)
            latest = at;
    } while ((at = at->next) != t);
    *owner = latest;
    return latest ? &latest->nodes[--latest->walked] : NULL;
}

/* Marks the vars that the root depends on, and counts how often each parameter was used on the way
 * to it. */
static void count_uses(duet_tape *t, duet_var *root) {
    duet_tape *owner = t;
    do
        forget_walk(owner);
    while ((owner = owner->next) != t);
    reach(root);
    walk_begin(t);
    for (struct node *n; (n = walk_next(t, &owner));) {
        if (!n->y->reached) continue;
        if (n->y->view_of) {
            reach_behind_view(n);
            continue;
        }
        reach(n->x);
        reach(n->x2);
        reach(n->x3);
        count_use(owner, n->w);
        count_use(owner, n->b);
    }
    owner = t;
    do
        begin_uses(owner);
    while ((owner = owner->next) != t);
}

void tape_uses(duet_tape *t, duet_var *root, char *used) {
    count_uses(t, root);
    for (int i = 0; used && i < t->step.params->count; i++)
        used[i] = t->use[i].total > 0 || t->has_grad[i];
}

int params_gradient_ready(void *params, int index) {
    const struct grad_reducer *reducer = ((duet_params *)params)->reducer;
    return reducer ? reducer->ready(reducer->context, index) : OK;
}

int params_use(const duet_params *params, const struct param *w, const struct param *b,
               int backward) {
    const struct grad_reducer *reducer = params ? params->reducer : NULL;
    return reducer && reducer->use ? reducer->use(reducer->context, w, b, backward) : OK;
}

int params_leave_out_unused(duet_params *params, duet_tape *tape, duet_var *root) {
    const struct param_set *set = &params->set;
    CHECK(tape_error(tape));
    tape_uses(tape, root, params->has_grad);
    CHECK(param_set_zero_unused(&params->set, params->has_grad));
    if (!params->reducer || !params->reducer->finds_unused) return OK;
    for (int i = 0; i < set->count; i++)
        if (param_trains(&set->param[i]) && !params->has_grad[i])
            CHECK(params_gradient_ready(params, i));
    return OK;
}

static int check_root(const duet_tape *t, const duet_var *root, const struct tensor *grad) {
    if (!root) return fail(ERR_FAILED, "backward: no root: the forward pass made none");
    if (!t->step.training)
        return fail(ERR_FAILED,
                    "backward: the tape was begun for evaluation: begin it with training");
    if (!root->needs_grad)
        return fail(ERR_USAGE,
                    "backward: element 0 of tensors does not require grad and does not have a "
                    "grad_fn: the var depends on no parameter that is trained");
    if (!grad && (root->hits.data || root->joins)) return OK;
    if (!grad) return fail(ERR_FAILED, "backward: the root is not a loss: give its gradient");
    if (root->value.layout != LAYOUT_PLAIN || grad->layout != LAYOUT_PLAIN ||
        !tensor_same_shape(grad, &root->value))
        return fail(
            ERR_FAILED,
            "backward: the gradient given must be shaped like the root, both in plain layout: "
            "end the forward pass with to_plain");
    return OK;
}

/* The walk comes here first, since joins are the last nodes: a root's gradient is there before any
 * node adds to it. */
static int join_backward(duet_tape *t, struct node *n) {
    const struct tensor *grad = &n->args.in[0];
    return n->x->needs_grad && grad->rank ? grad_share(t, n->x, grad) : OK;
}

/* A chain of nodes, each of one root and the join before it. */
duet_var *tape_join(duet_tape *t, duet_var *const *roots, const struct tensor *grads, int count) {
    duet_var *join = NULL;
    for (int i = 0; i < count && !t->error; i++) {
        const struct tensor *grad = grads[i].rank ? &grads[i] : NULL;
        if (tape_fail(t, check_root(t, roots[i], grad)) || tape_stuck(t, roots[i])) return NULL;
        struct node node = {.backward = join_backward, .x = roots[i], .x2 = join};
        node.y =
            tape_var(t, (struct tensor){0}, roots[i]->needs_grad || (join && join->needs_grad));
        if (!node.y) return NULL;
        node.y->joins = 1;
        if (grad) node.args.in[0] = *grad;
        if (tape_node(t, &node)) return NULL;
        join = node.y;
    }
    return t->error ? NULL : join;
}

static int go_back(duet_tape *t, struct node *n) {
    int first = t->arena.number, of_rows = n->of_rows;
    if (n->op && !n->y->view_of) scheduled_more_operations(t->stream, 1);
    CHECK(params_use(t->owner, n->w, n->b, 1));
    if (of_rows) tape_swap_rows(t);
    int code = n->backward(t, n);
    if (of_rows) tape_swap_rows(t);
    CHECK(code);
    return tape_node_done(t, (int)(n - t->nodes), first);
}

int tape_backward(duet_tape *t, duet_var *root, const struct tensor *root_grad) {
    CHECK(tape_error(t));
    CHECK(check_root(t, root, root_grad));
    CHECK(tape_check_links(t));
    if (tape_stuck(t, root)) return tape_error(t);
    count_uses(t, root);
    if (root_grad) CHECK(grad_set(t, root, root_grad));
    duet_tape *owner;
    walk_begin(t);
    for (struct node *n; (n = walk_next(t, &owner));) {
        if (!n->y->reached) continue;
        tape_fail(owner, go_back(owner, n));
        if (owner->error) return tape_fail(t, tape_error(owner));
    }
    owner = t;
    do {
        tape_fail(owner, tape_complete_kept(owner));
        if (owner->error) return tape_fail(t, tape_error(owner));
    } while ((owner = owner->next) != t);
    return OK;
}
