/* The tape itself: its nodes, and the walk back over them.
 *
 *     tape_begin ... forward ops append nodes ... tape_backward
 *
 *     node 0: y0 = conv2d(x, W1, b1)        ^   the walk goes from the root upward
 *     node 1: y1 = relu(y0)                 |
 *     node 2: y2 = matmul_add(y1, W3, b3)   |
 *     root:   y2                            |
 *
 * Nodes whose output did not lead to the root are skipped. The gradients of the parameters complete
 * in about the reverse order of registration, which is the order of their arena (nn/param.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "nn/tape_internal.h"

enum { FIRST_CAPACITY = 32 }; /* of nodes and vars */

int tape_init(duet_tape **out, struct device *device) {
    duet_tape *t = *out = calloc(1, sizeof *t);
    if (!t) return fail(ERR_MEMORY, "tape: no host memory");
    t->device = device;
    t->stream = device_compute(device);
    t->arena = (struct step_arena){.device = device, .cause = MEM_ACTIVATIONS};
    t->next = t;
    return OK;
}

void tape_set_cause(duet_tape *t, enum mem_cause cause) {
    t->arena.cause = cause;
}

void duet_tape_free(duet_tape *t) {
    if (!t) return;
    /* What is enqueued may still use the arena. An earlier call has returned its error. */
    tape_unlink(t);
    event_destroy(t->moved);
    step_arena_free(&t->arena);
    for (int i = 0; i < t->var_capacity; i++)
        free(t->vars[i]);
    free(t->vars);
    free(t->nodes);
    free(t->uses_left);
    free(t->uses_total);
    free(t->segment_grads);
    free(t->has_grad);
    free(t->used);
    device_free(t->device, t->block);
    device_free(t->device, t->losses.data);
    device_free(t->device, t->hits.data);
    free(t->fired);
    free(t);
}

int tape_fail(duet_tape *t, int code) {
    if (!code || t->error) return code;
    t->error = code;
    snprintf(t->message, sizeof t->message, "%s", error_message());
    return code;
}

void tape_set_exchange(duet_tape *t, const struct tape_exchange *exchange) {
    t->exchange = exchange ? *exchange : (struct tape_exchange){0};
}

int tape_error(const duet_tape *t) {
    return t->error ? fail(t->error, "%s", t->message) : OK;
}

void tape_set_hook(duet_tape *t, grad_hook *hook, void *context) {
    t->hook = hook;
    t->hook_context = context;
}

/* ---- memory ---- */

uint64_t tape_arena_version(const duet_tape *t) {
    return t->arena.version;
}

void *tape_alloc(duet_tape *t, size_t bytes) {
    void *memory = NULL;
    if (t->error || tape_fail(t, step_arena_alloc(&t->arena, bytes, &memory))) return NULL;
    return memory;
}

struct tensor tape_tensor(duet_tape *t, enum dtype dtype, enum layout layout, int rank,
                          const int *dims) {
    struct tensor x = tensor_plain(NULL, dtype, rank, dims);
    x.layout = layout;
    x.groups = layout == LAYOUT_N16 ? segments_groups(&t->segments) : 0;
    x.data = tape_alloc(t, tensor_bytes(&x));
    return x;
}

/* ---- vars and nodes ---- */

static int grow_params(duet_tape *t, int count) {
    if (count <= t->param_capacity) return OK;
    free(t->uses_left);
    free(t->uses_total);
    free(t->segment_grads);
    free(t->has_grad);
    free(t->used);
    t->uses_left = calloc((size_t)count, sizeof *t->uses_left);
    t->uses_total = calloc((size_t)count, sizeof *t->uses_total);
    t->segment_grads = calloc((size_t)count, sizeof *t->segment_grads);
    t->has_grad = calloc((size_t)count, 1);
    t->used = calloc((size_t)count, 1);
    t->param_capacity = count;
    if (t->uses_left && t->uses_total && t->segment_grads && t->has_grad && t->used) return OK;
    t->param_capacity = 0;
    return fail(ERR_MEMORY, "tape: no host memory");
}

