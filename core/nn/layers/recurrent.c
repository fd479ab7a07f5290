/* nn.LSTM, nn.GRU and nn.RNN: one layer in one direction. The inputs' part of the gates is an
 * ordinary linear layer over all steps at once. The previous state's part is an op that goes
 * through the steps (device/op_table.c says what it saves for backward).
 *
 * Backward gives the gradient of the gates at each step. The gradient of W_hh is then that of a
 * linear layer whose rows are the states before the steps. It sums over samples, so it is computed
 * segment by segment. */
#include "base/error.h"
#include "nn/tape/tape_internal.h"

static const int gates_of[RECURRENT_COUNT] = {4, 3, 1, 1}, saved_of[RECURRENT_COUNT] = {6, 5, 0, 0};

static struct tensor plain3(duet_tape *t, int n, int rows, int columns) {
    return tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, 3, (int[]){n, rows, columns});
}

/* ---- backward ---- */

/* x (N,L,H) as images of L rows. */
static struct tensor as_picture(const struct tensor *x) {
    return tensor_plain(x->data, x->dtype, 4, (int[]){x->dims[0], 1, x->dims[1], x->dims[2]});
}

/* y = the rows of x, `top` rows further down; rows that x does not have are 0. */
static int shift_rows(duet_tape *t, const struct tensor *x, int top, const struct tensor *y) {
    struct op_args args = {.in[0] = as_picture(x), .out[0] = as_picture(y), .p.pad = {.top = top}};
    return launch(t->stream, OP_PAD, &args);
}

/* *before (N,L,H): h before each step: the first state, then y shifted by one step. */
static int states_before(duet_tape *t, const struct node *n, struct tensor *before) {
    const struct tensor *y = &n->y->value, *first = &n->args.in[3];
    int samples = y->dims[0], steps = y->dims[1], width = y->dims[2],
        reverse = n->args.p.recurrent.reverse;
    *before = plain3(t, samples, steps, width);
    struct tensor h = plain3(t, samples, 1, width);
    CHECK(tape_error(t));
    if (!first->data && steps > 1) return shift_rows(t, y, reverse ? -1 : 1, before);
    if (first->data)
        CHECK(shift_rows(t, first, 0, &h));
    else
        CHECK(launch(t->stream, OP_FILL, &(struct op_args){.out[0] = h}));
    if (steps == 1) {
        *before = h;
        return OK;
    }
    struct tensor others = plain3(t, samples, steps - 1, width);
    CHECK(tape_error(t));
    CHECK(shift_rows(t, y, reverse ? -1 : 0, &others));
    struct op_args cat = {
        .in = {as_picture(reverse ? &others : &h), as_picture(reverse ? &h : &others)},
        .out[0] = as_picture(before)};
    return launch(t->stream, OP_CAT, &cat);
}

static int segment_grads(duet_tape *t, const struct node *n, int s, const struct tensor *dw,
                         const struct tensor *db) {
    struct tensor h = tensor_rows(&n->before), du = tensor_rows(&n->dhidden);
    struct op_args args = {
        .in = {tensor_segment(&h, &t->segments, s), tensor_segment(&du, &t->segments, s)},
        .out = {*dw, *db}};
    return launch(t->stream, OP_LINEAR_BACKWARD_WEIGHT, &args);
}

static struct tensor gradient_of(duet_tape *t, const duet_var *x, const struct tensor *like) {
    return x && x->needs_grad ? grad_target(t, x)
                              : plain3(t, like->dims[0], like->dims[1], like->dims[2]);
}

