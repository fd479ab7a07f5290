/* Walks over a pass in the order of PyTorch's engine; see autograd_memory.h.
 *
 *     forward    each op keeps alive what it saves; other tensors are freed
 *     backward   an op makes the gradients of its operands and parameters (here is the peak), and
 *                then releases the gradient of its result and what it has saved
 *
 * Memory is counted at its home, the var that allocated it. A var that is a view uses the memory of
 * another. */
#include "nn/autograd_memory.h"

#include <stdlib.h>

#include "base/error.h"
#include "nn/autograd_saves.h"

enum { BUFFER_BYTES = 10 << 20 }; /* PyTorch's for broadcast_coalesced */

/* The gradient of a var: an index of `grads`, or NONE. */
enum { NONE = -1 };
struct grad {
    uint64_t bytes;
    enum mem_cause cause;
    int refs; /* vars whose gradient it is */
};

struct autograd_memory {
    duet_tape *tape;
    duet_var *root;
    struct autograd_config config;
    int *saved;         /* [var_count] ops that save the memory whose home is this var */
    int *grad_of;       /* [var_count] */
    struct grad *grads; /* [grad_count] */
    int grad_count;
    char *full;        /* [var_count] config.half: 1: the memory of this var is still float32 */
    char *has_grad;    /* [parameters] */
    int *buffer_of;    /* [parameters] if replicated: index of its buffer */
    int *buffer_refs;  /* [parameters] ops that save a part of the buffer */
    uint64_t *buffers; /* [parameters] bytes of each */
};

static void hold(struct autograd_memory *a, uint64_t bytes) {
    ledger_add(a->config.ledger, a->config.cause, bytes);
}

static void release(struct autograd_memory *a, uint64_t bytes) {
    ledger_remove(a->config.ledger, a->config.cause, bytes);
}

static const duet_var *home_of(const duet_var *x) {
    while (x->same_as)
        x = x->same_as;
    return x;
}

static int is_half(const struct autograd_memory *a, const duet_var *x) {
    return a->config.half && home_of(x)->value.dtype == DTYPE_F32 && !a->full[home_of(x)->index];
}

static uint64_t bytes_of(const struct autograd_memory *a, const duet_var *x) {
    return autograd_bytes(&x->value) / (is_half(a, x) ? 2 : 1);
}

/* Marks the vars that autocast leaves in float32: inputs, results of float32 ops, and vars derived
 * from them, except results of ops in halves. */
static void mark_full(struct autograd_memory *a) {
    for (int i = 0; i < a->tape->var_count; i++)
        a->full[i] = 1;
    for (int i = 0; i < a->tape->node_count; i++) {
        const struct node *n = &a->tape->nodes[i];
        const duet_var *of[] = {n->x, n->x2, n->x3};
        int full = op_autocast(n->op) < 0;
        for (int k = 0; k < 3 && !op_autocast(n->op); k++)
            full |= of[k] && !is_half(a, of[k]);
        if (home_of(n->y) == n->y) a->full[n->y->index] = (char)full;
    }
}

/* An op in halves saves a copy of x. */
static int copies(const struct autograd_memory *a, const struct node *n, const duet_var *x) {
    return a->config.half && op_autocast(n->op) > 0 && x->value.dtype == DTYPE_F32 &&
           !is_half(a, x);
}

static int params_of(const duet_tape *t) {
    return t->step.params ? t->step.params->count : 0;
}

/* ---- what is saved ---- */

/* Memory outside the pass exists whether it is saved or not. */
static void save(struct autograd_memory *a, const struct node *n, const duet_var *x) {
    const duet_var *home = home_of(x);
    if (copies(a, n, x))
        hold(a, autograd_bytes(&x->value) / 2);
    else if (!home->outside && !a->saved[home->index]++)
        hold(a, bytes_of(a, home));
}

static void forget(struct autograd_memory *a, const struct node *n, const duet_var *x) {
    const duet_var *home = home_of(x);
    if (copies(a, n, x))
        release(a, autograd_bytes(&x->value) / 2);
    else if (!home->outside && !--a->saved[home->index])
        release(a, bytes_of(a, home));
}

static uint64_t half_weight(const struct autograd_memory *a, const struct node *n) {
    return a->config.half && op_autocast(n->op) > 0 ? autograd_bytes(&n->w->value) / 2 : 0;
}

static void save_weight(struct autograd_memory *a, const struct node *n) {
    a->buffer_refs[a->buffer_of[n->w->index]]++;
    hold(a, half_weight(a, n));
}

static void drop_buffer(struct autograd_memory *a, int i) {
    if (a->config.replicated) ledger_remove(a->config.ledger, MEM_PARAMS, a->buffers[i]);
}