static int check_segments(const struct tape_step *step) {
    const struct segments *s = step->segments;
    int n = 0, accumulates = step->add_grads || step->more_passes;
    if (s->count < 1 || s->count > MAX_DEVICES)
        return fail(ERR_FAILED, "tape: %d segments: a batch has 1 to %d", s->count, MAX_DEVICES);
    if (accumulates && step->params && s->count > step->params->kept_segments)
        return fail(ERR_FAILED,
                    "tape: %d segments: sums over several passes are kept for %d: "
                    "param_set_keep_segments first",
                    s->count, step->params->kept_segments);
    for (int i = 0; i < s->count; i++)
        n += s->seg[i].n;
    return n == s->n
               ? OK
               : fail(ERR_FAILED, "tape: the segments hold %d samples, the batch %d", n, s->n);
}

int tape_begin(duet_tape *t, const struct tape_step *step) {
    int ran_out = t->error == ERR_MEMORY;
    if (t->next != t || t->torn) tape_unlink(t);
    t->error = OK;
    t->node_count = t->var_count = t->dropout_layers = t->leaf_count = 0;
    CHECK(tape_fail(t, check_segments(step)));
    t->step = *step;
    t->segments = *step->segments;
    CHECK(tape_fail(t, step_arena_restart(&t->arena, ran_out)));
    return tape_fail(t, grow_params(t, step->params ? step->params->count : 0));
}

duet_var *tape_var(duet_tape *t, struct tensor value, int needs_grad) {
    if (t->error) return NULL;
    if (t->var_count == t->var_capacity) {
        int capacity = t->var_capacity ? 2 * t->var_capacity : FIRST_CAPACITY;
        duet_var **vars = realloc(t->vars, (size_t)capacity * sizeof *vars);
        if (!vars) return tape_fail(t, fail(ERR_MEMORY, "tape: no host memory")), NULL;
        memset(vars + t->var_capacity, 0, (size_t)(capacity - t->var_capacity) * sizeof *vars);
        t->vars = vars;
        t->var_capacity = capacity;
    }
    duet_var **slot = &t->vars[t->var_count];
    if (!*slot) *slot = malloc(sizeof **slot);
    if (!*slot) return tape_fail(t, fail(ERR_MEMORY, "tape: no host memory")), NULL;
    memset(*slot, 0, sizeof **slot);
    (*slot)->place = t->var_count++;
    (*slot)->value = value;
    (*slot)->needs_grad = needs_grad && t->step.training; /* an evaluation keeps no nodes */
    return *slot;
}

duet_var *tape_view_var(duet_tape *t, struct tensor value, const duet_var *x) {
    duet_var *y = tape_var(t, value, x->needs_grad);
    if (y) y->same_as = x;
    return y;
}

duet_var *tape_leaf(duet_tape *t, const struct tensor *value, int needs_grad) {
    duet_var *leaf = tape_var(t, *value, needs_grad);
    if (leaf) leaf->outside = 1;
    return leaf;
}

int tape_node(duet_tape *t, const struct node *node) {
    if (t->error) return t->error;
    if (!t->step.training || !node->y || !node->y->needs_grad) return OK;
    if (t->node_count == t->node_capacity) {
        int capacity = t->node_capacity ? 2 * t->node_capacity : FIRST_CAPACITY;
        struct node *nodes = realloc(t->nodes, (size_t)capacity * sizeof *nodes);
        if (!nodes) return tape_fail(t, fail(ERR_MEMORY, "tape: no host memory"));
        t->nodes = nodes;
        t->node_capacity = capacity;
    }
    t->nodes[t->node_count] = *node;
    int64_t now = now_ns();
    t->clock = now > t->clock ? now : t->clock + 1;
    t->nodes[t->node_count++].clock = t->clock;
    return OK;
}

/* ---- gradients of vars ---- */

struct tensor grad_target(duet_tape *t, const duet_var *x) {
    return tape_tensor(t, DTYPE_F32, x->value.layout, x->value.rank, x->value.dims);
}

int grad_may_reuse(const duet_var *y) {
    return !y->borrowed;
}

void grad_set(duet_var *x, const struct tensor *grad, int borrowed) {
    x->grad = *grad;
    x->borrowed = borrowed;
}

