/* Computes the gradient of a parameter with one launch for each segment, folded over the segments
 * in the fold order (base/fold.h).
 *
 *     4 segments:      make 0 -> A      make 2 -> B      A += B
 *                      make 1 -> B      make 3 -> C      B += C      A += B
 *
 * Depth first, 1 + ceil(log2 S) buffers suffice for S segments; buffer A is the gradient itself.
 *
 * A parameter that is used more than once in a step keeps one buffer for each segment until its
 * last use, because the uses within a segment must be added before the segments: (use 1 + use 2) in
 * segment 0, the same in segment 1, and so on; then these are folded.
 *
 * The same holds for passes (tape.h), which are further uses. Their buffers outlive the step arena,
 * so they belong to the param_set; segment 0's buffer is the gradient itself.
 *
 * A value of parameters (rows.c) also keeps one buffer for each segment, and never folds them,
 * because each is the gradient of one row of its var.
 *
 * The buffers are also kept if segments are added in an order other than the fold (param_set.sums).
 * Each piece of a parameter then has its own order, so all terms must be present.
 *
 * Nothing is kept for a frozen parameter. If only one of a layer's two parameters is frozen, the
 * kernel still writes both gradients, one of them into memory that nobody reads. */
#include "base/error.h"
#include "base/fold.h"
#include "nn/tape/tape_internal.h"

static int fire(duet_tape *t, int index) {
    return t->hook ? t->hook(t->hook_context, index) : OK;
}

static int launch_segment(duet_tape *t, enum op op, const struct node *n, int segment,
                          const struct tensor *dw, const struct tensor *db) {
    if (n->segment_grads) return n->segment_grads(t, n, segment, dw, db);
    struct op_args args = {.in[0] = tensor_segment(&n->x->value, &t->segments, segment),
                           .in[1] = tensor_segment(&n->y->grad, &t->segments, segment),
                           .out[0] = *dw,
                           .out[1] = *db,
                           .p = n->args.p};
    return launch(t->stream, op, &args);
}

static struct tensor like(duet_tape *t, const struct tensor *x) {
    return tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, x->rank, x->dims);
}

static struct tensor like_weight(duet_tape *t, const struct node *n) {
    return like(t, &n->w->value);
}

/* Memory for the gradient of a bias. Kernels of layers that may have a bias always write it;
 * without a bias nobody reads it. Its shape is that of args.in[2], which an op that never has a
 * bias lacks. */
static struct tensor like_bias(duet_tape *t, const struct node *n) {
    const struct tensor *absent = &n->args.in[2];
    if (n->b) return like(t, &n->b->value);
    return absent->rank ? like(t, absent) : *absent;
}

/* The only use of both parameters: made and folded at once. Buffer 0 is the gradient itself. */
static int fold_once(duet_tape *t, enum op op, struct node *n) {
    struct fold_step steps[2 * MAX_DEVICES];
    struct tensor w[FOLD_MAX_BUFFERS], b[FOLD_MAX_BUFFERS];
    int buffers, count = fold_schedule(t->segments.count, steps, &buffers);
    int first = t->arena.number;
    w[0] = param_trains(n->w) ? n->w->grad : like_weight(t, n);
    b[0] = param_trains(n->b) ? n->b->grad : like_bias(t, n);
    for (int i = 1; i < buffers; i++) {
        w[i] = like_weight(t, n);
        b[i] = like_bias(t, n);
    }
    if (t->error) return t->error;
    for (int i = 0; i < count; i++) {
        struct fold_step *s = &steps[i];
        if (!s->add) {
            CHECK(launch_segment(t, op, n, s->term, &w[s->to], &b[s->to]));
            continue;
        }
        if (param_trains(n->w)) CHECK(tape_add(t, &w[s->from], &w[s->to]));
        if (param_trains(n->b)) CHECK(tape_add(t, &b[s->from], &b[s->to]));
    }
    return step_arena_release(&t->arena, first, t->arena.number);
}

/* ---- parameters used more than once ---- */

/* 1 if gradients are accumulated over several passes. */
static int accumulates(const duet_tape *t) {
    return t->step.add_grads || t->step.more_passes;
}

static int keeps_over_passes(const duet_tape *t, const struct param *p) {
    return accumulates(t) && !p->from;
}

static struct tensor segment_grad(duet_tape *t, const struct param *p, int segment) {
    struct param_set *set = t->step.params;
    struct tensor grad = p->grad;
    if (keeps_over_passes(t, p)) {
        size_t arena = (size_t)(segment - 1) * set->grad_count;
        if (segment) grad.data = set->segment_grads + arena + p->value_offset;
        return grad;
    }
    if (p->from) grad = p->value;
    grad.data = t->use[p->index].segment_grads + (size_t)segment * param_padded(p->count);
    return grad;
}

/* 1 if this is the parameter's first use, over all passes; then there is memory for all
 * segments. */
static int first_use(duet_tape *t, const struct param *p) {
    struct param_use *use = &t->use[p->index];
    if (t->has_grad[p->index]) return 0;
    t->has_grad[p->index] = 1;
    if (keeps_over_passes(t, p)) return 1;
    size_t count = param_padded(p->count) * (size_t)t->segments.count;
    use->segment_grads = tape_alloc(t, count * sizeof(float));
    step_arena_hold(&t->arena, use->segment_grads);
    return 1;
}