static int recurrent_backward(duet_tape *t, struct node *n) {
    const struct tensor *y = &n->y->value, *saved = &n->args.out[1];
    const duet_var *last = n->context;
    int lstm = n->args.p.recurrent.kind == RECURRENT_LSTM,
        gru = n->args.p.recurrent.kind == RECURRENT_GRU;
    const struct tensor states =
        tensor_seen_as(y, 3, y->dims[0], 1 + lstm, y->dims[2]); /* only the shape is used */
    struct op_args args = {
        .in = {n->y->grad, saved->data ? *saved : *y, n->w->value},
        .out = {gradient_of(t, n->x, &n->x->value), gradient_of(t, n->x2, &states)},
        .p = n->args.p};
    if (last && last->grad.data) args.in[3] = last->grad;
    if (gru) args.out[2] = plain3(t, y->dims[0], y->dims[1], n->x->value.dims[2]);
    CHECK(tape_error(t));
    CHECK(launch(t->stream, OP_RECURRENT_BACKWARD, &args));
    n->dhidden = args.out[gru ? 2 : 0];
    if (param_trains(n->w) || param_trains(n->b)) CHECK(states_before(t, n, &n->before));
    CHECK(tape_weight_grads(t, OP_LINEAR_BACKWARD_WEIGHT, n));
    if (last) CHECK(grad_drop(t, n->context));
    if (n->x->needs_grad) CHECK(grad_done(t, n->x, &args.out[0]));
    return n->x2 && n->x2->needs_grad ? grad_done(t, n->x2, &args.out[1]) : OK;
}

/* The last c is a second result of the op before: its gradient waits there for the backward above,
 * so y must have a gradient. */
static int last_backward(duet_tape *t, struct node *n) {
    if (n->x->grad.data) return OK;
    struct op_args fill = {.out[0] = grad_target(t, n->x)};
    CHECK(tape_error(t));
    CHECK(launch(t->stream, OP_FILL, &fill));
    return grad_done(t, n->x, &fill.out[0]);
}

/* ---- forward ---- */

/* gates (N,L,GH); first (N,S,H) or NULL. *c becomes the last c of an LSTM. */
static duet_var *recur(duet_tape *t, duet_var *gates, struct param *w, struct param *b,
                       duet_var *first, struct recurrent_args how, duet_var **c) {
    int n = gates->value.dims[0], steps = gates->value.dims[1], width = w->value.dims[1],
        kept = saved_of[how.kind] * width, lstm = how.kind == RECURRENT_LSTM;
    int needs_grad = tape_needs_grad(gates, w, b) || (first && first->needs_grad);
    struct node node = {.backward = recurrent_backward,
                        .op = OP_RECURRENT_FORWARD,
                        .spares = SPARES_X,
                        .segment_grads = segment_grads,
                        .x = gates,
                        .x2 = first,
                        .w = w,
                        .b = b};
    node.args = (struct op_args){.in = {gates->value, w->value, tape_bias(t, b, w->value.dims[0])},
                                 .out[0] = plain3(t, n, steps, width),
                                 .p.recurrent = how};
    if (first) node.args.in[3] = first->value;
    if (kept) node.args.out[1] = plain3(t, n, steps, kept);
    if (lstm) node.args.out[2] = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, 2, (int[]){n, width});
    if (t->error || tape_fail(t, params_use(t->owner, w, b, 0)) ||
        tape_fail(t, launch(t->stream, OP_RECURRENT_FORWARD, &node.args)))
        return NULL;
    node.y = tape_var(t, node.args.out[0], needs_grad);
    duet_var *last = lstm && c ? tape_var(t, node.args.out[2], needs_grad) : NULL;
    node.context = last;
    if (last) last->keeps_grad = 1; /* for the backward of `node` */
    if (tape_node(t, &node)) return NULL;
    struct node of_last = {.backward = last_backward, .x = node.y, .y = last, .spares = SPARES_ALL};
    if (last && tape_node(t, &of_last)) return NULL;
    if (c) *c = last;
    return node.y;
}

/* A given state, (N,H), as one of the rows of (N,S,H). */
static duet_var *as_state(duet_tape *t, duet_var *state, int rows, int width) {
    const struct tensor *v = &state->value;
    if (v->rank != 2 || v->dims[0] != rows || v->dims[1] != width)
        return tape_refuse(t, "recurrent: an initial state of %s: must be (%d, %d)", SHAPE(v), rows,
                           width);
    return duet_reshape(t, state, 3, (int[]){v->dims[0], 1, width});
}