static void forget_weight(struct autograd_memory *a, const struct node *n) {
    int i = a->buffer_of[n->w->index];
    release(a, half_weight(a, n));
    if (!--a->buffer_refs[i]) drop_buffer(a, i);
}

/* A norm, the sum after it and the relu after that are one op here. */
static int has_relu(const struct node *n) {
    return n->op == OP_BATCH_NORM_FORWARD && n->args.p.norm.relu;
}

static void for_saved(struct autograd_memory *a, const struct node *n,
                      void (*var)(struct autograd_memory *, const struct node *, const duet_var *),
                      void (*weight)(struct autograd_memory *, const struct node *)) {
    const struct autograd_rule rule = autograd_rule_of(n);
    if (rule.saves & SPARES_X && n->x) var(a, n, n->x);
    if (rule.saves & SPARES_Y) var(a, n, n->y);
    if (rule.saves & SPARES_X2 && n->x2) var(a, n, n->x2);
    if (rule.saves & SPARES_X3 && n->x3) var(a, n, n->x3);
    if (rule.saves_weight && n->w->from) var(a, n, n->w->from);
    if (rule.saves_weight && !n->w->from) weight(a, n);
}

static uint64_t more_of(const struct node *n) {
    struct autograd_rule rule = autograd_rule_of(n);
    return rule.more ? rule.more(n) : 0;
}

/* The parameters in registration order, as many per buffer as fit. */
static void fill_buffers(struct autograd_memory *a) {
    int buffer = 0;
    for (int i = 0; i < params_of(a->tape); i++) {
        uint64_t bytes = autograd_bytes(&a->tape->step.params->param[i].value);
        if (a->buffers[buffer] && a->buffers[buffer] + bytes > BUFFER_BYTES) buffer++;
        a->buffers[buffer] += bytes;
        a->buffer_of[i] = buffer;
    }
}

static void tell(const struct autograd_memory *a, const struct node *n,
                 enum autograd_moment moment) {
    if (a->config.use && (n->w || n->b)) a->config.use(a->config.context, n->w, n->b, moment);
}

static void save_all(struct autograd_memory *a) {
    for (int i = 0; i < a->tape->node_count; i++) {
        const struct node *n = &a->tape->nodes[i];
        if (!n->y->reached) continue;
        tell(a, n, AUTOGRAD_FORWARD);
        for_saved(a, n, save, save_weight);
        if (has_relu(n)) save(a, n, n->y);
        hold(a, more_of(n));
    }
    for (int i = 0; i < params_of(a->tape); i++)
        if (a->buffers[i] && !a->buffer_refs[i]) drop_buffer(a, i);
}

int autograd_memory_new(struct autograd_memory **out, duet_tape *t, duet_var *root,
                        const struct autograd_config *config, uint64_t *saved) {
    struct autograd_memory *a = *out = calloc(1, sizeof *a);
    size_t vars = (size_t)t->var_count, params = (size_t)params_of(t) + 1;
    uint64_t before = config->ledger->now[config->cause];
    if (!a) return fail(ERR_MEMORY, "the memory of PyTorch: out of host memory");
    a->tape = t;
    a->root = root;
    a->config = *config;
    a->saved = calloc(vars + 1, sizeof *a->saved);
    a->grad_of = calloc(vars + 1, sizeof *a->grad_of);
    /* one per operand of each node; each may become a sum */
    a->grads = calloc(6 * (size_t)t->node_count + 2, sizeof *a->grads);
    a->full = calloc(vars + 1, 1);
    a->has_grad = calloc(params, 1);
    a->buffer_of = calloc(params, sizeof *a->buffer_of);
    a->buffer_refs = calloc(params, sizeof *a->buffer_refs);
    a->buffers = calloc(params, sizeof *a->buffers);
    if (!a->saved || !a->full || !a->grad_of || !a->grads || !a->has_grad || !a->buffer_of ||
        !a->buffer_refs || !a->buffers) {
        autograd_memory_free(a);
        *out = NULL;
        return fail(ERR_MEMORY, "the memory of PyTorch: out of host memory");
    }
    for (int i = 0; i < t->var_count; i++)
        a->grad_of[i] = NONE;
    tape_uses(t, root, NULL); /* marks vars on the way to the root */
    mark_full(a);
    fill_buffers(a);
    save_all(a);
    if (saved) *saved = config->ledger->now[config->cause] - before;
    return OK;
}

int autograd_memory_saves(const struct autograd_memory *a, const duet_var *x) {
    return a->saved[home_of(x)->index] > 0;
}