/* The first use of a parameter writes the kept gradients; each further use is added to them. */
static int keep_use(duet_tape *t, enum op op, struct node *n) {
    int has_w = param_trains(n->w), has_b = param_trains(n->b);
    int first_w = has_w && first_use(t, n->w), first_b = has_b && first_use(t, n->b);
    int first = t->arena.number;
    struct tensor w = {0}, b = {0};
    if (!first_w) w = like_weight(t, n);
    if (!first_b) b = like_bias(t, n);
    if (t->error) return t->error;
    for (int s = 0; s < t->segments.count; s++) {
        struct tensor kept_w = w, kept_b = b;
        if (has_w) kept_w = segment_grad(t, n->w, s);
        if (has_b) kept_b = segment_grad(t, n->b, s);
        CHECK(launch_segment(t, op, n, s, first_w ? &kept_w : &w, first_b ? &kept_b : &b));
        if (has_w && !first_w) CHECK(tape_add(t, &w, &kept_w));
        if (has_b && !first_b) CHECK(tape_add(t, &b, &kept_b));
    }
    return step_arena_release(&t->arena, first, t->arena.number);
}

/* `count` elements of a gradient. */
static struct tensor part_of(const struct tensor *grad, size_t first, size_t count) {
    return tensor_plain((float *)grad->data + first, DTYPE_F32, 1, &(int){(int)count});
}

/* Adds the terms left by the first halvings, piece by piece, in the order of each piece. */
static int add_in_order(duet_tape *t, const struct param *p, const struct sum_pieces *sums) {
    struct sum_piece piece;
    for (int i = 0; i < sums->count; i++) {
        if (!sum_piece_in(&sums->piece[i], p->value_offset, p->count, &piece)) continue;
        for (int k = 0; k < piece.order.n - 1; k++) {
            const struct addition *add = &piece.order.add[k];
            struct tensor to = segment_grad(t, p, add->to), from = segment_grad(t, p, add->from);
            to = part_of(&to, piece.first - p->value_offset, piece.count);
            from = part_of(&from, piece.first - p->value_offset, piece.count);
            CHECK(tape_add(t, &from, &to));
        }
    }
    return OK;
}

/* Adds the kept gradients of one parameter: folds them level by level, to the end or until one is
 * left for each term of another order. The sum goes to its gradient. */
static int add_kept(duet_tape *t, struct param *p) {
    const struct sum_pieces *sums = t->step.params->sums;
    for (struct fold f = fold_down(t->segments.count, sums ? sums->piece[0].order.n : 1);
         fold_next(&f);) {
        struct tensor to = segment_grad(t, p, f.to), from = segment_grad(t, p, f.from);
        CHECK(tape_add(t, &from, &to));
    }
    if (sums) CHECK(add_in_order(t, p, sums));
    struct tensor sum = segment_grad(t, p, 0);
    if (sum.data == p->grad.data) return OK;
    return copy_peer(t->stream, t->device, p->grad.data, t->device, sum.data, tensor_bytes(&sum));
}

/* For a value of parameters: segment s gives the gradient of row s. */
static int rows_done(duet_tape *t, struct param *p) {
    struct tensor rows = grad_target(t, p->from);
    CHECK(t->error);
    for (int s = 0; s < t->segments.count; s++) {
        const struct tensor from = segment_grad(t, p, s);
        CHECK(copy_peer(t->stream, t->device, (float *)rows.data + (size_t)s * p->count, t->device,
                        from.data, p->count * sizeof(float)));
    }
    return grad_done(t, p->from, &rows);
}

/* One use fewer to come; after the last one the gradient is complete, and the hook fires. */
static int complete(duet_tape *t, struct param *p, int kept) {
    struct param_use *use = &t->use[p->index];
    if (--use->left > 0 || (t->step.more_passes && !p->from)) return OK;
    t->has_grad[p->index] = 1;
    if (p->from)
        CHECK(rows_done(t, p));
    else if (kept)
        CHECK(add_kept(t, p));
    CHECK(step_arena_drop(&t->arena, use->segment_grads));
    return p->from ? OK : fire(t, p->index);
}

int tape_complete_kept(duet_tape *t) {
    struct param_set *set = t->step.params;
    for (int i = 0; set && t->step.add_grads && !t->step.more_passes && i < set->count; i++) {
        if (!t->has_grad[i] || t->use[i].total) continue;
        CHECK(add_kept(t, &set->param[i]));
        CHECK(fire(t, i));
    }
    return OK;
}

/* 1 if this is the parameter's only use, or the parameter has no gradient. */
static int is_once(const duet_tape *t, const struct param *p) {
    return !param_trains(p) || (t->use[p->index].total == 1 && !p->from);
}

int tape_weight_grads(duet_tape *t, enum op op, struct node *n) {
    int once = is_once(t, n->w) && is_once(t, n->b) && !accumulates(t) &&
               !(t->step.params && t->step.params->sums);
    if (!param_trains(n->w) && !param_trains(n->b)) return OK;
    scheduled_additions(t->stream, param_trains(n->w) + param_trains(n->b));
    CHECK(once ? fold_once(t, op, n) : keep_use(t, op, n));
    if (param_trains(n->b)) CHECK(complete(t, n->b, !once));
    return param_trains(n->w) ? complete(t, n->w, !once) : OK;
}