/* The given states as (N,S,H); NULL: zeros, or the tape has an error. */
static duet_var *first_states(duet_tape *t, const struct duet_recurrent *layer, int rows, int width,
                              duet_var *h, duet_var *c) {
    if (!h && !c) return NULL;
    if (layer->kind == DUET_LSTM ? !h || !c : !h)
        return tape_refuse(
            t, "recurrent: one initial state without the other: an LSTM takes h and c, or neither");
    duet_var *both[2] = {as_state(t, h, rows, width), NULL};
    if (layer->kind == DUET_LSTM && both[0]) both[1] = as_state(t, c, rows, width);
    duet_var *all = both[1] ? duet_cat(t, both, 2, 1) : both[0];
    return all && !t->error ? to_plain(t, all) : NULL;
}

static int check_recurrent(duet_tape *t, const struct duet_recurrent *layer,
                           const struct param *w_ih, const struct param *w_hh, const duet_var *x) {
    const int *ih = w_ih->value.dims, *hh = w_hh->value.dims;
    if ((unsigned)layer->kind > DUET_RNN_RELU)
        return fail(ERR_USAGE, "recurrent: kind %d does not exist", (int)layer->kind);
    if (x->value.rank != 3)
        return fail(ERR_USAGE, "recurrent: an input of %s: must be (N, steps, numbers)",
                    SHAPE(&x->value));
    if (hh[0] != gates_of[layer->kind] * (int64_t)hh[1] || ih[0] != hh[0])
        return fail(ERR_USAGE,
                    "recurrent %s: weights of %d and %d rows for a state of %d: both must have %d "
                    "for each number of the state",
                    w_hh->spec->name, ih[0], hh[0], hh[1], gates_of[layer->kind]);
    return tape_check_samples(t, &x->value);
}

static int no_layer(void) {
    return fail(ERR_USAGE, "recurrent: no layer was given: fill in a struct duet_recurrent");
}

static duet_var *last_h(duet_tape *t, duet_var *y, int reverse) {
    const int *dims = y->value.dims;
    duet_var *h = duet_narrow(t, y, 1, reverse ? 0 : dims[1] - 1, 1);
    return h ? duet_reshape(t, h, 2, (int[]){dims[0], dims[2]}) : NULL;
}

duet_var *duet_recurrent(duet_tape *t, duet_var *x, const struct duet_recurrent *layer,
                         duet_var **h, duet_var **c) {
    int no_b_ih, no_b_hh;
    if (tape_failed(t, x) || (!layer && tape_fail(t, no_layer()))) return NULL;
    struct param *w_ih = tape_param_at(t, "recurrent", layer->w_ih, 2),
                 *w_hh = tape_param_at(t, "recurrent", layer->w_hh, 2),
                 *b_ih = tape_bias_at(t, "recurrent", layer->b_ih, &no_b_ih),
                 *b_hh = tape_bias_at(t, "recurrent", layer->b_hh, &no_b_hh);
    if (!w_ih || !w_hh || no_b_ih || no_b_hh ||
        tape_fail(t, check_recurrent(t, layer, w_ih, w_hh, x)))
        return NULL;
    if ((b_ih && b_ih->value.dims[0] != w_ih->value.dims[0]) ||
        (b_hh && b_hh->value.dims[0] != w_hh->value.dims[0]))
        return tape_refuse(t, "recurrent %s: a bias must have %d numbers", w_hh->spec->name,
                           w_hh->value.dims[0]);
    duet_var *first = first_states(t, layer, x->value.dims[0], w_hh->value.dims[1], h ? *h : NULL,
                                   c && layer->kind == DUET_LSTM ? *c : NULL),
             *gates = duet_linear(t, x, layer->w_ih, layer->b_ih);
    if (!gates || t->error) return NULL;
    duet_var *y =
        recur(t, gates, w_hh, b_hh, first,
              (struct recurrent_args){(enum recurrent)layer->kind, layer->reverse != 0}, c);
    if (y && h) *h = last_h(t, y, layer->reverse);
    return y;
}