void autograd_memory_free(struct autograd_memory *a) {
    if (!a) return;
    free(a->saved);
    free(a->grad_of);
    free(a->grads);
    free(a->full);
    free(a->has_grad);
    free(a->buffer_of);
    free(a->buffer_refs);
    free(a->buffers);
    free(a);
}

/* ---- backward ---- */

static int new_grad(struct autograd_memory *a, uint64_t bytes, enum mem_cause cause) {
    a->grads[a->grad_count] = (struct grad){bytes, cause, 1};
    ledger_add(a->config.ledger, cause, bytes);
    return a->grad_count++;
}

/* Shaped like x. */
static int grad_like(struct autograd_memory *a, const duet_var *x) {
    return new_grad(a, bytes_of(a, x), a->config.cause);
}

static void release_grad(struct autograd_memory *a, int grad) {
    if (grad == NONE || --a->grads[grad].refs) return;
    ledger_remove(a->config.ledger, a->grads[grad].cause, a->grads[grad].bytes);
}

/* A second gradient is added to the first, in place if nobody else reads that. */
static void arrive(struct autograd_memory *a, const duet_var *x, int grad) {
    int *to = &a->grad_of[x->index];
    if (*to == NONE) {
        *to = grad;
    } else if (a->grads[*to].refs == 1) {
        release_grad(a, grad);
    } else {
        int sum = grad_like(a, x);
        release_grad(a, *to);
        release_grad(a, grad);
        *to = sum;
    }
}

/* The gradient of one operand: dy itself, or new memory. */
static void to_operand(struct autograd_memory *a, const duet_var *x, int dy, int gives) {
    if (!x || !x->needs_grad) return;
    if (gives && dy == NONE) return;
    if (gives) a->grads[dy].refs++;
    arrive(a, x, gives ? dy : grad_like(a, x));
}

static void to_param(struct autograd_memory *a, const struct param *p) {
    if (!param_trains(p)) return;
    if (p->from) arrive(a, p->from, grad_like(a, p->from));
    if (p->from || a->has_grad[p->index]++) return;
    ledger_add(a->config.ledger, MEM_GRADS, autograd_bytes(&p->value));
    if (a->config.accumulates)
        ledger_remove(a->config.ledger, MEM_GRADS, autograd_bytes(&p->value));
}

/* The gradient of a view is a view, unless the view is a part or repeats its base. */
static int gives_as_view(const struct node *n) {
    return n->x && n->y->same_as == n->x && n->op != OP_SPREAD &&
           tensor_count(&n->y->value) >= tensor_count(&n->x->value);
}

/* Autocast makes the gradient of a parameter in two bytes first. */
static uint64_t half_grad(const struct param *p) {
    return param_trains(p) ? autograd_bytes(&p->value) / 2 : 0;
}

static void go_back(struct autograd_memory *a, const struct node *n) {
    struct autograd_rule rule = autograd_rule_of(n);
    uint64_t work = rule.work ? rule.work(n) : 0;
    int dy = a->grad_of[n->y->index], gives_x2 = rule.gives & SPARES_X2;
    int gives_x = rule.gives & SPARES_X || gives_as_view(n);
    if (has_relu(n)) { /* the relu goes first, then the sum passes its gradient to both */
        int before = grad_like(a, n->y);
        release_grad(a, dy);
        forget(a, n, n->y);
        dy = before;
        gives_x2 = 1;
    }
    const int casts = a->config.half && op_autocast(n->op) > 0;
    hold(a, work);
    to_operand(a, n->x3, dy, 0);
    to_operand(a, n->x2, dy, gives_x2);
    to_operand(a, n->x, dy, gives_x);
    if (!casts) to_param(a, n->w), to_param(a, n->b);
    if (casts) hold(a, half_grad(n->w) + half_grad(n->b));
    release(a, work);
    release_grad(a, dy);
    for_saved(a, n, forget, forget_weight);
    release(a, more_of(n));
    if (!casts) return;
    to_param(a, n->w), release(a, half_grad(n->w));
    to_param(a, n->b), release(a, half_grad(n->b));
}

void autograd_memory_backward(struct autograd_memory *a, uint64_t bytes, enum mem_cause cause) {
    if (bytes) a->grad_of[a->root->index] = new_grad(a, bytes, cause);
    for (int i = a->tape->node_count - 1; i >= 0; i--) {
        const struct node *n = &a->tape->nodes[i];
        if (!n->y->reached) continue;
        tell(a, n, AUTOGRAD_BACKWARD);
        go_back(a, n);
        tell(a, n, AUTOGRAD_DONE);
    }
}