int tape_add(duet_tape *t, const struct tensor *from, const struct tensor *to) {
    struct op_args args = {.in[0] = *from, .out[0] = *to};
    return launch(t->stream, OP_ADD, &args);
}

/* Of two gradients the sum goes into the one that nobody else reads; the bits are the same. */
int grad_done(duet_tape *t, duet_var *x, const struct tensor *grad) {
    struct tensor before = x->grad;
    if (before.data && grad_may_reuse(x)) return tape_add(t, grad, &before);
    grad_set(x, grad, 0);
    return before.data ? tape_add(t, &before, grad) : OK;
}

int grad_share(duet_tape *t, duet_var *x, const struct tensor *grad) {
    struct tensor before = x->grad;
    if (!before.data) {
        grad_set(x, grad, 1);
        return OK;
    }
    if (grad_may_reuse(x)) return tape_add(t, grad, &before);
    struct tensor sum = grad_target(t, x);
    struct op_args args = {.in = {before, *grad}, .out[0] = sum};
    CHECK(t->error);
    grad_set(x, &sum, 0);
    return launch(t->stream, OP_ADD_FORWARD, &args);
}

/* ---- the walk ---- */

static void reach(duet_var *x) {
    if (x) x->reached = 1;
}

static void count_use(duet_tape *t, const struct param *p) {
    if (param_trains(p)) t->uses_total[p - t->step.params->param]++;
}

/* Forgets what an earlier walk has left in this tape. */
static void forget_walk(duet_tape *t) {
    int params = t->step.params ? t->step.params->count : 0;
    for (int i = 0; i < params; i++)
        t->uses_total[i] = 0;
    for (int i = 0; i < t->var_count; i++) {
        t->vars[i]->reached = t->vars[i]->borrowed = 0;
        t->vars[i]->grad = (struct tensor){0};
    }
}

static void begin_uses(duet_tape *t) {
    int params = t->step.params ? t->step.params->count : 0;
    for (int i = 0; i < params; i++) {
        t->uses_left[i] = t->uses_total[i];
        t->segment_grads[i] = NULL;
        if (!t->step.add_grads) t->has_grad[i] = 0;
    }
}

/* Marks the vars that the root depends on, and counts how often each parameter was used on the way
 * to it. */
static void count_uses(duet_tape *t, duet_var *root) {
    duet_tape *owner = t;
    do
        forget_walk(owner);
    while ((owner = owner->next) != t);
    reach(root);
    tape_walk_begin(t);
    for (struct node *n; (n = tape_walk_next(t, &owner));) {
        if (!n->y->reached) continue;
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

const char *tape_uses(duet_tape *t, duet_var *root) {
    count_uses(t, root);
    for (int i = 0; t->step.params && i < t->step.params->count; i++)
        t->used[i] = t->uses_total[i] > 0 || t->has_grad[i];
    return t->used;
}

int64_t tape_number(const duet_tape *t) {
    return t->step.number;
}

int tape_training(const duet_tape *t) {
    return t->step.training;
}

static int same_shape(const struct tensor *a, const struct tensor *b) {
    return a->rank == b->rank && !memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims);
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
    if (!grad) return fail(ERR_FAILED, "backward: the root is no loss: give its gradient");
    if (root->value.layout != LAYOUT_PLAIN || grad->layout != LAYOUT_PLAIN ||
        !same_shape(grad, &root->value))
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

int tape_backward(duet_tape *t, duet_var *root, const struct tensor *root_grad) {
    CHECK(tape_error(t));
    CHECK(check_root(t, root, root_grad));
    CHECK(tape_check_links(t));
    if (tape_stuck(t, root)) return tape_error(t);
    count_uses(t, root);
    if (root_grad) {
        root->grad = *root_grad;
        root->borrowed = 1;
    }
    duet_tape *owner;
    tape_walk_begin(t);
    for (struct node *n; (n = tape_walk_next(t, &owner));) {
        if (!n->y->reached) continue;
        tape_fail(owner, n->backward(owner, n));
        if (owner->error) return tape_fail(t, tape_error(owner));
    }
    owner = t;
    do {
        tape_fail(owner, tape_complete_kept(owner));
        if (owner->error) return tape_fail(t, tape_error(owner));
    } while ((owner = owner->next) != t);
    return OK;
}
