/* The tape itself: its memory, its vars and the nodes that forward ops append to it; backward.c
 * walks over them.
 *
 *     tape_begin ... forward ops append nodes ... tape_backward */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/grow.h"
#include "nn/tape/tape_internal.h"

enum { FIRST_CAPACITY = 32 }; /* initial number of vars */

int tape_init(duet_tape **out, struct device *device) {
    duet_tape *t = *out = calloc(1, sizeof *t);
    if (!t) return fail(ERR_MEMORY, "tape: out of host memory");
    t->device = device;
    t->stream = device_compute(device);
    t->arena = (struct step_arena){.device = device, .cause = MEM_ACTIVATIONS};
    t->next = t;
    t->passes_of_update = 1;
    return OK;
}

void tape_set_cause(duet_tape *t, enum mem_cause cause) {
    t->arena.cause = cause;
}

/* Takes a tape out of the ring of those that have moved values: its pass is over. The others may
 * still copy from this tape's memory, or it from theirs. Their vars of this pass cannot be used any
 * more. */
static void leave_ring(duet_tape *t) {
    duet_tape *before = t;
    stream_sync(t->stream); /* an error stays in the stream, and the next call returns it */
    for (duet_tape *other = t->next; other != t; other = other->next) {
        stream_sync(other->stream);
        other->torn = 1;
        before = other;
    }
    before->next = t->next;
    t->next = t;
    t->torn = 0;
}

void duet_tape_free(duet_tape *t) {
    if (!t) return;
    /* Enqueued work may still use the arena. An earlier call has returned its error. */
    leave_ring(t);
    event_destroy(t->moved);
    step_arena_free(&t->arena);
    for (int i = 0; i < t->var_capacity; i++)
        free(t->vars[i]);
    free(t->vars);
    free(t->nodes);
    free(t->use);
    free(t->has_grad);
    for (int i = 0; i < t->rows.capacity; i++)
        free(t->rows.computed[i]);
    free(t->rows.computed);
    device_free(t->device, t->block);
    device_free(t->device, t->losses.data);
    device_free(t->device, t->hits.data);
    free(t);
}

int tape_fail(duet_tape *t, int code) {
    if (!code || t->error) return code;
    t->error = code;
    snprintf(t->message, sizeof t->message, "%s", error_message());
    return code;
}

void *tape_refuse(duet_tape *t, const char *format, ...) {
    char text[sizeof t->message];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    tape_fail(t, fail(ERR_USAGE, "%s", text));
    return NULL;
}

int tape_failed(duet_tape *t, const duet_var *x) {
    if (!t || t->error || x) return !t || t->error;
    return tape_fail(t, fail(ERR_USAGE, "tape: a function was given NULL in place of a var"));
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

int64_t tape_number(const duet_tape *t) {
    return t->step.number;
}

int tape_training(const duet_tape *t) {
    return t->step.training;
}

int tape_check_links(const duet_tape *t) {
    const duet_tape *at = t;
    do
        if (at->torn)
            return fail(ERR_USAGE, "var to: a tape whose values it uses has begun another pass: "
                                   "begin the passes of all tapes first");
    while ((at = at->next) != t);
    return OK;
}

/* ---- memory ---- */

void *tape_alloc(duet_tape *t, size_t bytes) {
    void *memory = NULL;
    if (t->error || tape_fail(t, step_arena_alloc(&t->arena, bytes, &memory))) return NULL;
    return memory;
}

struct tensor tape_tensor(duet_tape *t, enum dtype dtype, enum layout layout, int rank,
                          const int *dims) {
    struct tensor x = tensor_plain(NULL, dtype, rank, dims);
    if (layout == LAYOUT_N16) x = tensor_in_n16(&x, &t->segments);
    x.data = tape_alloc(t, tensor_bytes(&x));
    return x;
}

/* ---- vars and nodes ---- */

int tape_param_count(const duet_tape *t) {
    return (t->step.params ? t->step.params->count : 0) + t->rows.count;
}

int tape_grow_params(duet_tape *t, int count) {
    if (count <= t->param_capacity) return OK;
    struct param_use *use = realloc(t->use, (size_t)count * sizeof *use);
    if (use) t->use = use;
    char *has_grad = realloc(t->has_grad, (size_t)count);
    if (has_grad) t->has_grad = has_grad;
    if (!use || !has_grad) return fail(ERR_MEMORY, "tape: out of host memory");
    for (; t->param_capacity < count; t->param_capacity++) {
        t->use[t->param_capacity] = (struct param_use){0};
        t->has_grad[t->param_capacity] = 0;
    }
    return OK;
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

static void begin_rows(duet_tape *t) {
    t->rows.inside = t->rows.count = 0;
    t->rows.other = t->segments;
    t->rows.other.n = t->segments.count;
    for (int s = 0; s < t->segments.count; s++)
        t->rows.other.seg[s].n = 1;
}

int tape_begin(duet_tape *t, const struct tape_step *step) {
    int ran_out = t->error == ERR_MEMORY;
    if (t->next != t || t->torn) leave_ring(t);
    t->error = OK;
    t->node_count = t->var_count = t->dropout_layers = t->leaf_count = 0;
    CHECK(tape_fail(t, check_segments(step)));
    t->step = *step;
    t->segments = *step->segments;
    begin_rows(t);
    CHECK(tape_fail(t, step_arena_restart(&t->arena, ran_out)));
    return tape_fail(t, tape_grow_params(t, tape_param_count(t)));
}

duet_var *tape_var(duet_tape *t, struct tensor value, int needs_grad) {
    if (t->error) return NULL;
    if (t->var_count == t->var_capacity) {
        int capacity = t->var_capacity ? 2 * t->var_capacity : FIRST_CAPACITY;
        duet_var **vars = realloc(t->vars, (size_t)capacity * sizeof *vars);
        if (!vars) return tape_fail(t, fail(ERR_MEMORY, "tape: out of host memory")), NULL;
        memset(vars + t->var_capacity, 0, (size_t)(capacity - t->var_capacity) * sizeof *vars);
        t->vars = vars;
        t->var_capacity = capacity;
    }
    duet_var **var = &t->vars[t->var_count];
    if (!*var) *var = malloc(sizeof **var);
    if (!*var) return tape_fail(t, fail(ERR_MEMORY, "tape: out of host memory")), NULL;
    memset(*var, 0, sizeof **var);
    (*var)->index = t->var_count++;
    (*var)->value = value;
    step_arena_hold(&t->arena, value.data);
    (*var)->needs_grad = needs_grad && t->step.training; /* an evaluation keeps no nodes */
    return *var;
}

duet_var *tape_view_var(duet_tape *t, struct tensor value, const duet_var *x) {
    duet_var *y = tape_var(t, value, x->needs_grad);
    if (y) y->same_as = x;
    return y;
}

duet_var *tape_leaf(duet_tape *t, const struct tensor *value, int needs_grad) {
    duet_var *leaf = tape_var(t, *value, needs_grad);
    if (leaf) leaf->outside = leaf->keeps_grad = 1;
    return leaf;
}

static void save(duet_var *x, int spared) {
    if (x && !spared) x->saved = 1;
}

int tape_node(duet_tape *t, const struct node *node) {
    if (t->error) return t->error;
    if (!t->step.training || !node->y || !node->y->needs_grad) return OK;
    CHECK(
        tape_fail(t, list_grow("tape", &t->nodes, t->node_count, &t->node_capacity, sizeof *node)));
    t->nodes[t->node_count] = *node;
    t->nodes[t->node_count].pieces_end = t->arena.number;
    t->nodes[t->node_count].of_rows = t->rows.inside;
    save(node->x, node->spares & SPARES_X);
    save(node->x2, node->spares & SPARES_X2);
    save(node->x3, node->spares & SPARES_X3);
    save(node->y, node->spares & SPARES_Y);
    int64_t now = now_ns();
    t->clock = now > t->clock ? now : t->clock + 1;
    t->nodes[t->node_count++].clock = t->clock;
    return OK;
}
